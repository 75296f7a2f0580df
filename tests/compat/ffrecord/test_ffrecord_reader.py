"""`FileReader`, call by call."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord.compat.ffrecord import FileReader, FileWriter, checkFsAlign

SAMPLES = [b"zero", b"", b"two" * 1000, b"three", b"\xff\x00", b"five"]


def write(path: Path, samples: list[bytes]) -> Path:
    with FileWriter(path, len(samples)) as writer:
        for sample in samples:
            writer.write_one(sample)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.ffr", SAMPLES)


@pytest.fixture
def reader(path: Path) -> FileReader:
    return FileReader(path)


def test_attributes_are_read_only(reader: Any, path: Path) -> None:
    assert (reader.n, reader.fnames, reader.check_data) == (6, [str(path)], True)
    for name in ("n", "fnames", "check_data"):
        with pytest.raises(AttributeError):
            setattr(reader, name, None)
    for name in ("__len__", "__getitem__", "__iter__"):
        assert not hasattr(reader, name)


def test_arrays_own_their_memory_and_survive_close(reader: FileReader) -> None:
    one, many = reader.read_one(2), reader.read([2, 1, 2])
    reader.close()
    for sample in (one, *many):
        assert sample.dtype == np.uint8
        assert sample.ndim == 1
        assert sample.flags.owndata
        assert sample.flags.writeable
        assert sample.flags.c_contiguous
    assert many[1].shape == (0,)
    many[0][:] = 0
    assert many[2].tobytes() == one.tobytes() == SAMPLES[2]


INDICES: dict[str, Callable[[], Any]] = {
    "list": lambda: [3, 0, 3],
    "tuple": lambda: (3, 0, 3),
    "generator": lambda: (i for i in (3, 0, 3)),
    "int64": lambda: np.array([3, 0, 3]),
    "uint8": lambda: np.array([3, 0, 3], np.uint8),
    "numpy ints": lambda: [np.int32(3), np.uint64(0), 3],
    "bools": lambda: [3, False, 3],
}


@pytest.mark.parametrize("kind", INDICES)
def test_indices_of_every_kind(reader: FileReader, kind: str) -> None:
    found = reader.read(INDICES[kind]())
    assert isinstance(found, list)
    assert [bytes(sample) for sample in found] == [SAMPLES[3], SAMPLES[0], SAMPLES[3]]


def test_ranges_sets_and_nothing(reader: FileReader) -> None:
    assert [bytes(sample) for sample in reader.read(range(6))] == SAMPLES
    assert [bytes(sample) for sample in reader.read({4})] == [SAMPLES[4]]
    assert reader.read([]) == []


@pytest.mark.parametrize("bad", [None, 3, "12", b"12", {1: 2}, [1.0], ["1"], [None], [1 << 63], np.array([1.0])])
def test_what_is_not_a_list_of_indices_is_a_type_error(reader: FileReader, bad: Any) -> None:
    with pytest.raises(TypeError):
        reader.read(bad)


@pytest.mark.parametrize("bad", [1.0, "1", None, 1 << 63, [1]])
def test_what_is_not_an_index_is_a_type_error(reader: FileReader, bad: Any) -> None:
    with pytest.raises(TypeError):
        reader.read_one(bad)


@pytest.mark.parametrize("index", [6, 7, 1 << 40])
def test_an_index_too_far(reader: FileReader, index: int) -> None:
    for read in (lambda: reader.read_one(index), lambda: reader.read([0, index]), lambda: reader.read([index] * 4)):
        with pytest.raises(RuntimeError) as caught:
            read()
        assert str(caught.value) == f"'index < n' failed. index >= number of samples ({index} >= 6)"


@pytest.mark.parametrize("index", [-1, -3, -6, -7, -(1 << 40)])
@pytest.mark.parametrize("check", [True, False])
def test_negative_indices_are_refused(path: Path, index: int, check: bool) -> None:
    reader = FileReader(path, check)
    for read in (lambda: reader.read_one(index), lambda: reader.read([index] * 3)):
        with pytest.raises(RuntimeError, match="'index >= 0' failed"):
            read()


def test_batches_of_any_size(reader: FileReader) -> None:
    assert len(reader.read([5] * 10_000)) == 10_000


def test_closed(reader: FileReader, path: Path) -> None:
    reader.close()
    reader.close()
    for read in (lambda: reader.read_one(99), lambda: reader.read([]), lambda: reader.read([0, 1, 2])):
        with pytest.raises(RuntimeError, match=r"^'!is_closed' failed. FileReader has been closed.$"):
            read()
    assert reader.n == 6
    assert reader.fnames == [str(path)]
    reader.validate()
    assert len(reader.get_offsets(0)) == 7


def test_context_manager(path: Path) -> None:
    with FileReader(str(path)) as reader:
        assert reader.read_one(np.int64(0)).tobytes() == b"zero"
    with pytest.raises(RuntimeError):
        reader.read_one(0)


def test_pickle_and_copy_open_again(reader: FileReader) -> None:
    reader.close()
    for again in (pickle.loads(pickle.dumps(reader)), copy.copy(reader), copy.deepcopy(reader)):
        assert again.read_one(3).tobytes() == b"three"
        assert (again.fnames, again.check_data) == (reader.fnames, True)


def test_many_files(tmp_path: Path) -> None:
    for name, samples in {"p10": [b"a"], "p2": [], "p3": [b"b", b"c"]}.items():
        write(tmp_path / f"{name}.ffr", samples)
    (tmp_path / "notes.txt").write_bytes(b"")
    for source in (tmp_path, str(tmp_path)):
        reader = FileReader(source)
        assert reader.fnames == [str(tmp_path / f"{name}.ffr") for name in ("p10", "p2", "p3")]
        assert [bytes(sample) for sample in reader.read([2, 1, 0])] == [b"c", b"b", b"a"]
    paths = [tmp_path / "p3.ffr", str(tmp_path / "p10.ffr"), tmp_path / "p3.ffr"]
    for listed in (paths, tuple(paths)):
        reader = FileReader(listed)  # type: ignore[arg-type]
        assert [bytes(sample) for sample in reader.read(range(5))] == [b"b", b"c", b"a", b"b", b"c"]


def test_the_sample_of_an_error_is_counted_over_all_files(tmp_path: Path, path: Path) -> None:
    other = write(tmp_path / "b.ffr", [b"good", b"bad!", b"last"])
    data = bytearray(other.read_bytes())
    data[data.index(b"bad!")] ^= 1
    other.write_bytes(data)
    reader = FileReader([path, other])
    for read in (lambda: reader.read_one(7), lambda: reader.read([0, 7]), lambda: reader.read(range(9))):
        with pytest.raises(RuntimeError, match=r"^'checksum2 == checksum' failed. Sample 7: checksum mismached!") as e:
            read()
        assert isinstance(e.value, anyrecord.ChecksumError)
        assert (e.value.path, e.value.record) == (str(other), 7)
    assert reader.read_one(8).tobytes() == b"last"
    unchecked = FileReader([path, other], check_data=False)
    assert unchecked.read_one(7).tobytes() == b"cad!"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.ffr", "nothing.ffr does not exist"),
        ("nothing.txt", "nothing.txt does not exist"),
        ("a.txt", "a.txt does not end with .ffr"),
        (["a.ffr", "folder.ffr"], "folder.ffr is not a file"),
        (["folder.ffr"], "folder.ffr is not a file"),
        ([], "At least one .ffr file as input"),
        ((), "At least one .ffr file as input"),
        ("folder.ffr", "At least one .ffr file as input"),
    ],
)
def test_wrong_paths(path: Path, source: Any, message: str) -> None:
    Path("a.txt").touch()
    Path("folder.ffr").mkdir()
    with pytest.raises(AssertionError) as caught:
        FileReader(source)
    assert str(caught.value) == message


@pytest.mark.parametrize("source", [b"a.ffr", 3, None, iter(["a.ffr"]), {"a.ffr"}, [b"a.ffr"], [None]])
def test_what_is_not_a_path_is_a_type_error(path: Path, source: Any) -> None:
    with pytest.raises(TypeError, match=r"fname must be str, os.PathLike, list or tuple"):
        FileReader(source)


def test_offsets_and_checksums(tmp_path: Path, path: Path) -> None:
    other = write(tmp_path / "b.ffr", [b"x"])
    reader = FileReader([path, other])
    offsets, checksums = reader.get_offsets(0), reader.get_checksums(0)
    assert (offsets.dtype.name, checksums.dtype.name) == ("int64", "uint32")
    assert offsets.tolist() == [12 + 12 * 6 + sum(map(len, SAMPLES[:i])) for i in range(7)]
    assert checksums.tolist() == [zlib.crc32(sample) for sample in SAMPLES]
    assert reader.get_offsets(1).tolist() == [24, 25]
    offsets[:] = 0  # a copy: the reader does not mind
    checksums[:] = 0
    assert reader.read_one(0).tobytes() == b"zero"
    assert reader.get_offsets(0)[0] == 84
    for bad in (2, -1, 1 << 40):
        with pytest.raises(IndexError):
            reader.get_offsets(bad)
        with pytest.raises(IndexError):
            reader.get_checksums(bad)


def test_forks_after_a_batch_read(reader: FileReader) -> None:
    assert len(reader.read(range(6))) == 6
    child = os.fork()
    if not child:
        os._exit([bytes(sample) for sample in reader.read(range(6))] != SAMPLES)
    assert os.waitpid(child, 0)[1] == 0


def test_many_readers_at_once(path: Path) -> None:
    readers = [FileReader(path) for _ in range(100)]
    assert all(len(reader.read(range(6))) == 6 for reader in readers)


def test_many_threads_on_one_reader(reader: FileReader) -> None:
    wrong: list[object] = []

    def work() -> None:
        for _ in range(100):
            if [bytes(sample) for sample in reader.read(range(6))] != SAMPLES:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_check_fs_align(path: Path) -> None:
    with open(path, "rb") as file:
        assert checkFsAlign(file.fileno()) is False
    assert checkFsAlign(-1) is False
    assert checkFsAlign(1 << 40) is False
    for bad in ("1", None, 1.5):
        with pytest.raises(TypeError):
            checkFsAlign(bad)  # type: ignore[arg-type]
