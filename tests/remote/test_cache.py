"""`cache=`: what was read once comes from a local folder, and is right whatever happens to the folder."""

from __future__ import annotations

import os
import pickle
import random
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import _core
from obstore.store import MemoryStore

from .files import bytes_of
from .places import Place
from .servers import Played, faults

BLOCK = 1 << 20
ON_DISK = BLOCK + 4096
FORMATS = {"ffrecord": ".ffr", "array_record": ".array_record", "recordio": ".recordio", "tfrecord": ".tfrecord"}
RECORDS = [random.Random(number).randbytes(9000 + number) for number in range(500)]
"""About 4.6 MB."""

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")


def file_of(format: str = "ffrecord") -> bytes:
    return bytes_of(format, RECORDS)


def blocks_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def read_everyhow(records: anyrecord.Records) -> None:
    """All ways to read give the right records."""
    order = random.Random(1).sample(range(len(RECORDS)), len(RECORDS))
    assert [records[number] for number in order[:100]] == [RECORDS[number] for number in order[:100]]
    assert records[order] == [RECORDS[number] for number in order]
    assert list(records) == RECORDS
    assert [record for batch in records.batches(64) for record in batch] == RECORDS
    assert records.read_packed(order).tolist() == [RECORDS[number] for number in order]
    assert [bytes(records.buffer(number)) for number in range(0, 500, 17)] == RECORDS[::17]
    assert sorted(records.shuffle(seed=3)) == sorted(RECORDS)
    out = bytearray(sum(map(len, RECORDS)))
    records.read_into(out, range(len(RECORDS)))
    assert bytes(out) == b"".join(RECORDS)


@pytest.mark.parametrize("format", FORMATS)
def test_the_second_epoch_needs_no_server(format: str, tmp_path: Path) -> None:
    name = f"a{FORMATS[format]}"
    with Played({name: file_of(format)}) as server:
        records = anyrecord.open(server.url(name), storage=server.storage, cache=tmp_path / "cache", cache_bytes=0)
        read_everyhow(records)
        before, stats = server.requests, records.stats()
        read_everyhow(records)
        assert server.requests == before == records.stats().requests
        assert records.stats().cache_hits > stats.cache_hits
        assert records.stats().cache_misses == stats.cache_misses > 0
        assert records.stats().cache_bytes > stats.cache_bytes
        # Another process, or the next run: only the version of the object is asked for, and a side index.
        server.clear()
        again = anyrecord.open(server.url(name), storage=server.storage, cache=tmp_path / "cache")
        read_everyhow(again)
        assert all(entry.bytes <= 128 << 10 for entry in server.log)
        assert len(server.log) <= 2
        assert again.stats().cache_misses == 0


def test_every_place_can_be_cached(place: Place, tmp_path: Path) -> None:
    place.put("cached/a.ffr", file_of())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = anyrecord.open(place.path("cached/a.ffr"), storage=place.storage, cache=tmp_path / "cache")
        for _ in range(2):
            assert list(records) == RECORDS
    if caught:  # said once, and read as without a cache
        assert len(caught) == 1
        assert caught[0].category is RuntimeWarning
        assert "cache= has no effect" in str(caught[0].message) or "is not cached" in str(caught[0].message)
        assert records.stats().cache_hits == records.stats().cache_misses == 0
    else:
        assert records.stats().cache_misses > 0
        assert records.stats().cache_hits >= len(RECORDS)


def test_a_replaced_object_never_mixes_with_the_old_one(tmp_path: Path) -> None:
    with Played({"a.ffr": file_of()}) as server:
        keywords: Any = {"storage": server.storage, "cache": tmp_path / "cache"}
        old = anyrecord.open(server.url("a.ffr"), **keywords)
        assert old[0] == RECORDS[0]
        server.put("a.ffr", bytes_of("ffrecord", [record[::-1] for record in RECORDS]))
        new = anyrecord.open(server.url("a.ffr"), **keywords)
        assert list(new) == [record[::-1] for record in RECORDS]
        # What the old reader has is of the old object. What it lacks cannot be had any more.
        assert old[0] == RECORDS[0]
        with pytest.raises(anyrecord.errors.FormatError, match="changed"):
            list(old)
        server.put("a.ffr", file_of())
        assert list(anyrecord.open(server.url("a.ffr"), **keywords)) == RECORDS


