"""Where records are and how large: `sizes`, `locate`, `paths`, `format`, `info`, `verify`, and `+`."""

from __future__ import annotations

import array
import os
import pickle

import anyrecord
import numpy as np
import pytest
from anyrecord import Records
from turns import turn

from conformance.storages import RECORDS, Stored

N = len(RECORDS)
SIZES = [len(record) for record in RECORDS]
RECORD_BYTES = sum(SIZES)


def test_sizes_are_exact_or_unknown(stored: Stored, records: Records) -> None:
    sizes = records.sizes()
    if not stored.case.variant.sizes_known:
        assert sizes is None
        return
    assert isinstance(sizes, array.array)
    assert sizes.itemsize == 8
    assert list(sizes) == SIZES
    assert np.asarray(sizes).sum() == RECORD_BYTES
    assert records[10:20].sizes() == array.array("Q", SIZES[10:20])
    assert records[::-3].sizes() == array.array("Q", SIZES[::-3])
    assert records[:0].sizes() == array.array("Q")


def test_locate_tells_file_chunk_and_row(stored: Stored, records: Records) -> None:
    for index in range(N):
        file, number = stored.place(index)
        found = records.locate(index)
        assert found == (file, *stored.case.chunk_and_row(number))
        assert (found.path, found.chunk, found.row) == found
        assert records.locate(index - N) == found
    assert records.locate(np.int64(3)) == records.locate(3)


def test_locate_takes_one_number_of_a_record(records: Records) -> None:
    for outside in (N, -N - 1, 10**30):
        with pytest.raises(IndexError):
            records.locate(outside)
    for wrong in (1.0, "1", None, [1], slice(1)):
        with pytest.raises(TypeError):
            records.locate(wrong)  # type: ignore[arg-type]


def test_paths_are_the_files_in_reading_order(stored: Stored, records: Records) -> None:
    assert records.paths == list(stored.files)
    assert records[3:5].paths == list(stored.files)


def test_the_format_is_known_from_the_bytes(stored: Stored, records: Records) -> None:
    assert records.format == stored.case.format.name
    with stored.opened(format=stored.case.format.name) as named:
        assert list(named) == list(RECORDS)


WAYS_TO_OPEN: list[dict[str, object]] = [{"checksums": False}, {"table": "disk"}, {"cache_bytes": 0}]


def test_every_way_to_open_reads_the_same(stored: Stored) -> None:
    for keywords in WAYS_TO_OPEN:
        with turn(keywords), stored.opened(**keywords) as records:
            assert list(records) == list(RECORDS)
            assert records[[N - 1, 0, 20]] == [RECORDS[N - 1], RECORDS[0], RECORDS[20]]


def test_one_descriptor_is_enough_for_all_files(stored: Stored) -> None:
    with stored.opened(limits=anyrecord.Limits(open_files=1)) as records:
        assert records[range(N - 1, -1, -1)] == list(RECORDS[::-1])
        assert [records[i] for i in range(N)] == list(RECORDS)


def test_the_expected_number_of_records_is_checked(stored: Stored) -> None:
    with stored.opened(expected_records=N) as records:
        assert len(records) == N
    for wrong in (N - 1, N + 1, 0):
        with pytest.raises(anyrecord.FormatError) as caught, stored.opened(expected_records=wrong):
            pass
        assert (caught.value.expected, caught.value.found) == (str(wrong), str(N))


def test_info_sums_up_all_files(stored: Stored) -> None:
    with stored.source() as source:
        about = anyrecord.info(source)
    assert about.format == stored.case.format.name
    assert about.records == N
    assert about.paths == stored.files
    assert about.chunks == sum(stored.case.chunk_and_row(count - 1)[0] + 1 for count in stored.counts if count)
    if stored.is_of_paths:
        assert about.file_bytes == sum(os.path.getsize(file) for file in stored.files)
    if stored.case.variant.sizes_known:
        assert about.decoded_bytes == RECORD_BYTES
        assert about.ratio == RECORD_BYTES / about.file_bytes
    assert tuple(file.path for file in about.files) == stored.files
    assert tuple(file.records for file in about.files) == stored.counts
    assert {file.format for file in about.files} == {about.format}
    for field in ("chunks", "file_bytes", "record_bytes"):
        assert sum(getattr(file, field) for file in about.files) == getattr(about, field)
    for file in about.files:
        if stored.is_of_paths:
            assert anyrecord.info(file.path).files == (file,)


def test_verify_accounts_for_every_byte(stored: Stored) -> None:
    seen: list[tuple[int, int]] = []
    with stored.source() as source:
        report = anyrecord.verify(source, progress=lambda done, total: seen.append((done, total)))
    assert report.ok
    assert report
    assert report.format == stored.case.format.name
    assert (report.records, report.decoded_bytes) == (N, RECORD_BYTES)
    assert (report.problems, report.problem_count, report.unused, report.damaged) == ((), 0, (), ())
    assert (report.unused_bytes, report.damaged_bytes) == (0, 0)
    assert 0 < report.meta_bytes == report.file_bytes - report.record_bytes
    with stored.source() as source:
        about = anyrecord.info(source)
    for field in ("format", "records", "chunks", "file_bytes", "record_bytes", "paths"):
        assert getattr(report, field) == getattr(about, field), field
    assert seen[-1] == (report.file_bytes, report.file_bytes)
    assert seen == sorted(seen)
    assert str(report).endswith("all accounted for")


