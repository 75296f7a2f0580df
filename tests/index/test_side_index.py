"""A side index is used where it fits, ignored where it does not, and never changes what is read."""

from __future__ import annotations

import os
import pickle
import shutil
import zlib
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError, FormatError

RECORDS = [b"%d:" % number + bytes(number % 50) for number in range(2000)]
INDEXED: dict[str, dict[str, Any]] = {
    ".tfrecord": {},
    ".recordio": {"codec": "none", "chunk_bytes": 200},
}
"""Options that make many chunks."""


@pytest.fixture(params=sorted(INDEXED))
def path(request: pytest.FixtureRequest) -> Path:
    """A file of many chunks, whose format keeps no table."""
    made = Path(f"data{request.param}")
    with anyrecord.create(made, durable=False, **INDEXED[request.param]) as out:
        out.write_many(RECORDS)
    return made


def index_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.index")


def header_to_damage(path: Path) -> int:
    """A byte of a header in the middle, which is not among the few that are compared with the index."""
    data = path.read_bytes()
    middle = len(data) // 2
    if path.suffix == ".recordio":
        return data.index(b"\4\3\2\1", middle)
    record = next(record for record in RECORDS[1000:] if len(record) > 40)
    return data.index(record) - 5


def test_an_index_lies_hidden_beside_the_data_and_is_small(path: Path) -> None:
    assert anyrecord.build_index(path) == [str(index_of(path))]
    assert index_of(path).stat().st_size < path.stat().st_size / 10
    assert list(anyrecord.open(path)) == RECORDS
    # Neither a folder nor a glob takes it for data.
    assert anyrecord.open(".").paths == [f"./{path}"]
    assert anyrecord.open("*").paths == [str(path)]


def test_opening_with_an_index_does_not_go_through_the_headers(path: Path) -> None:
    anyrecord.build_index(path)
    data = bytearray(path.read_bytes())
    data[header_to_damage(path)] ^= 0xFF
    path.write_bytes(data)
    records = anyrecord.open(path)
    assert len(records) == len(RECORDS)
    assert (records[0], records[-1]) == (RECORDS[0], RECORDS[-1])
    with pytest.raises(FormatError) as caught:
        list(records)
    assert caught.value.record is not None
    index_of(path).unlink()
    with pytest.raises(FormatError):
        anyrecord.open(path)
    # What is not read from a path has no index beside it.
    with pytest.raises(FormatError):
        anyrecord.open(bytes(data))


def test_an_index_that_fits_is_kept_and_one_that_does_not_is_made_anew(path: Path) -> None:
    anyrecord.build_index(path)
    before = index_of(path).stat()
    anyrecord.build_index(path)
    assert index_of(path).stat() == before
    with anyrecord.create(path, overwrite=True, **INDEXED[path.suffix]) as out:
        out.write_many(RECORDS[:1500])
    assert list(anyrecord.open(path)) == RECORDS[:1500]
    assert index_of(path).stat() == before, "opening never writes"
    anyrecord.build_index(path)
    assert index_of(path).stat().st_ino != before.st_ino
    assert list(anyrecord.open(path)) == RECORDS[:1500]


def test_data_of_the_same_size_with_other_headers_is_noticed(path: Path) -> None:
    anyrecord.build_index(path)
    size = path.stat().st_size
    turned = RECORDS[::-1]
    with anyrecord.create(path, overwrite=True, **INDEXED[path.suffix]) as out:
        out.write_many(turned)
    if path.suffix == ".tfrecord":
        assert path.stat().st_size == size
    assert list(anyrecord.open(path)) == turned