def test_the_same_name_on_another_server_is_another_object(tmp_path: Path) -> None:
    for turn in range(2):
        for shift in (0, 1):
            records = [bytes(byte ^ shift for byte in record) for record in RECORDS[:50]]
            with Played({"a.ffr": bytes_of("ffrecord", records)}) as server:
                found = anyrecord.open(server.url("a.ffr"), storage=server.storage, cache=tmp_path / "cache")
                assert list(found) == records, (turn, shift)


def test_a_web_server_without_versions_is_not_cached(tmp_path: Path) -> None:
    with Played({"a.ffr": file_of()}, protocol="http") as server:
        server.play(faults.headers(**{"etag": None, "last-modified": None}))
        with pytest.warns(RuntimeWarning, match="is not cached"):
            records = anyrecord.open(server.url("a.ffr"), cache=tmp_path / "cache")
        assert list(records) == RECORDS


def test_local_files_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.ffr").write_bytes(file_of())
    records = anyrecord.open(tmp_path / "a.ffr", cache=tmp_path / "cache")
    read_everyhow(records)
    assert not (tmp_path / "cache").exists()
    assert records.stats().cache_hits == records.stats().cache_misses == 0


def test_a_store_that_python_reads_is_not_cached_and_says_so(tmp_path: Path) -> None:
    store = MemoryStore()
    store.put("a.ffr", file_of())
    with pytest.warns(RuntimeWarning, match="cache= has no effect on files of this MemoryStore"):
        records = anyrecord.open("a.ffr", storage=store, cache=tmp_path / "cache")
    assert list(records) == RECORDS


def test_the_folder_is_for_this_user_only_and_a_pickle_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _core.put_object("memory://cached/a.ffr", file_of(), [])
    records = anyrecord.open("memory://cached/a.ffr", cache="below/cache", cache_folder_bytes=100 * BLOCK)
    assert list(records) == RECORDS
    assert stat.S_IMODE(os.stat("below/cache").st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in blocks_in(tmp_path / "below/cache"))
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(records))
    assert list(copy) == RECORDS
    assert copy.stats().cache_misses == 0
    assert copy.stats().cache_hits > 0


def test_folder_takes_the_keywords(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "cat.txt").write_bytes(b"miaow")
    anyrecord.pack(tmp_path / "pets", tmp_path / "pets.ffr")
    _core.put_object("memory://cached/pets.ffr", (tmp_path / "pets.ffr").read_bytes(), [])
    folder = anyrecord.Folder("memory://cached/pets.ffr", cache=tmp_path / "cache", cache_folder_bytes=50 * BLOCK)
    assert folder["cat.txt"] == b"miaow"
    assert blocks_in(tmp_path / "cache")


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"cache": 5}, TypeError, "takes the path of a folder"),
        ({"cache": ""}, ValueError, "path of a local folder"),
        ({"cache": "s3://bucket/cache"}, ValueError, "path of a local folder"),
        ({"cache_folder_bytes": 1 << 30}, ValueError, "needs cache="),
        ({"cache": "c", "cache_folder_bytes": BLOCK}, ValueError, "cache_folder_bytes"),
        ({"cache": "c", "cache_folder_bytes": "1"}, TypeError, "cache_folder_bytes"),
        ({"cache": "/dev/null/c"}, OSError, "cache"),
    ],
)
def test_a_wrong_keyword_is_named(keywords: dict[str, Any], error: type[Exception], text: str) -> None:
    _core.put_object("memory://cached/a.ffr", file_of(), [])
    with pytest.raises(error, match=text):
        anyrecord.open("memory://cached/a.ffr", **keywords)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_the_limit_is_held_and_everything_can_be_read(blocks: int, tmp_path: Path) -> None:
    _core.put_object("memory://cached/a.ffr", file_of(), [])
    folder = tmp_path / "cache"
    records = anyrecord.open("memory://cached/a.ffr", cache=folder, cache_folder_bytes=blocks * ON_DISK)
    order = random.Random(2).sample(range(500), 500)
    for begin in range(0, 500, 20):
        numbers = order[begin : begin + 20]
        assert records[numbers] == [RECORDS[number] for number in numbers]
        assert sum(path.stat().st_blocks * 512 for path in folder.iterdir()) <= blocks * ON_DISK + 4096
    read_everyhow(records)
    assert len(blocks_in(folder)) <= blocks


