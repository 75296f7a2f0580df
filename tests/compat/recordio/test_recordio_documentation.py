"""The examples of the original's documentation, with only the import changed."""

from __future__ import annotations

import inspect
from pathlib import Path

import anyrecord.compat.recordio as recordio
import pytest

RECORDS = [b"Hello", b"World,", b"RecordIO!"]


def write_the_example(path: str) -> None:
    file = open(path, "wb")  # noqa: SIM115  # closed by the writer
    writer = recordio.new_writer(file, -1, -1)
    for record in RECORDS:
        writer.write(record)
    writer.close()
    assert file.closed


def test_write_three_records_with_defaults(golden: Path) -> None:
    write_the_example("a.recordio")
    default, explicit = golden / "recordio" / "default_args.recordio", Path("b.recordio")
    with explicit.open("wb") as file, recordio.new_writer(file, 32 << 20, recordio.SNAPPY) as writer:
        for record in anyrecord_of(default):
            writer.write(record)
    assert explicit.read_bytes() == default.read_bytes()
    assert anyrecord_of(Path("a.recordio")) == RECORDS


def anyrecord_of(path: Path) -> list[bytes]:
    return list(recordio.Scanner(str(path)))


def test_load_the_index_and_print_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    write_the_example("a.recordio")
    with open("a.recordio", "rb") as file:
        index = recordio.load_index(file)
        print("Total records: ", index.num_records())
    assert capsys.readouterr().out == "Total records:  3\n"


def test_scan_two_records_from_the_second_on_and_tell_the_end_from_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    write_the_example("a.recordio")
    with open("a.recordio", "rb") as file:
        index = recordio.load_index(file)
        scanner = recordio.new_scanner(file, index, 1, 2)
        while scanner.scan():
            print(scanner.record().decode())
        if scanner.error() is not None:
            print("Something wrong with scanning:", scanner.error())
    assert capsys.readouterr().out == "World,\nRecordIO!\n"


def test_the_same_scan_with_an_error(golden: Path) -> None:
    with open(golden / "recordio" / "none_bad_crc.recordio", "rb") as file:
        scanner = recordio.new_scanner(file, recordio.load_index(file), 8, 4)
        found = []
        while scanner.scan():
            found.append(scanner.record())
        assert len(found) == 2
        error = scanner.error()
        assert isinstance(error, RuntimeError)
        assert str(error).startswith("Checksum checking failed\n")


def test_the_binding_writes_indexes_and_scans() -> None:
    writer = recordio.Writer("a.recordio")
    for record in RECORDS:
        writer.write(record)
    writer.close()
    index = recordio.Index("a.recordio")
    assert index.num_records() == 3
    scanner = recordio.Scanner("a.recordio", 1, 1, index)
    assert scanner.record() == b"World,"
    assert scanner.record() is None
    scanner.close()
    index.close()


def test_the_names_of_the_binding_and_of_the_go_library_are_there() -> None:
    assert {"Writer", "Index", "Scanner"} <= set(recordio.__all__)
    assert (recordio.NO_COMPRESSION, recordio.SNAPPY, recordio.GZIP) == (0, 1, 2)
    for name in recordio.__all__:
        assert name.isupper() or inspect.getdoc(getattr(recordio, name))


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (recordio.Writer, ["path"]),
        (recordio.Index, ["path"]),
        (recordio.Scanner, ["path", "start=0", "len=-1", "index=None"]),
        (recordio.new_writer, ["file", "max_chunk_size=-1", "compressor=-1"]),
        (recordio.load_index, ["file"]),
        (recordio.new_scanner, ["file", "index=None", "start=0", "length=-1"]),
        (recordio.FileList, ["paths"]),
        (recordio.FileListScanner, ["file_list", "start=0", "length=-1"]),
    ],
)
def test_signatures(function: type, parameters: list[str]) -> None:
    found = inspect.signature(function).parameters.values()
    assert [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in found] == parameters
