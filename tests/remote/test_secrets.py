"""No error, warning or listing of paths shows the login or the signature of a URL."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyrecord
import fsspec
import pytest
from anyrecord import _core
from anyrecord._locations import is_url, redacted, shown
from anyrecord.compat.array_record.python.array_record_data_source import ArrayRecordDataSource
from anyrecord.compat.array_record.python.array_record_module import ArrayRecordReader
from anyrecord.compat.ffrecord import FileReader, PackedFolder
from anyrecord.compat.recordio import FileList, Index, Scanner

from .files import bytes_of
from .servers import Played, faults

RECORDS = [b"%d" % i * 50 for i in range(40)]


def file_of(format: str) -> bytes:
    return bytes_of(format, RECORDS)


@pytest.fixture(scope="module")
def server() -> Iterator[Played]:
    damaged = bytearray(file_of("ffrecord"))
    damaged[-1] ^= 1
    objects = {f"a.{format}": file_of(format) for format in ("ffrecord", "array_record", "recordio")}
    with Played({**objects, "damaged.ffr": bytes(damaged), "a.ffr": objects["a.ffrecord"]}, protocol="http") as server:
        yield server


def all_of(error: BaseException) -> str:
    """Everything that an error says: its text, its attributes, its causes."""
    text = "".join(traceback.format_exception(error, chain=True))
    causes = [error, error.__cause__, None if error.__suppress_context__ else error.__context__]
    return text + "".join(f"{cause!r} {vars(cause)} {getattr(cause, 'filename', '')}" for cause in causes if cause)


def source(url: str) -> Any:
    return ArrayRecordDataSource([url])


READS: dict[str, tuple[Callable[[str], object], str]] = {
    "Scanner": (Scanner, "missing.recordio"),
    "Scanner of another format": (Scanner, "a.ffr"),
    "Index": (Index, "missing.recordio"),
    "Index of another format": (Index, "a.ffr"),
    "FileList": (lambda url: FileList([url]), "missing.recordio"),
    "FileReader": (FileReader, "missing.ffr"),
    "FileReader of a list": (lambda url: FileReader([url]), "missing.ffr"),
    "FileReader of another name": (lambda url: FileReader([url]), "missing.txt"),
    "FileReader of a folder": (FileReader, "missing"),
    "FileReader of damage": (lambda url: FileReader(url).read_one(39), "damaged.ffr"),
    "PackedFolder": (PackedFolder, "missing.ffr"),
    "PackedFolder of records": (PackedFolder, "a.ffr"),
    "ArrayRecordReader": (lambda url: ArrayRecordReader(url).read(), "missing.array_record"),
    "ArrayRecordDataSource": (source, "missing.array_record"),
    "ArrayRecordDataSource beyond": (lambda url: source(f"{url}[200:300]")[0], "a.array_record"),
    "ArrayRecordDataSource range": (lambda url: source(f"{url}[3:2]"), "a.array_record"),
    "ArrayRecordDataSource range missing": (lambda url: source(f"{url}[2:3]")[0], "missing.array_record"),
    "open": (anyrecord.open, "missing.ffr"),
    "open of damage": (lambda url: anyrecord.open(url)[39], "damaged.ffr"),
    "open a path": (lambda url: anyrecord.open(Path(url)), "a.ffr"),
    "Scanner of a path": (lambda url: Scanner(Path(url)), "a.recordio"),
    "FileReader of a path": (lambda url: FileReader(Path(url)), "a.ffr"),
    "data source of a path": (lambda url: ArrayRecordDataSource([Path(url)]), "a.array_record"),
    "a slash too few": (lambda url: anyrecord.open(url.replace("//", "/", 1)), "a.ffr"),
    "create at a path": (lambda url: anyrecord.create(Path(url)), "a.ffr"),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("scheme", ["http", "hdfs"])
@pytest.mark.filterwarnings("always")
def test_no_error_shows_a_secret(server: Played, name: str, scheme: str) -> None:
    if (name, scheme) == ("a slash too few", "hdfs"):
        return  # the name of a local file
    read, key = READS[name]
    url = f"{scheme}://me:hidden@127.0.0.1:{server.port}/{key}?signature=hidden"
    with warnings.catch_warnings(record=True) as caught, pytest.raises(Exception) as raised:
        read(url)
    assert "hidden" not in all_of(raised.value)
    assert "hidden" not in " ".join(str(warning.message) for warning in caught)


FILE_SYSTEM_FAULTS = {"404": faults.not_found(), "403": faults.access_denied(), "500": faults.internal_error()}


@pytest.mark.parametrize("name", FILE_SYSTEM_FAULTS)
def test_no_error_of_a_file_system_shows_a_secret(server: Played, name: str) -> None:
    fs = fsspec.filesystem("http", skip_instance_cache=True)
    url = f"http://me:hidden@127.0.0.1:{server.port}/a.ffr?signature=hidden"
    records = anyrecord.open(url, storage=fs)
    assert records.paths == [f"http://127.0.0.1:{server.port}/a.ffr"]
    assert "hidden" not in repr(records) + str(anyrecord.info(url, storage=fs))
    server.play(FILE_SYSTEM_FAULTS[name])
    try:
        for act in (lambda: anyrecord.open(url, storage=fs), lambda: records[3], lambda: list(records)):
            with pytest.raises(OSError, match=r"http://127\.0\.0\.1:[0-9]*/a\.ffr") as raised:
                act()
            assert "hidden" not in all_of(raised.value)
    finally:
        server.clear()


SHOWN = {
    "http://me:p@ss@host/a.ffr?x": "http://host/a.ffr",
    "http://me:pa/ss@host/a.ffr?x": "http://host/a.ffr",
    "http://me:pa?ss@host:1/a.ffr": "http://host:1/a.ffr",
    "http://host:80/a@2.ffr": "http://host:80/a@2.ffr",
    "http://[::1]:80/a@2.ffr#x": "http://[::1]:80/a@2.ffr",
    "hdfs://me:pass@host/a?pass": "hdfs://host/a",
    "s3://key:secret@bucket/a?b@2": "s3://bucket/a?b@2",
    "s3://key:sec/ret@bucket/a@2": "s3://2",
    "abfss://files@account.dfs.core.windows.net/a": "abfss://files@account.dfs.core.windows.net/a",
    "a.ffr?x": "a.ffr?x",
}


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    assert {url: shown(url) for url in SHOWN} == SHOWN
    assert redacted("x url=URL('http://me:a@h/b?c'), 'hdfs://d@h/e' f") == "x url=URL('http://h/b'), 'hdfs://h/e' f"


def test_the_core_and_the_package_agree_on_what_a_url_is() -> None:
    for text in ("s3://a/b", "a+b-c.d://a", "S3://b", "a.ffr", "/a://b", "://b", "1a://b", "a b://c", "c:\\a", "C://a"):
        try:
            found = _core.check_url(text) is not None
        except ValueError:
            found = True
        assert is_url(text) == found, text
