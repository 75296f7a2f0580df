# ruff: noqa: F401
"""Records that come through a cache are what records of files are: the conformance suite, cold and warm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conformance.formats import FIRST_CASES
from conformance.storages import CUTS, RECORDS, Stored
from conformance.test_buffer import test_every_record_shows_its_bytes as test_every_record_shows_its_bytes
from conformance.test_closing import test_closed_records_still_tell_what_they_were as test_closed_records_still_tell
from conformance.test_indexing import (
    test_any_list_of_numbers_reads_what_a_list_has_there as test_any_list_of_numbers,
)
from conformance.test_indexing import (
    test_every_record_is_found_by_its_number_from_either_end as test_every_record_is_found_by_its_number,
)
from conformance.test_indexing import (
    test_more_numbers_than_one_read_plans_for_are_all_read as test_more_numbers_than_one_read_plans_for,
)
from conformance.test_iterating import (
    test_iterating_gives_every_record_once_in_order as test_iterating_gives_every_record,
)
from conformance.test_iterating import (
    test_two_iterators_do_not_disturb_each_other_nor_reads_between as test_two_iterators_do_not_disturb_each_other,
)
from conformance.test_mapping import (
    test_mapped_records_survive_pickling_where_their_records_do as test_mapped_records_survive_pickling,
)
from conformance.test_places import test_locate_tells_file_chunk_and_row as test_locate_tells_file_chunk_and_row
from conformance.test_places import test_sizes_are_exact_or_unknown as test_sizes_are_exact_or_unknown

from .conftest import StoredRemotely, file_of

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")


@dataclass(frozen=True)
class StoredWithCache(StoredRemotely):
    """`RECORDS` of a server, with a cache before it."""

    cache: Path = Path()
    limit: int | None = None

    @property
    def io(self) -> dict[str, Any]:
        return {**super().io, "cache": self.cache, "cache_folder_bytes": self.limit}


@pytest.fixture(scope="session", params=["large", "small"])
def cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int | None]:
    """A folder that has room for everything, and one that has room for one block."""
    return tmp_path_factory.mktemp(request.param), None if request.param == "large" else (1 << 20) + 4096


@pytest.fixture(
    scope="session", params=[(c, s) for c in FIRST_CASES for s in ("one", "many")], ids=lambda c: f"{c[0]}-{c[1]}"
)
def stored(request: pytest.FixtureRequest, start_place: Any, cache: tuple[Path, int | None]) -> Stored:
    """The records in each format, in one object and in several. The tests share the folder: only the first is cold."""
    case, storage = request.param
    place = start_place("obstore s3")
    cuts = [0, len(RECORDS)] if storage == "one" else CUTS
    files = []
    for i in range(len(cuts) - 1):
        files.append(f"{case}/{'one' if storage == 'one' else f'part-{i}'}{case.suffix}")
        place.put(files[-1], file_of(case, RECORDS[cuts[i] : cuts[i + 1]]))
    counts = tuple(cuts[i + 1] - cuts[i] for i in range(len(cuts) - 1))
    shown = tuple(place.shown(file) for file in files)
    return StoredWithCache(case, storage, shown, counts, Path(), place, *cache)
