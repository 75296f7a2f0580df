"""`Scanner` and `new_scanner`, call by call."""

from __future__ import annotations

import gc
import io
import os
import threading
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat.recordio import Index, RangeScanner, Scanner, load_index, new_scanner, new_writer
from children import forked

RECORDS = [b"%d" % number for number in range(30)]
RANGES = [
    ((), RECORDS),
    ((0, -1), RECORDS),
    ((-5, 3), RECORDS[:3]),
    ((4, 3), RECORDS[4:7]),
    ((4, 0), []),
    ((28, 2), RECORDS[28:]),
    ((28, 100), RECORDS[28:]),
    ((28, -7), RECORDS[28:]),
    ((30, -1), []),
    ((31, 1), []),
    ((1 << 32, -1), []),
    ((0, 1 << 32), RECORDS),
    ((1 << 70, 1 << 70), []),
]


def write(path: str, records: list[bytes] = RECORDS, compressor: int = -1) -> str:
    with open(path, "wb") as file:
        writer = new_writer(file, 20, compressor)
        for record in records:
            writer.write(record)
        writer.close()
    return path


@pytest.fixture
def path() -> str:
    return write("a.recordio")


def rest(scanner: RangeScanner) -> list[bytes]:
    found = []
    while scanner.scan():
        found.append(scanner.record())
    return found


# The binding


@pytest.mark.parametrize(("arguments", "expected"), RANGES)
def test_ranges(path: str, arguments: Any, expected: list[bytes]) -> None:
    scanner = Scanner(path, *arguments)
    assert [scanner.record() for _ in expected] == expected
    assert [scanner.record() for _ in range(3)] == [None] * 3
    with open(path, "rb") as file:
        other = new_scanner(file, load_index(file), *arguments)
        assert rest(other) == expected
        assert [other.scan() for _ in range(3)] == [False] * 3
        assert other.error() is None


def test_arguments_by_their_names(path: str) -> None:
    assert list(Scanner(path=path, start=2, len=1, index=Index(path))) == [b"2"]
    with open(path, "rb") as file:
        assert rest(new_scanner(file=file, index=load_index(file), start=2, length=1)) == [b"2"]


@pytest.mark.parametrize("wrong", ["1", 1.5, None])
def test_start_and_length_are_whole_numbers(path: str, wrong: Any) -> None:
    for arguments in ((wrong, 1), (1, wrong)):
        with pytest.raises(TypeError):
            Scanner(path, *arguments)


def test_empty_records_are_not_the_end() -> None:
    scanner = Scanner(write("b.recordio", [b"", b"x", b""]))
    assert [scanner.record() for _ in range(4)] == [b"", b"x", b"", None]
    with open("b.recordio", "rb") as file:
        assert rest(new_scanner(file)) == [b"", b"x", b""]


@pytest.mark.parametrize("compressor", [0, 1, 2])
def test_every_compressor_is_read_gzip_too(compressor: int) -> None:
    assert list(Scanner(write("b.recordio", RECORDS, compressor), 7, 20)) == RECORDS[7:27]


def test_goldens_of_the_original(golden: Path) -> None:
    for name in ("gzip_chunk200", "concat_mixed", "old_snappy", "snappy_padding_mid"):
        file = golden / "recordio" / f"{name}.recordio"
        assert list(Scanner(str(file))) == list(anyrecord.open(file))


@pytest.mark.parametrize("name", ["none_bad_crc", "snappy_bad_payload", "none_numrec_plus1", "none_reclen_huge"])
def test_corruption_is_raised_each_time_and_never_taken_for_the_end(golden: Path, name: str) -> None:
    scanner = Scanner(str(golden / "recordio" / f"{name}.recordio"))
    good = [scanner.record() for _ in range(10)]
    assert None not in good
    for _ in range(3):
        with pytest.raises(RuntimeError) as error:
            scanner.record()
        assert isinstance(error.value, anyrecord.FormatError)
        assert error.value.record == 10


def test_a_failed_scan_stays_failed_and_says_why(golden: Path) -> None:
    with open(golden / "recordio" / "none_numrec_plus1.recordio", "rb") as file:
        scanner = new_scanner(file, load_index(file), 8, -1)
        assert len(rest(scanner)) == 2
        assert [scanner.scan() for _ in range(20)] == [False] * 20
        assert str(scanner.error()).startswith("Failed to read a record\n")
        with pytest.raises(RuntimeError, match="there is no current record"):
            scanner.record()
        scanner = new_scanner(file, load_index(file), 22, 3)
        assert len(rest(scanner)) == 3
        assert scanner.error() is None


def test_after_close_it_raises_and_a_second_close_does_nothing(path: str) -> None:
    scanner, other = Scanner(path), Scanner(path)
    scanner.close()
    scanner.close()
    with pytest.raises(RuntimeError, match="this scanner is closed") as error:
        scanner.record()
    assert isinstance(error.value, anyrecord.ClosedError)
    assert other.record() == b"0"


