"""`FileWriter`, call by call."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord.compat.ffrecord import FileReader, FileWriter


def write(path: Path, samples: list[bytes]) -> None:
    with FileWriter(path, len(samples)) as writer:
        for sample in samples:
            writer.write_one(sample)


def test_the_bytes_are_the_originals(golden: Path, tmp_path: Path) -> None:
    for name in ("basic", "empty_samples", "n0", "one", "one_empty", "bigger", "many_tiny"):
        original = golden / "ffrecord" / f"{name}.ffr"
        write(tmp_path / "again.ffr", list(anyrecord.open(original)))
        assert (tmp_path / "again.ffr").read_bytes() == original.read_bytes()


def test_attributes_are_read_only(tmp_path: Path) -> None:
    writer: Any = FileWriter(str(tmp_path / "a.ffr"), np.int64(2))
    assert (writer.n, writer.count) == (2, 0)
    assert writer.write_one(b"x") is None
    assert writer.count == 1
    for name in ("n", "count"):
        with pytest.raises(AttributeError):
            setattr(writer, name, 3)
    writer.write_one(b"")
    writer.close()


@pytest.mark.parametrize("name", ["a.bin", "a.FFR", "a", ".ffr", "a.ffr.gz", b"a.ffr", 7, None])
def test_the_suffix_is_checked(name: Any) -> None:
    with pytest.raises(AssertionError):
        FileWriter(name, 1)
    assert os.listdir() == []


@pytest.mark.parametrize("n", [1.0, "1", None])
def test_the_count_is_a_whole_number(n: Any) -> None:
    with pytest.raises(TypeError):
        FileWriter("a.ffr", n)


@pytest.mark.parametrize(("n", "kind"), [(-1, ValueError), (1 << 62, ValueError), (1 << 50, MemoryError)])
def test_impossible_counts_create_nothing(n: int, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        FileWriter("a.ffr", n)
    assert os.listdir() == []


def test_a_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.ffr"
    with pytest.raises(RuntimeError) as caught:
        FileWriter(path, 1)
    line = str(caught.value).split("\n")[0]
    assert line == f"'fd > 0' failed. Failed to open file {path}: No such file or directory"


def test_an_existing_file_stays_until_close(tmp_path: Path) -> None:
    path = tmp_path / "a.ffr"
    write(path, [b"old"])
    writer = FileWriter(path, 1)
    writer.write_one(b"new")
    assert FileReader(path).read_one(0).tobytes() == b"old"
    writer.close()
    assert FileReader(path).read_one(0).tobytes() == b"new"


@pytest.mark.parametrize("data", ["text", None, [1, 2], 3, {}])
def test_what_is_no_buffer_is_a_type_error(data: Any) -> None:
    with FileWriter("a.ffr", 1) as writer:
        with pytest.raises(TypeError):
            writer.write_one(data)
        assert writer.count == 0
        writer.write_one(b"fine")


BUFFERS: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: bytearray(b"abc"),
    "memoryview": lambda: memoryview(b"abc"),
    "array": lambda: array("i", [1, 2, 3]),
    "int64": lambda: np.arange(10),
    "two dimensions": lambda: np.arange(12, dtype=np.uint8).reshape(3, 4),
    "no dimension": lambda: np.array(7.5),
    "numpy scalar": lambda: np.float32(7.5),
    "empty": lambda: np.empty(0, np.uint8),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_every_byte_of_a_buffer_is_stored(kind: str) -> None:
    data = BUFFERS[kind]()
    with FileWriter("a.ffr", 1) as writer:
        writer.write_one(data)
    assert FileReader("a.ffr").read_one(0).tobytes() == memoryview(data).tobytes()


@pytest.mark.parametrize("step", [2, -1])
def test_what_is_not_contiguous_is_refused(step: int) -> None:
    with FileWriter("a.ffr", 1) as writer:
        for data in (np.arange(10, dtype=np.uint8)[::step], memoryview(b"abcdef")[::step]):
            with pytest.raises(TypeError):
                writer.write_one(data)
        writer.write_one(b"")


def test_too_many_samples(tmp_path: Path) -> None:
    writer = FileWriter("a.ffr", 1)
    writer.write_one(b"x")
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            writer.write_one(b"y")
        assert str(caught.value) == "'count < n' failed. Exceed total number of samples: 1"
        writer.close()  # also after close
    assert FileReader("a.ffr").n == 1


def test_too_few_samples_leave_the_writer_open() -> None:
    writer = FileWriter("a.ffr", 2)
    writer.write_one(b"x")
    with pytest.raises(RuntimeError) as caught:
        writer.close()
    assert str(caught.value) == ("'count == n' failed. Number of samples mismatched! Wrote 1 samples but expected 2")
    assert not os.path.exists("a.ffr")
    writer.write_one(b"y")
    writer.close()
    writer.close()
    assert [bytes(sample) for sample in FileReader("a.ffr").read([0, 1])] == [b"x", b"y"]


def test_dropped_when_complete_finishes_the_file() -> None:
    writer = FileWriter("a.ffr", 1)
    writer.write_one(b"x")
    del writer
    gc.collect()
    assert FileReader("a.ffr").n == 1


def test_the_file_is_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = FileWriter("a.ffr", 1)
    writer.write_one(b"x")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    del writer
    assert sorted(os.listdir(tmp_path)) == ["a.ffr", "elsewhere"]
    assert os.listdir() == []


def test_dropped_when_incomplete_warns_and_publishes_nothing() -> None:
    writer = FileWriter("a.ffr", 2)
    writer.write_one(b"x")
    with pytest.warns(RuntimeWarning, match="1 of 2 samples"):
        del writer
    assert os.listdir() == []


def test_an_exception_in_the_block_comes_out_as_it_is() -> None:
    writer = FileWriter("a.ffr", 2)
    writer.write_one(b"x")
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError
    assert os.listdir() == []
    writer.close()
    with pytest.raises(RuntimeError):
        writer.write_one(b"y")


def test_an_exception_after_the_last_sample_keeps_the_file() -> None:
    writer = FileWriter("a.ffr", 1)
    writer.write_one(b"x")
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError
    assert FileReader("a.ffr").n == 1


def test_the_end_of_the_process_finishes_or_drops(tmp_path: Path) -> None:
    program = (
        "from anyrecord.compat.ffrecord import FileWriter\n"
        "whole, part = FileWriter('whole.ffr', 1), FileWriter('part.ffr', 2)\n"
        "whole.write_one(b'x'); part.write_one(b'x')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "RuntimeWarning: a FileWriter of part.ffr was dropped with 1 of 2 samples" in done.stderr
    assert "whole.ffr" not in done.stderr
    assert done.stderr.count("Warning") == 1
    assert os.listdir(tmp_path) == ["whole.ffr"]


def test_an_incomplete_file_does_not_keep_others_from_being_finished_at_the_end(tmp_path: Path) -> None:
    program = (
        "import threading\n"
        "from anyrecord.compat.ffrecord import FileWriter\n"
        "made = threading.Event()\n"
        "def hold():  # a daemon thread keeps its variables: nothing drops these writers\n"
        "    writers = [FileWriter(f'{i}.ffr', 2 if i % 2 else 1) for i in range(6)]\n"
        "    for writer in writers: writer.write_one(b'sample')\n"
        "    made.set()\n"
        "    threading.Event().wait()\n"
        "threading.Thread(target=hold, daemon=True).start()\n"
        "made.wait()\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "was dropped with 1 of 2 samples" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.ffr", "2.ffr", "4.ffr"]


def test_a_forked_child_leaves_the_writer_alone() -> None:
    writer = FileWriter("a.ffr", 1)
    writer.write_one(b"x")
    child = os.fork()
    if not child:
        sys.unraisablehook = lambda _: os._exit(3)
        del writer
        gc.collect()
        os._exit(os.path.exists("a.ffr"))
    assert os.waitpid(child, 0)[1] == 0
    writer.close()
    assert FileReader("a.ffr").n == 1


def test_a_full_disk_is_an_error_and_nothing_is_published(tmp_path: Path) -> None:
    program = (
        "import resource, signal\n"
        "from anyrecord.compat.ffrecord import FileWriter\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try:\n"
        "    with FileWriter('a.ffr', 8) as writer:\n"
        "        for _ in range(8):\n"
        "            writer.write_one(bytes(1 << 20))\n"
        "except RuntimeError as error:\n"
        "    print(str(error).split(':')[0], writer.count < 8)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("'res == len_i' failed. Sample ")
    assert done.stdout.endswith("True\n")
    assert os.listdir(tmp_path) == []


def test_it_cannot_be_pickled() -> None:
    with FileWriter("a.ffr", 0) as writer, pytest.raises(TypeError):
        pickle.dumps(writer)
