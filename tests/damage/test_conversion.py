"""`convert` reads on, from paths and from open records, and says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError, DamageWarning

from damage.files import KINDS, POLICIES, RECORDS, N, expected, file_of

pytestmark = pytest.mark.filterwarnings("ignore::anyrecord.DamageWarning")

DAMAGED = {3, 17, N - 1}


def source(name: str, folder: Path) -> Path:
    kind = KINDS[name]
    path = folder / f"source{kind.suffix}"
    path.write_bytes(file_of(kind, DAMAGED))
    return path


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", KINDS)
def test_the_target_has_what_reading_on_gives(name: str, policy: str, tmp_path: Path) -> None:
    path, on_error, lost = source(name, tmp_path), POLICIES[policy], KINDS[name].lost(DAMAGED)
    want = expected(range(N), lost, policy)
    for suffix in (".ffr", ".array_record", ".recordio", ".tfrecord"):
        done = anyrecord.convert(
            path, tmp_path / f"a{suffix}", source_format=KINDS[name].format, on_error=on_error, durable=False
        )
        assert list(anyrecord.open(tmp_path / f"a{suffix}")) == want
        assert done.records == len(want)
        assert {skipped.record for skipped in done.skipped} == lost
        assert done.source_bytes == path.stat().st_size
    records = anyrecord.open(path, format=KINDS[name].format, on_error=on_error)
    done = anyrecord.convert(records.shuffle(1), tmp_path / "b.ffr", durable=False)
    assert sorted(anyrecord.open(tmp_path / "b.ffr")) == sorted(want)
    assert list(done.skipped) == records.skipped
    assert {skipped.record for skipped in done.skipped} == lost


@pytest.mark.parametrize("name", ["ffrecord", "tfrecord", "recordio-snappy", "array_record-brotli-groups"])
def test_without_on_error_and_above_max_errors_nothing_is_written(name: str, tmp_path: Path) -> None:
    path = source(name, tmp_path)
    lost = KINDS[name].lost(DAMAGED)
    wrong: list[dict[str, Any]] = [{}, {"on_error": "skip", "max_errors": len(lost) - 1}, {"on_error": "raise"}]
    for keywords in wrong:
        with pytest.raises(ChecksumError):
            anyrecord.convert(path, tmp_path / "out.ffr", **keywords)
        assert sorted(tmp_path.iterdir()) == [path]
    done = anyrecord.convert(path, tmp_path / "out.ffr", on_error="skip", max_errors=len(lost))
    assert done.records == N - len(lost)


def test_shards_are_balanced_before_records_are_left_out(tmp_path: Path) -> None:
    path = source("ffrecord", tmp_path)
    for done in (
        anyrecord.convert(path, tmp_path / "a.ffr", shards=3, on_error="skip"),
        anyrecord.convert(anyrecord.open(path, on_error="skip"), tmp_path / "b.ffr", shards=3),
    ):
        parts = [list(anyrecord.open(shard)) for shard in done.paths]
        assert parts == [expected(range(i, i + 20), DAMAGED, "skip") for i in (0, 20, 40)]


def test_files_of_a_folder_count_together_and_keep_their_own_names(tmp_path: Path) -> None:
    kind = KINDS["ffrecord"]
    for name in "abc":
        (tmp_path / f"{name}.ffr").write_bytes(file_of(kind, {5, N - 1}))
    told: list[tuple[int, int]] = []
    done = anyrecord.convert(
        f"{tmp_path}/*.ffr",
        f"{tmp_path}/new/",
        format="tfrecord",
        on_error="replace",
        max_errors=6,
        progress=lambda done, total: told.append((done, total)),
    )
    for name, after in (("a", RECORDS[0]), ("b", RECORDS[0]), ("c", RECORDS[0])):
        found = list(anyrecord.open(tmp_path / "new" / f"{name}.tfrecord"))
        assert found == [*RECORDS[:5], RECORDS[6], *RECORDS[6:-1], after]
    assert len(done.skipped) == 6
    size = 3 * len(file_of(kind))
    assert told[-1] == (size, size)
    assert told == sorted(told)
    with pytest.raises(ChecksumError, match=r"c\.ffr"):
        anyrecord.convert(f"{tmp_path}/*.ffr", f"{tmp_path}/other/", format="tfrecord", on_error="skip", max_errors=5)


def test_a_source_can_be_its_own_target(tmp_path: Path) -> None:
    path = source("ffrecord", tmp_path)
    anyrecord.convert(path, path, overwrite=True, on_error="skip")
    assert list(anyrecord.open(path)) == expected(range(N), DAMAGED, "skip")


def test_map_leaves_out_and_a_warning_that_is_an_error_stops_it(tmp_path: Path) -> None:
    path = source("ffrecord", tmp_path)
    done = anyrecord.convert(path, tmp_path / "a.ffr", on_error="skip", map=lambda r: r if r[3] % 2 else None)
    assert done.records == sum(record[3] % 2 for record in expected(range(N), DAMAGED, "skip"))
    with pytest.MonkeyPatch.context() as patch:
        import warnings

        patch.setattr(warnings, "filters", [])
        warnings.simplefilter("error", DamageWarning)
        with pytest.raises(DamageWarning):
            anyrecord.convert(path, tmp_path / "b.ffr", on_error="skip")
    assert not (tmp_path / "b.ffr").exists()


def test_options_of_open_records_are_given_to_open(tmp_path: Path) -> None:
    records = anyrecord.open(source("ffrecord", tmp_path), on_error="skip")
    with pytest.raises(ValueError, match=r"on_error=, max_errors= and storage= are for paths"):
        anyrecord.convert(records, tmp_path / "a.ffr", on_error="skip")