def test_it_is_a_context_manager_and_an_iterable(path: str) -> None:
    with Scanner(path, 28) as scanner:
        assert list(scanner) == RECORDS[28:]
    with pytest.raises(ValueError, match="closed"):
        scanner.record()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_open(path: str) -> None:
    gc.collect()  # what other tests left in cycles
    before = descriptors()
    for _ in range(20):
        Scanner(path, 0, 1).record()
        Index(path).num_records()
    assert descriptors() == before


def test_the_file_is_given_back_at_the_end_and_at_an_error(golden: Path, path: str) -> None:
    gc.collect()  # what other tests left in cycles
    before = descriptors()
    scanner, failed = Scanner(path), Scanner(str(golden / "recordio" / "none_bad_crc.recordio"), 10)
    list(scanner)
    with pytest.raises(RuntimeError, match="Checksum"):
        failed.record()
    assert descriptors() == before


def test_threads_may_share_a_scanner(path: str) -> None:
    scanner, found = Scanner(path), list[bytes]()
    threads = [threading.Thread(target=lambda: found.extend(scanner)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=int) == RECORDS


def test_forked_children_read(path: str) -> None:
    index, scanner = Index(path), Scanner(path)
    assert scanner.record() == b"0"
    assert forked(lambda: list(scanner)) == RECORDS[1:]
    assert forked(lambda: list(Scanner(path, 3, 2, index))) == RECORDS[3:5]
    assert list(scanner) == RECORDS[1:]


# The index


def test_scanners_share_an_index_and_go_on_after_it_is_closed(path: str) -> None:
    index = Index(path)
    scanners = [Scanner(path, start, 1, index) for start in range(30)]
    index.close()
    assert [scanner.record() for scanner in reversed(scanners)] == RECORDS[::-1]


def test_scanners_of_a_file_share_an_index_and_take_turns(path: str) -> None:
    with open(path, "rb") as file:
        index = load_index(file)
        one, two, own = new_scanner(file, index, 0, -1), new_scanner(file, index, 10, -1), new_scanner(file)
        for number in range(20):
            assert one.scan()
            assert two.scan()
            assert own.scan()
            assert one.record() == own.record() == RECORDS[number]
            assert two.record() == RECORDS[number + 10]
        one.close()
        assert not file.closed
        assert own.scan()


def test_threads_read_one_open_file_with_and_without_a_shared_index() -> None:
    records = [b"%d" % number for number in range(4000)]
    with open(write("b.recordio", records), "rb") as file:
        shared = load_index(file)
        for index in (shared, None):
            found: dict[int, list[bytes]] = {}

            def work(start: int, index: Index | None = index, found: dict[int, list[bytes]] = found) -> None:
                found[start] = rest(new_scanner(file, index, start, 500))

            threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 4000, 500)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [record for start in sorted(found) for record in found[start]] == records


@pytest.mark.parametrize("others", [RECORDS[:-1], [b"1234567890123456789"] * 30, []])
def test_the_index_of_another_file_is_refused(path: str, others: list[bytes]) -> None:
    other = write("b.recordio", others)
    with pytest.raises(RuntimeError, match=r"^Failed to create scanner for recordio file: a\.recordio\n.*another file"):
        Scanner(path, index=Index(other))
    with open(path, "rb") as file, open(other, "rb") as wrong:
        with pytest.raises(RuntimeError, match=r"another file.*expected .* records in .* chunks, found 30") as error:
            new_scanner(file, load_index(wrong), 0, -1)
        assert isinstance(error.value, anyrecord.FormatError)


def test_the_index_of_what_the_file_was_before_is_refused(path: str) -> None:
    index = Index(path)
    write(path, RECORDS[:7])
    with pytest.raises(RuntimeError, match="another file"):
        Scanner(path, index=index)


def test_the_index_of_a_copy_will_do(path: str) -> None:
    Path("copy.recordio").write_bytes(Path(path).read_bytes())
    assert list(Scanner("copy.recordio", 5, 1, Index(path))) == [b"5"]
    assert rest(new_scanner(io.BytesIO(Path(path).read_bytes()), Index(path), 5, 1)) == [b"5"]


def test_an_index_is_an_index(path: str) -> None:
    wrong: Any = 30
    with pytest.raises(TypeError, match="index must be an Index, not int"):
        Scanner(path, index=wrong)


# Go


def test_record_without_a_scan_and_after_the_end_raises(path: str) -> None:
    with open(path, "rb") as file:
        scanner = new_scanner(file, load_index(file), 3, 1)
        with pytest.raises(RuntimeError, match="there is no current record"):
            scanner.record()
        assert scanner.scan()
        assert scanner.record() == scanner.record() == b"3"
        assert not scanner.scan()
        with pytest.raises(RuntimeError, match="there is no current record"):
            scanner.record()


def test_a_record_stays_what_it_was(path: str) -> None:
    with open(path, "rb") as file:
        scanner = new_scanner(file)
        scanner.scan()
        first = scanner.record()
        while scanner.scan():
            pass
        assert first == b"0"


def test_a_closed_scanner_and_a_closed_file_raise(path: str) -> None:
    with open(path, "rb") as file:
        with new_scanner(file) as scanner:
            assert scanner.scan()
        with pytest.raises(RuntimeError, match="this scanner is closed"):
            scanner.scan()
        late = new_scanner(file)
    with pytest.raises(ValueError, match="closed file"):
        rest(late)
