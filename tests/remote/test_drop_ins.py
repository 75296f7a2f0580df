"""The drop-ins of the three originals read and write URLs, and their options take effect there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord.compat.array_record.python.array_record_data_source import ArrayRecordDataSource
from anyrecord.compat.array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from anyrecord.compat.ffrecord import FileReader, FileWriter, PackedFolder, pack_folder, utils
from anyrecord.compat.recordio import FileList, Index, Scanner, Writer

from .files import bytes_of
from .servers import Played

RECORDS = [b"%d" % i * 50 for i in range(40)]


def file_of(format: str, records: list[bytes] = RECORDS) -> bytes:
    return bytes_of(format, records)


@pytest.fixture(scope="module")
def server() -> Iterator[Played]:
    """A server whose keys are in the environment: the originals have no argument for them.

    There is one, because a process remembers the stores that it has made from the environment.
    """
    objects = {
        "a.array_record": file_of("array_record"),
        "b.array_record": file_of("array_record", RECORDS[:10]),
        "data/a.ffr": file_of("ffrecord"),
        "data/b.ffr": file_of("ffrecord", RECORDS[:10]),
        "a.recordio": file_of("recordio"),
        "b.recordio": file_of("recordio", RECORDS[:10]),
    }
    with Played(objects) as server, pytest.MonkeyPatch.context() as environment:
        for name, value in server.storage.items():
            environment.setenv(name.upper(), value)
        yield server


pytestmark = pytest.mark.filterwarnings("ignore:opening searched")


def test_array_record_reader(server: Played) -> None:
    reader = ArrayRecordReader(server.url("a.array_record"), "readahead_buffer_size:1MB,max_parallelism:2")
    assert reader.ok()
    assert (reader.num_records(), reader.read(), reader.read([7, 2])) == (40, RECORDS[0], [RECORDS[7], RECORDS[2]])
    assert reader.read_all() == RECORDS
    assert reader.writer_options_string()
    missing = ArrayRecordReader(server.url("missing.array_record"))
    assert not missing.ok()
    with pytest.raises(RuntimeError, match="there is no such object"):
        missing.read()


def test_writers_write_to_urls(server: Played) -> None:
    array_record = ArrayRecordWriter(server.url("new.array_record"), "group_size:2")
    recordio = Writer(server.url("new.recordio"))
    ffrecord = FileWriter(server.url("new.ffr"), len(RECORDS))
    for record in RECORDS:
        array_record.write(record)
        recordio.write(record)
        ffrecord.write_one(record)
    assert not [name for name in server.names() if name.startswith("new")]
    for writer in (array_record, recordio, ffrecord):
        writer.close()
    assert ArrayRecordReader(server.url("new.array_record")).read_all() == RECORDS
    assert list(Scanner(server.url("new.recordio"))) == RECORDS
    assert [sample.tobytes() for sample in FileReader(server.url("new.ffr")).read([*range(40)])] == RECORDS
    # As the originals do, they replace what is there.
    with FileWriter(server.url("new.ffr"), 1) as ffrecord:
        ffrecord.write_one(b"one")
    assert FileReader(server.url("new.ffr")).n == 1


def test_parts_of_a_data_set_and_packed_folders_are_written_to_urls(server: Played) -> None:
    utils.dump(RECORDS, server.url("dumped/all.ffr"), 1)
    utils.dump(RECORDS, server.url("parts"), 3)
    for name in ("dumped/all.ffr", "parts"):
        reader = FileReader(server.url(name))
        assert [sample.tobytes() for sample in reader.read([*range(40)])] == RECORDS
    with pytest.warns(UserWarning, match=r"contains other \.ffr files"):
        utils.dump(RECORDS, server.url("parts"), 2)
    os.makedirs("packed")
    with open("packed/one.txt", "w") as file:
        file.write("text")
    pack_folder("packed", server.url("new-packed.ffr"))
    assert PackedFolder(server.url("new-packed.ffr")).read("one.txt").tobytes() == b"text"


def test_a_scheme_that_nothing_writes_to_is_named() -> None:
    writer = ArrayRecordWriter("ftp://bucket/a.array_record")
    assert not writer.ok()
    with pytest.raises(RuntimeError, match='the scheme "ftp"'):
        writer.close()


def test_array_record_data_source(server: Played) -> None:
    a, b = server.url("a.array_record"), server.url("b.array_record")
    assert [*ArrayRecordDataSource([a, b])] == RECORDS + RECORDS[:10]
    part = ArrayRecordDataSource([f"{a}[10:20]", b], {"max_parallelism": 4, "readahead_buffer_size": "16MB"})
    assert (len(part), part[3], part.__getitems__([0, 19])) == (20, RECORDS[13], [RECORDS[10], RECORDS[9]])


def test_max_parallelism_bounds_the_requests_and_the_buffer_the_bytes(server: Played) -> None:
    from anyrecord.compat.array_record._options import reader_options

    assert reader_options("").storage == {}
    assert reader_options("max_parallelism:0").storage == {"max_requests": 1}
    assert reader_options("readahead_buffer_size:0").storage == {"readahead_bytes": 0, "max_bytes_in_flight": 1}
    one = ArrayRecordReader(server.url("a.array_record"), "max_parallelism:1")
    server.clear()
    assert one.read([0, 39]) == [RECORDS[0], RECORDS[39]]
    assert len({entry.connection for entry in server.log}) <= 1


def test_ffrecord_reader(server: Played) -> None:
    both = [server.url("data/a.ffr"), server.url("data/b.ffr")]
    sources: list[Any] = [both[0], server.url("data"), both]
    for source in sources:
        with FileReader(source) as reader:
            assert reader.read_one(3).tobytes() == RECORDS[3]
            assert [sample.tobytes() for sample in reader.read([5, 1])] == [RECORDS[5], RECORDS[1]]
            server.clear()
            reader.validate()
            assert server.requests == len(reader.fnames)  # only the tables
    assert reader.fnames == [server.url("data/a.ffr"), server.url("data/b.ffr")]
    with open("a.ffr", "wb") as file:
        file.write(file_of("ffrecord"))
    local = FileReader("a.ffr")
    assert np.array_equal(reader.get_offsets(0), local.get_offsets(0))
    assert np.array_equal(reader.get_checksums(0), local.get_checksums(0))
    with pytest.raises(RuntimeError, match="there is no such object"):
        FileReader(server.url("missing.ffr"))


def test_a_folder_is_listed_once_and_its_files_are_opened_once(server: Played) -> None:
    with FileReader(server.url("data")) as reader:
        assert reader.n == 50
    server.clear()
    with FileReader(server.url("data")):
        assert sorted(entry.key for entry in server.log) == ["", "data/a.ffr", "data/b.ffr"]


def test_a_folder_without_files_is_refused_as_by_the_original(server: Played) -> None:
    with pytest.raises(AssertionError, match=r"At least one \.ffr file as input"):
        FileReader(server.url("nothing"))


def test_ffrecord_packed_folder(server: Played) -> None:
    os.makedirs("folder")
    with open("folder/one.txt", "w") as file:
        file.write("text")
    anyrecord.pack("folder", "packed.ffr")
    with open("packed.ffr", "rb") as file:
        server.put("packed.ffr", file.read())
    assert PackedFolder(server.url("packed.ffr")).read("one.txt").tobytes() == b"text"
    assert anyrecord.Folder(server.url("packed.ffr"))["one.txt"] == b"text"
    anyrecord.unpack(server.url("packed.ffr"), "again")
    with open("again/one.txt") as file:
        assert file.read() == "text"


def test_recordio_scanner_index_and_list(server: Played) -> None:
    a, b = server.url("a.recordio"), server.url("b.recordio")
    index = Index(a)
    assert index.num_records() == 40
    assert list(Scanner(a, 3, 4, index)) == RECORDS[3:7]
    assert list(Scanner(b)) == RECORDS[:10]
    files = FileList([a, b, a])
    assert files.total_records() == 90
    assert files.locate(45) == (1, *index.locate(5))
    with pytest.raises(RuntimeError, match="there is no such object"):
        Scanner(server.url("missing.recordio"))
