"""A file of another format, opened through a drop-in: the error names its format, in the original's exception type."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat import ffrecord, recordio
from anyrecord.compat.array_record.python import array_record_data_source, array_record_module
from turns import turn

SUFFIXES = {
    "array_record": [".array_record", ".arrayrecord"],
    "ffrecord": [".ffr"],
    "recordio": [".recordio"],
    "tfrecord": [".tfrecord", ".tfrecord.gz", ".tfrecord.zlib"],
}


def reader(path: Path) -> Any:
    found = array_record_module.ArrayRecordReader(str(path))
    assert not found.ok()
    assert found.num_records() == 0
    return found


def source(*paths: object) -> array_record_data_source.ArrayRecordDataSource:
    return array_record_data_source.ArrayRecordDataSource(list(paths))  # type: ignore[arg-type]


def as_ffr(path: Path) -> Path:
    return path.rename(path.with_name(f"{path.name}.ffr"))


def in_folder(path: Path) -> Path:
    folder = path.parent / "folder"
    folder.mkdir()
    path.rename(folder / path.name)
    return folder


def opened(path: Path) -> io.BytesIO:
    return io.BytesIO(path.read_bytes())


OPENERS: dict[str, dict[str, tuple[type[Exception], Callable[[Path], object]]]] = {
    "array_record": {
        "reader.read": (RuntimeError, lambda path: reader(path).read()),
        "reader.read_list": (RuntimeError, lambda path: reader(path).read([0])),
        "reader.read_range": (IndexError, lambda path: reader(path).read(0, 1)),
        "reader.read_all": (RuntimeError, lambda path: reader(path).read_all()),
        "reader.seek": (RuntimeError, lambda path: reader(path).seek(1)),
        "reader.close": (RuntimeError, lambda path: reader(path).close()),
        "source": (RuntimeError, lambda path: source(path)),
        "source.range": (RuntimeError, lambda path: source(f"{path}[0:2]")[1]),
        "source.ranges": (RuntimeError, lambda path: source(f"{path}[0:2]").__getitems__([1, 0])),
        "source.both": (RuntimeError, lambda path: source(path, f"{path}[0:2]")),
    },
    "ffrecord": {
        "reader": (RuntimeError, lambda path: ffrecord.FileReader(as_ffr(path))),
        "reader.list": (RuntimeError, lambda path: ffrecord.FileReader([as_ffr(path)])),
        "reader.unchecked": (RuntimeError, lambda path: ffrecord.FileReader(as_ffr(path), check_data=False)),
        "reader.suffix": (AssertionError, lambda path: ffrecord.FileReader(path)),
        "reader.folder": (AssertionError, lambda path: ffrecord.FileReader(in_folder(path))),
        "reader.folder_of_ffr": (RuntimeError, lambda path: ffrecord.FileReader(in_folder(as_ffr(path)))),
        "packed": (RuntimeError, lambda path: ffrecord.PackedFolder(as_ffr(path))),
        "packed.suffix": (AssertionError, lambda path: ffrecord.PackedFolder(path)),
    },
    "recordio": {
        "index": (RuntimeError, lambda path: recordio.Index(path)),
        "scanner": (RuntimeError, lambda path: recordio.Scanner(path)),
        "load_index": (RuntimeError, lambda path: recordio.load_index(path.open("rb"))),
        "load_index.memory": (RuntimeError, lambda path: recordio.load_index(opened(path))),
        "new_scanner": (RuntimeError, lambda path: recordio.new_scanner(path.open("rb"))),
        "new_scanner.memory": (RuntimeError, lambda path: recordio.new_scanner(opened(path))),
        "filelist": (RuntimeError, lambda path: recordio.FileList([path])),
    },
}


def other_files(drop_in: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Files of every format but one, small and larger ones, each in a folder of its own."""
    for format, suffixes in SUFFIXES.items():
        for suffix in suffixes if format != drop_in else []:
            for records in (1, 300):
                path = folder / f"{records}{suffix}" / f"train{suffix}"
                path.parent.mkdir()
                with anyrecord.create(path, durable=False) as out:
                    out.write_many(b"record %d" % number * 50 for number in range(records))
                yield format, path


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of files that the error keeps open until it is gone
@pytest.mark.parametrize(("drop_in", "name"), [(drop_in, name) for drop_in in OPENERS for name in OPENERS[drop_in]])
def test_the_error_names_the_format(tmp_path: Path, drop_in: str, name: str) -> None:
    kind, act = OPENERS[drop_in][name]
    for format, path in other_files(drop_in, tmp_path):
        with turn(path):
            with pytest.raises(kind) as caught:
                act(path)
            assert f": expected {drop_in}, found {format}; " in str(caught.value)
            assert "wrong format in " in str(caught.value)
    del caught
    gc.collect()  # closes the files that errors kept open, while the warning about that is ignored


def error_of_open(path: Path, format: str) -> str:
    try:
        anyrecord.open(path, format=format)
    except anyrecord.RecordError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("format", SUFFIXES)
def test_damage_of_a_file_of_the_right_format_is_told_as_before(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"train{SUFFIXES[format][0]}"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"record %d" % number for number in range(300))
    whole = path.read_bytes()
    for keep in (0, 1, 5, 11, 12, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        for asked in (format, "riegeli") if format == "array_record" else (format,):
            assert "wrong format" not in error_of_open(path, asked)


@pytest.mark.parametrize("content", [bytes(100_000), b"text of no format\n" * 5000, b"\xff" * 100_000])
@pytest.mark.parametrize("asked", [*SUFFIXES, "riegeli"])
def test_a_file_of_no_format_is_given_no_name(tmp_path: Path, asked: str, content: bytes) -> None:
    for name in ("train.array_record", "train.recordio", "train.tfrecord", "train"):
        path = tmp_path / name
        path.write_bytes(content)
        error = error_of_open(path, asked)
        assert error
        assert "wrong format" not in error