PARTS = [(0, 5), (3, 4), (0, N), (7, N), (20, 20), (0, 0), (N, N), (N - 1, N)]


def test_info_and_verify_of_a_range_count_its_records(stored: Stored) -> None:
    if stored.storage != "path":
        return
    (path,) = stored.files
    whole = anyrecord.info(path)
    for start, stop in PARTS:
        with turn((start, stop)):
            about = anyrecord.info(f"{path}[{start}:{stop}]")
            report = anyrecord.verify(f"{path}[{start}:{stop}]")
            chunks = {stored.case.chunk_and_row(index)[0] for index in range(start, stop)}
            for found in (about, report):
                assert (found.records, found.chunks) == (stop - start, len(chunks))
                assert (found.file_bytes, found.record_bytes) == (whole.file_bytes, whole.record_bytes)
                assert found.paths == (path,)
            assert about.files[0].records == stop - start
            assert about.decoded_bytes == whole.decoded_bytes
            assert report.ok
            assert report.record_bytes + report.meta_bytes == report.file_bytes


def test_a_file_that_is_named_twice_has_its_bytes_once(stored: Stored) -> None:
    if stored.storage != "path":
        return
    (path,) = stored.files
    relative = os.path.relpath(path)
    whole = anyrecord.info(path)
    for source, counts in (
        ([path, path], (N, N)),
        ([f"{path}[0:5]", f"{path}[5:7]", relative], (5, 2, N)),
        ([f"{path}[3:]", f"{path}[:3]"], (N - 3, 3)),
    ):
        seen: list[tuple[int, int]] = []
        about = anyrecord.info(source)
        report = anyrecord.verify(source, progress=lambda done, total: seen.append((done, total)))  # noqa: B023
        assert about.records == report.records == sum(counts) == len(anyrecord.open(source))
        assert tuple(file.records for file in about.files) == counts
        assert about.chunks == report.chunks
        assert about.paths == report.paths == tuple(source_path.partition("[")[0] for source_path in source)
        for field in ("file_bytes", "record_bytes"):
            assert getattr(about, field) == getattr(report, field) == getattr(whole, field)
        assert about.decoded_bytes == whole.decoded_bytes
        assert seen[-1] == (whole.file_bytes, whole.file_bytes)


def test_a_range_that_is_not_in_the_file_is_refused_by_all_alike(stored: Stored) -> None:
    if stored.storage != "path":
        return
    (path,) = stored.files
    for part in (f"0:{N + 1}", f"{N + 1}:", f"{N + 1}:{N + 2}"):
        for function in (anyrecord.open, anyrecord.info, anyrecord.verify):
            with pytest.raises(ValueError, match=f"are not in the file, which has {N}"):
                function(f"{path}[{part}]")


def test_what_was_read_before_changes_no_answer(stored: Stored, records: Records) -> None:
    with stored.source() as source:
        before = anyrecord.info(source)
    chunks = [records.locate(index).chunk for index in range(N)]
    list(records), [records[index] for index in range(N)], records[range(N)]
    assert [records.locate(index).chunk for index in range(N)] == chunks
    about = records._source.descriptions()
    assert [file[1:6] for file in about] == [
        (file.records, file.chunks, file.file_bytes, file.record_bytes, file.decoded_bytes) for file in before.files
    ]


def test_a_sum_is_one_after_the_other(stored: Stored, records: Records) -> None:
    with stored.opened() as more:
        both = records + more
        assert type(both) is Records
        assert len(both) == 2 * N
        assert list(both) == [*RECORDS, *RECORDS]
        assert both[[N, N - 1, -1, 0]] == [RECORDS[0], RECORDS[-1], RECORDS[-1], RECORDS[0]]
        assert both.paths == [*stored.files, *stored.files]
        with pytest.raises(IndexError):
            both[2 * N]


def test_sums_stack_and_slice_and_count_slices_as_they_are(records: Records) -> None:
    expected = [*RECORDS[3:20:4], *RECORDS, *RECORDS[::-1][:7]]
    stacked = records[3:20:4] + records + records[::-1][:7]
    assert list(stacked) == expected
    assert list(stacked[2:-2]) == expected[2:-2]
    assert list(stacked[::-3]) == expected[::-3]
    assert list(stacked[2:30][::-1] + stacked[:3]) == expected[2:30][::-1] + expected[:3]
    assert stacked[range(len(expected))] == expected
    assert list(records[:0] + records[:0]) == []


def test_a_sum_can_be_pickled_where_its_parts_can(stored: Stored, records: Records) -> None:
    both = records[5:] + records[:5]
    if not stored.is_of_paths:
        with pytest.raises(TypeError):
            pickle.dumps(both)
        return
    again = pickle.loads(pickle.dumps(both[1:]))
    assert list(again) == [*RECORDS[6:], *RECORDS[:5]]


def test_only_records_can_be_added(records: Records) -> None:
    for other in ([b""], (), None, b"", records.map(len)):
        with pytest.raises(TypeError):
            records + other  # type: ignore[operator]


def test_records_opened_in_different_ways_are_not_mixed(stored: Stored, records: Records) -> None:
    with stored.opened(checksums=False) as unchecked, pytest.raises(ValueError, match="different options"):
        records + unchecked
