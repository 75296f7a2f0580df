# ruff: noqa: F401
"""Records of objects are what records of files are: the conformance suite, on every place."""

from __future__ import annotations

import warnings

import anyrecord
import pytest
from anyrecord import Records
from conformance.storages import RECORDS, Stored
from conformance.test_buffer import test_every_record_shows_its_bytes as test_every_record_shows_its_bytes
from conformance.test_closing import test_closed_records_still_tell_what_they_were as test_closed_records_still_tell
from conformance.test_identity import (
    test_the_repr_is_the_same_for_the_same_records_and_only_for_them as test_the_repr_is_the_same_for_the_same_records,
)
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
from conformance.test_places import test_paths_are_the_files_in_reading_order as test_paths_are_the_files
from conformance.test_places import test_sizes_are_exact_or_unknown as test_sizes_are_exact_or_unknown

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")


@pytest.mark.parametrize("size", [7, 1000])
def test_batches_hold_all_records(records: Records, size: int) -> None:
    batches = list(records.batches(size))
    assert [record for batch in batches for record in batch] == list(RECORDS)
    assert [batch.tolist() for batch in records.batches(size, packed=True)] == batches


def test_a_shuffled_epoch_holds_all_records(records: Records) -> None:
    assert sorted(records.shuffle(seed=3)) == sorted(RECORDS)


def test_info_and_verify_and_convert_read_objects(stored: Stored) -> None:
    with stored.source() as source, warnings.catch_warnings():
        about = anyrecord.info(source, **stored.io)
        seen: list[tuple[int, int]] = []
        report = anyrecord.verify(source, progress=lambda *both: seen.append(both), **stored.io)
        done = anyrecord.convert(source, "out.tfrecord", durable=False, **stored.io)
        saved = anyrecord.salvage(source, **stored.io)
    assert (about.records, about.paths) == (len(RECORDS), stored.files)
    assert (report.records, report.ok, report.paths) == (len(RECORDS), True, stored.files)
    assert seen[-1] == (report.file_bytes, report.file_bytes)
    assert about.file_bytes == report.file_bytes == done.source_bytes == saved.source_bytes
    assert list(anyrecord.open("out.tfrecord")) == list(RECORDS)
    assert saved.records == len(RECORDS)