def test_what_is_used_stays_and_what_is_not_used_goes(tmp_path: Path) -> None:
    """The time of the last use decides, whichever process used it."""
    _core.put_object("memory://cached/a.ffr", file_of(), [])
    records = anyrecord.open("memory://cached/a.ffr", cache=tmp_path, cache_folder_bytes=5 * ON_DISK)
    for number in range(0, 430, 20):
        assert records[number] == RECORDS[number]
    names = {path.name.rpartition(".")[2]: path for path in blocks_in(tmp_path)}
    assert set(names) == {"0", "1", "2", "3"}
    for block, second in (("0", 4000), ("1", 1000), ("2", 3000), ("3", 2000)):
        os.utime(names[block], (second, second))
    _core.put_object("memory://cached/b.ffr", bytes_of("ffrecord", RECORDS[:200]), [])
    other = anyrecord.open("memory://cached/b.ffr", cache=tmp_path, cache_folder_bytes=5 * ON_DISK)
    assert list(other) == RECORDS[:200]
    left = {path.name.rpartition(".")[2] for path in blocks_in(tmp_path) if path in names.values()}
    assert left <= {"0", "2", "3"}
    assert "0" in left


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def replace_with(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "cut inside a page": lambda path: os.truncate(path, path.stat().st_size - 100),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "deleted": Path.unlink,
    "a link": replace_with(lambda path: path.symlink_to("/etc/hostname")),
    "a broken link": replace_with(lambda path: path.symlink_to("nowhere")),
    "a folder": replace_with(Path.mkdir),
    "a pipe": replace_with(os.mkfifo),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(os.system)),
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("format", FORMATS)
def test_damaged_blocks_are_fetched_again(how: str, format: str, tmp_path: Path) -> None:
    name = f"memory://cached/damaged{FORMATS[format]}"
    _core.put_object(name, file_of(format), [])
    before = anyrecord.open(name, cache=tmp_path)
    read_everyhow(before)
    for path in blocks_in(tmp_path):
        DAMAGES[how](path)
    after = anyrecord.open(name, cache=tmp_path)
    read_everyhow(after)
    assert after.stats().cache_misses > 0
    assert after.stats().cache_damaged > 0 or how in ("deleted", "a link", "a broken link", "a folder", "a pipe")
    read_everyhow(before)  # which has the blocks mapped
    again = anyrecord.open(name, cache=tmp_path)
    read_everyhow(again)
    assert again.stats().cache_misses == 0 or how == "a folder"


def test_blocks_of_one_object_under_the_names_of_another_are_not_used(tmp_path: Path) -> None:
    _core.put_object("memory://cached/a.ffr", file_of(), [])
    _core.put_object("memory://cached/b.ffr", bytes_of("ffrecord", [record[::-1] for record in RECORDS]), [])
    list(anyrecord.open("memory://cached/a.ffr", cache=tmp_path))
    of_a = blocks_in(tmp_path)
    list(anyrecord.open("memory://cached/b.ffr", cache=tmp_path))
    of_b = [path for path in blocks_in(tmp_path) if path not in of_a]
    for one, other in zip(of_a, of_b, strict=True):
        other.write_bytes(one.read_bytes())
    records = anyrecord.open("memory://cached/b.ffr", cache=tmp_path)
    assert list(records) == [record[::-1] for record in RECORDS]
    assert records.stats().cache_damaged == len(of_b)


def test_the_bytes_of_a_buffer_stay_when_its_block_is_deleted(tmp_path: Path) -> None:
    _core.put_object("memory://cached/a.ffr", file_of(), [])
    records = anyrecord.open("memory://cached/a.ffr", cache=tmp_path, cache_folder_bytes=2 * ON_DISK)
    assert records[3] == RECORDS[3]
    buffer = records.buffer(3)
    for _ in range(2):
        assert list(records) == RECORDS
    assert bytes(buffer) == RECORDS[3]
    buffer.release()
    read_everyhow(records)


def test_closed_records_release_the_blocks(tmp_path: Path) -> None:
    _core.put_object("memory://cached/a.ffr", file_of(), [])
    records = anyrecord.open("memory://cached/a.ffr", cache=tmp_path)
    assert list(records) == RECORDS
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path) in maps.read_text()
    records.close()
    if maps.exists():
        assert str(tmp_path) not in maps.read_text()
    with pytest.raises(anyrecord.errors.ClosedError):
        records[0]
