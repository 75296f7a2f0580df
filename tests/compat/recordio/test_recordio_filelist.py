"""`FileList` and `FileListScanner`, call by call."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat.recordio import FileList, FileListScanner, Writer, new_writer, readahead
from children import forked


def write(path: str, records: list[bytes], chunk: int = 10) -> str:
    with open(path, "wb") as file:
        writer = new_writer(file, chunk)
        for record in records:
            writer.write(record)
        writer.close()
    return path


@pytest.fixture
def paths(golden: Path) -> list[str]:
    """Ten files, of which the i-th has i records."""
    return [str(golden / "recordio" / "filelist" / f"{number:05d}.recordio") for number in range(10)]


def expected(paths: list[str]) -> list[bytes]:
    return [record for path in paths for record in anyrecord.open(path, format="recordio")]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "FileListScanner"]


# FileList


def test_every_record_is_located_also_past_the_first_file(golden: Path, paths: list[str]) -> None:
    manifest = json.loads((golden / "recordio" / "manifest.json").read_text())
    about = next(file for file in manifest["files"] if file["kind"] == "filelist")
    table = about["real_go_library"]["correct_locate(0..n-1)"]
    files = FileList(paths)
    assert files.total_records() == 45
    assert [list(files.locate(index)) for index in range(45)] == table
    assert [files.locate(index) for index in (-1, 45, 1 << 70)] == [(-1, -1, -1)] * 3


def test_chunks_empty_files_and_the_same_file_twice() -> None:
    a, b = write("a.recordio", [b"123456", b"654321", b"1"]), write("b.recordio", [b"x"])
    empty = write("empty.recordio", [])
    files = FileList([empty, a, empty, empty, b, a, a, empty])
    one = [(0, 0), (1, 0), (1, 1)]
    places = [(1, *place) for place in one] + [(4, 0, 0)] + [(file, *place) for file in (5, 6) for place in one]
    assert [files.locate(index) for index in range(files.total_records())] == places
    assert list(FileListScanner(files)) == expected([a, b, a, a])


def test_an_empty_list_is_fine() -> None:
    for files in (FileList([]), FileList([write("a.recordio", [])])):
        assert (files.total_records(), files.locate(0)) == (0, (-1, -1, -1))
        scanner = FileListScanner(files)
        assert (list(scanner), scanner.error()) == ([], None)


def test_any_iterable_of_paths() -> None:
    write("a.recordio", [b"x"])
    assert FileList(Path(name) for name in ["a.recordio"]).total_records() == 1
    for wrong in ("a.recordio", b"a.recordio"):
        with pytest.raises(TypeError, match="a list of paths"):
            FileList(wrong)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="encode"):
        FileList([None])  # type: ignore[list-item]


def test_patterns_are_names(paths: list[str]) -> None:
    write("a.recordio", [b"x"])
    for name in ("*.recordio", ".", "a.recordio[0:1]", ""):
        with pytest.raises(RuntimeError, match=r"^open "):
            FileList(["a.recordio", name])


def test_one_bad_file_fails_all(golden: Path, paths: list[str]) -> None:
    with pytest.raises(RuntimeError, match=r"^open missing: No such file or directory"):
        FileList([*paths, "missing"])
    with pytest.raises(RuntimeError, match=r"^Failed to load index\n.*none_bad_magic_mid") as error:
        FileList([*paths, str(golden / "recordio" / "none_bad_magic_mid.recordio")])
    assert isinstance(error.value, anyrecord.FormatError)


def test_a_closed_list_raises_and_its_scanners_go_on(paths: list[str]) -> None:
    with FileList(paths) as files:
        scanner = FileListScanner(files)
    files.close()
    for use in (files.total_records, lambda: files.locate(0), lambda: FileListScanner(files)):
        with pytest.raises(RuntimeError, match="this list of files is closed") as error:
            use()
        assert isinstance(error.value, anyrecord.ClosedError)
    assert list(scanner) == expected(paths)


# FileListScanner


@pytest.mark.parametrize("start", [-3, 0, 1, 2, 17, 44, 45, 1 << 40])
@pytest.mark.parametrize("length", [-1, 0, 1, 5, 1 << 40])
def test_ranges(paths: list[str], start: int, length: int) -> None:
    first = max(start, 0)
    stop = None if length < 0 else first + length
    with FileListScanner(FileList(paths), start, length) as scanner:
        assert list(scanner.chan()) == expected(paths)[first:stop]
        assert list(scanner) == []
        assert scanner.error() is None
    assert threads() == []


def test_arguments_are_checked(paths: list[str]) -> None:
    wrong: Any = paths
    with pytest.raises(TypeError, match="a FileList, not list"):
        FileListScanner(wrong)
    with pytest.raises(TypeError):
        FileListScanner(FileList(paths), "1")  # type: ignore[arg-type]


def test_an_error_comes_after_the_good_records_and_stays(golden: Path, paths: list[str]) -> None:
    bad = str(golden / "recordio" / "none_bad_crc.recordio")
    scanner = FileListScanner(FileList([paths[3], bad, paths[2]]))
    good = [next(scanner) for _ in range(3 + 10)]
    assert good[:3] == expected([paths[3]])
    assert scanner.error() is None
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^Checksum checking failed") as error:
            next(scanner)
        assert isinstance(error.value, anyrecord.ChecksumError)
        assert scanner.error() is error.value
    assert len(list(FileListScanner(FileList([bad]), 21, 19))) == 19


def test_nothing_is_read_before_the_first_record_is_asked_for(paths: list[str]) -> None:
    scanner = FileListScanner(FileList(paths))
    assert threads() == []
    next(scanner)
    scanner.close()
    assert threads() == []


def test_reading_ahead_is_bounded_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.recordio", [b"12345"] * 100)
    for most_records, most_bytes, most in ((7, 1 << 20, 7), (1000, 23, 4), (1000, 1, 1)):
        monkeypatch.setattr(readahead, "_MOST_RECORDS", most_records)
        monkeypatch.setattr(readahead, "_MOST_BYTES", most_bytes)
        with FileListScanner(FileList([path])) as scanner:
            waiting = []
            for _ in scanner:
                with scanner._ahead._changed:
                    waiting.append(len(scanner._ahead._ready))
            assert len(waiting) == 100
            assert max(waiting) <= most


def test_after_close_it_raises_and_a_second_close_does_nothing(paths: list[str]) -> None:
    scanner = FileListScanner(FileList(paths))
    next(scanner)
    scanner.close()
    scanner.close()
    with pytest.raises(RuntimeError, match="this scanner is closed") as error:
        next(scanner)
    assert isinstance(error.value, anyrecord.ClosedError)
    assert scanner.error() is None


def test_close_ends_a_thread_that_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readahead, "_MOST_RECORDS", 1)
    scanner = FileListScanner(FileList([write("a.recordio", [b"x"] * 1000)]))
    next(scanner)
    assert len(threads()) == 1
    scanner.close()
    assert threads() == []


def test_a_dropped_scanner_leaves_no_thread_and_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readahead, "_MOST_RECORDS", 1)
    path = write("a.recordio", [b"x"] * 1000)
    gc.collect()  # what other tests left in cycles
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        next(FileListScanner(FileList([path])))
    gc.collect()
    assert threads() == []
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_files_are_given_back_at_the_end_and_at_an_error(golden: Path, paths: list[str]) -> None:
    gc.collect()  # what other tests left in cycles
    before = len(os.listdir("/proc/self/fd"))
    scanner = FileListScanner(FileList(paths))
    failed = FileListScanner(FileList([str(golden / "recordio" / "none_bad_crc.recordio")]))
    list(scanner)
    with pytest.raises(RuntimeError, match="Checksum"):
        list(failed)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert forked(lambda: list(scanner)) == []
    with pytest.raises(RuntimeError, match="Checksum"):
        forked(lambda: list(failed))


def test_threads_may_share_a_scanner() -> None:
    records = [b"%d" % number for number in range(3000)]
    scanner, found = FileListScanner(FileList([write("a.recordio", records)])), list[bytes]()
    workers = [threading.Thread(target=lambda: found.extend(scanner)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found, key=int) == records


def test_a_forked_child_goes_on_where_the_parent_was(paths: list[str]) -> None:
    records, scanner = expected(paths), FileListScanner(FileList(paths))
    assert forked(lambda: list(scanner)) == records
    assert [next(scanner) for _ in range(7)] == records[:7]

    def child() -> list[bytes]:
        found = list(scanner)
        scanner.close()
        return found

    assert forked(child) == records[7:]
    assert forked(scanner.close) is None
    assert list(scanner) == records[7:]


def test_a_program_ends_while_a_scanner_is_open(tmp_path: Path) -> None:
    with Writer("a.recordio") as writer:
        for _ in range(5000):
            writer.write(b"x")
    script = (
        "from anyrecord.compat.recordio import FileList, FileListScanner\n"
        "scanner = FileListScanner(FileList(['a.recordio']))\n"
        "print(next(scanner))\n"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "b'x'\n", "")