def test_every_damaged_byte_of_an_index_is_ignored(path: Path) -> None:
    anyrecord.build_index(path)
    index = index_of(path).read_bytes()
    for offset in [*range(60), *range(60, len(index), 37), *range(len(index) - 8, len(index))]:
        for value in (index[offset] ^ 1, index[offset] ^ 0x80, 0xFF):
            index_of(path).write_bytes(index[:offset] + bytes([value]) + index[offset + 1 :])
            assert anyrecord.open(path)[[0, 700, 1999]] == [RECORDS[0], RECORDS[700], RECORDS[1999]]
    for size in [*range(60), len(index) // 2, len(index) - 1]:
        index_of(path).write_bytes(index[:size])
        assert len(anyrecord.open(path)) == len(RECORDS)


def with_checksum(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "little")


def test_a_forged_index_with_a_right_checksum_gives_errors_or_the_right_records(path: Path) -> None:
    anyrecord.build_index(path)
    body = index_of(path).read_bytes()[:-4]
    for offset in range(20, len(body), 29):
        index_of(path).write_bytes(with_checksum(body[:offset] + bytes([body[offset] ^ 3]) + body[offset + 1 :]))
        records = anyrecord.open(path)
        assert len(records) <= 2 * len(RECORDS)
        for number in range(0, len(records), 97):
            try:
                found = records[number]
            except FormatError:
                continue
            assert found in RECORDS, "a record of the file, if not the one of that number"


@pytest.mark.parametrize("kind", ["folder", "fifo", "device", "dangling link", "unreadable", "huge", "zeros", "text"])
def test_what_is_no_index_is_ignored(path: Path, kind: str) -> None:
    index = index_of(path)
    match kind:
        case "folder":
            index.mkdir()
        case "fifo":
            os.mkfifo(index)
        case "device":
            index.symlink_to("/dev/zero")
        case "dangling link":
            index.symlink_to("nowhere")
        case "unreadable":
            index.write_bytes(b"")
            index.chmod(0)
        case "huge":
            index.touch()
            os.truncate(index, 1 << 40)
        case "zeros":
            index.write_bytes(bytes(100))
        case "text":
            index.write_text("not an index")
    assert list(anyrecord.open(path)) == RECORDS


def test_an_index_of_another_file_is_ignored(path: Path) -> None:
    other = Path(f"other{path.suffix}")
    with anyrecord.create(other, **INDEXED[path.suffix]) as out:
        out.write_many(RECORDS[5:])
    anyrecord.build_index(other)
    shutil.move(index_of(other), index_of(path))
    assert list(anyrecord.open(path)) == RECORDS


def test_many_files_get_one_each_and_progress_counts_their_bytes() -> None:
    for number in range(5):
        with anyrecord.create(f"{number}.tfrecord") as out:
            out.write(b"%d" % number)
    sizes = [os.path.getsize(f"{number}.tfrecord") for number in range(5)]
    calls: list[tuple[int, int]] = []
    found = anyrecord.build_index("*.tfrecord", progress=lambda done, total: calls.append((done, total)))
    assert found == [f".{number}.tfrecord.index" for number in range(5)]
    assert calls == [(sum(sizes[: number + 1]), sum(sizes)) for number in range(5)]
    assert list(anyrecord.open("*.tfrecord")) == [b"%d" % number for number in range(5)]


def test_formats_with_a_table_and_compressed_streams_get_none() -> None:
    names = ["a.ffr", "b.array_record", "c.tfrecord.gz"]
    for name in names:
        options: Any = {"codec": "gzip"} if name.endswith(".gz") else {}
        with anyrecord.create(name, **options) as out:
            out.write(b"x")
    assert anyrecord.build_index(names) == []
    assert sorted(os.listdir()) == names


def test_an_empty_file_has_an_index_too(path: Path) -> None:
    path.write_bytes(b"")
    assert anyrecord.build_index(path) == [str(index_of(path))]
    assert list(anyrecord.open(path)) == []


def test_a_damaged_file_gets_no_index(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(FormatError) as caught:
        anyrecord.build_index(path)
    assert caught.value.path == str(path)
    assert os.listdir() == [str(path)]


def test_pickled_records_use_the_index_when_they_open_their_files(path: Path) -> None:
    anyrecord.build_index(path)
    records = pickle.loads(pickle.dumps(anyrecord.open(path)[100:200]))
    assert list(records) == RECORDS[100:200]


class Counting:
    """A file object that counts the bytes it gives."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.given = data, 0, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, len(self.data))[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, size: int = -1) -> bytes:
        found = self.data[self.at :][: size if size >= 0 else None]
        self.at += len(found)
        self.given += len(found)
        return found


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip"])
def test_a_range_of_records_reads_only_the_chunks_it_needs(codec: Any) -> None:
    records = [os.urandom(20_000) for _ in range(200)]
    with anyrecord.create("a.recordio", codec=codec, chunk_bytes=100_000) as out:
        out.write_many(records)
    file = Counting(Path("a.recordio").read_bytes())
    opened = anyrecord.open(file)  # type: ignore[arg-type]
    assert file.given < 200_000, "40 headers, and what was looked at to know the format"
    before = file.given
    assert list(opened[101:103]) == records[101:103]
    assert file.given - before < 110_000, "one chunk of five records"
    # Damage elsewhere is nobody's business.
    damaged = bytearray(file.data)
    for at in range(30, len(damaged) // 4, 1000):
        damaged[at] ^= 1
    chunk = file.data.rindex(b"\4\3\2\1")
    damaged[chunk + 50] ^= 1
    Path("b.recordio").write_bytes(headers_kept(bytes(damaged), file.data))
    assert list(anyrecord.open("b.recordio[100:150]")) == records[100:150]
    anyrecord.convert("b.recordio[100:150]", "c.tfrecord")
    assert list(anyrecord.open("c.tfrecord")) == records[100:150]
    with pytest.raises(ChecksumError):
        anyrecord.convert("b.recordio", "d.tfrecord")


def headers_kept(damaged: bytes, whole: bytes) -> bytes:
    """The damaged bytes with all headers as they were."""
    kept, at = bytearray(damaged), 0
    while at < len(whole):
        kept[at : at + 20] = whole[at : at + 20]
        at += 20 + int.from_bytes(whole[at + 12 : at + 16], "little")
    return bytes(kept)
