"""What went wrong once, each as it was found: hangs after a fork, lost interrupts, sinks that lie, absurd numbers."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pickle
import random
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ClosedError, Limits
from children import forked, python


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: Path, *records: bytes) -> Path:
    with anyrecord.create(path, overwrite=True, durable=False) as out:
        out.write_many(records)
    return path


class Blocking(io.RawIOBase):
    """A file object whose next read or write stops until it is let go."""

    def __init__(self, data: bytes = b"") -> None:
        self.inner, self.inside, self.go, self.armed = io.BytesIO(data), threading.Event(), threading.Event(), False

    def _stop(self) -> None:
        if self.armed:
            self.inside.set()
            self.go.wait(60)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, *a: Any) -> int:
        return self.inner.seek(*a)

    def tell(self) -> int:
        return self.inner.tell()

    def read(self, n: int = -1) -> bytes:
        self._stop()
        return self.inner.read(n)

    def write(self, data: Any) -> int:
        self._stop()
        return self.inner.write(data)


@pytest.mark.parametrize("checksums", [True, False])
def test_forks_while_other_threads_reopen_files_read_right(tmp_path: Path, checksums: bool) -> None:
    """EBADF, ChecksumError, and with checksums=False another file's bytes: the kernel copies the descriptors before the
    memory, so a file that a thread opens in between is in the child's memory but not in its table, or is another's."""
    files = []
    for part in range(8):
        path = write(tmp_path / f"{part}.ffr", *(b"%d:%d" % (part, i) + b"x" * 100 for i in range(50)))
        files.append(path)
    records = anyrecord.open(files, checksums=checksums, io="plain", limits=Limits(open_files=2))
    stop = threading.Event()

    def churn(seed: int) -> None:
        source = random.Random(seed)
        while not stop.is_set():
            records[source.choices(range(400), k=50)]

    def check() -> bool:
        return all(records[i] == b"%d:%d" % divmod(i, 50) + b"x" * 100 for i in range(0, 400, 7))

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert all(forked(check) for _ in range(60))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_child_that_drops_the_writer_leaves_sealed_shards_to_the_parent(tmp_path: Path) -> None:
    out = anyrecord.create(tmp_path / "a.ffr", shard_records=1)
    out.write_many([b"1", b"2", b"3"])
    forked(out._discard)  # as the end of the child's interpreter does
    out.close()
    assert list(anyrecord.open(tmp_path)) == [b"1", b"2", b"3"]


def test_an_iterator_in_use_at_the_fork_does_not_hang_the_child(tmp_path: Path) -> None:
    file = Blocking(write(tmp_path / "a.ffr", *[b"x"] * 100).read_bytes())
    iterator = iter(anyrecord.open(file))  # type: ignore[arg-type]
    file.armed = True
    thread = threading.Thread(target=lambda: next(iterator))
    thread.start()
    assert file.inside.wait(60)
    try:
        with pytest.raises(ClosedError):
            forked(lambda: (signal.alarm(5), next(iterator)))  # killed by the alarm: std Mutex held over the fork
    finally:
        file.armed = False
        file.go.set()


def test_a_writer_in_use_at_the_fork_does_not_hang_the_child() -> None:
    sink = Blocking()
    out = anyrecord.create(sink, format="ffrecord")  # type: ignore[arg-type]
    out.write(b"x")
    sink.armed = True
    thread = threading.Thread(target=out.close)
    thread.start()
    assert sink.inside.wait(60)
    try:
        with pytest.raises(ClosedError):
            forked(partial(out.write, b"y"))
    finally:
        sink.armed = False
        sink.go.set()


def test_ctrl_c_during_iteration_is_not_swallowed(tmp_path: Path) -> None:
    script = """if True:
        import signal, sys, anyrecord
        with anyrecord.create("a.ffr") as out: out.write_many(b"%d" % i for i in range(200_000))
        records, calls, caught = anyrecord.open("a.ffr"), 0, 0
        class Tick(Exception): pass
        def tick(*_):
            global calls; calls += 1; raise Tick
        signal.signal(signal.SIGALRM, tick)
        for trial in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00001 * trial)
                for _ in records: pass
                while True: pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Tick: caught += 1
            except BaseException: raise
        print(calls, caught)
    """
    script = script.replace("while True: pass", "for _ in range(10**6): pass")
    calls, caught = python(script).split()
    assert calls == caught


def test_ctrl_c_during_write_many_of_a_list_or_any_c_iterator_is_heard() -> None:
    script = """if True:
        import itertools, os, signal, threading, anyrecord
        out = anyrecord.create(open("/dev/null", "wb"), format="ffrecord")
        def interrupt():
            while out.num_records < 1000: pass
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        try: out.write_many(itertools.repeat(b"", 30_000_000))
        except KeyboardInterrupt: pass
        print(out.num_records, flush=True)
        os._exit(0)
    """
    assert int(python(script)) < 30_000_000


def test_the_first_read_of_restored_records_gives_the_gil_away(tmp_path: Path) -> None:
    """Takes 45 seconds where it does not: the kernel's patience with a lease."""
    path = write(tmp_path / "a.ffr", b"a")
    records, events = pickle.loads(pickle.dumps(anyrecord.open(path))), list[object]()
    descriptor = os.open(path, os.O_RDWR)

    def give_up(*_: object) -> None:
        locks = Path("/proc/locks").read_text().splitlines()
        inode = os.fstat(descriptor).st_ino
        waited = any("BREAKING" in lock and f":{inode} " in lock for lock in locks)
        events.append("another thread ran" if waited else "all other threads stood still")
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    signal.signal(signal.SIGIO, give_up)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    thread = threading.Thread(target=lambda: events.append(records[0]))
    thread.start()
    thread.join(60)
    os.close(descriptor)
    assert events == ["another thread ran", b"a"]


def test_a_write_goes_where_the_relative_path_led_at_create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    out = anyrecord.create("a.ffr")
    monkeypatch.chdir(tmp_path / "other")
    out.close()
    assert (tmp_path / "a.ffr").exists()


def test_reads_and_pickles_keep_to_the_relative_path_of_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.ffr", b"a")
    write(tmp_path / "b.ffr", b"b")
    (tmp_path / "other").mkdir()
    records = anyrecord.open(["a.ffr", "b.ffr"], limits=Limits(open_files=1))
    monkeypatch.chdir(tmp_path / "other")
    assert (records[0], records[1], records[0]) == (b"a", b"b", b"a")
    assert pickle.loads(pickle.dumps(records))[0] == b"a"


def test_errors_of_create_keep_their_number(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        anyrecord.create(tmp_path / "file" / "a.ffr")


def test_permission_denied_is_a_permission_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o555)

    def act() -> str:
        os.chdir(tmp_path / "folder")
        os.setuid(65534)
        try:
            anyrecord.create("a.ffr")
        except OSError as error:
            return f"{type(error).__name__} {errno.errorcode[error.errno or 0]}"
        return ""

    assert forked(act) == "PermissionError EACCES"


def test_a_path_that_is_not_utf_8_can_be_written_and_read() -> None:
    name = os.fsdecode(b"caf\xe9.ffr")
    with anyrecord.create(name) as out:
        out.write(b"a")
    records = anyrecord.open(name)
    assert records.paths == [name]
    assert pickle.loads(pickle.dumps(records))[0] == b"a"


def test_a_raw_sink_that_would_block_is_not_taken_for_written() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with (
        os.fdopen(writing, "wb", buffering=0) as sink,
        pytest.raises(BlockingIOError),
        anyrecord.create(sink, format="ffrecord") as out,
    ):
        out.write(bytes(1_000_000))  # more than the pipe takes
    os.close(reading)


def test_a_file_in_append_mode_is_not_patched() -> None:
    with open("a.ffr", "ab") as sink, anyrecord.create(sink, format="ffrecord", num_records=1) as out:
        out.write(b"a")
    assert list(anyrecord.open("a.ffr")) == [b"a"]


def test_a_text_file_is_refused_at_create() -> None:
    with open("a.ffr", "w") as sink, pytest.raises(TypeError):
        anyrecord.create(sink, format="ffrecord").discard()  # type: ignore[arg-type]


def test_absurd_limits_are_refused_not_fatal(tmp_path: Path) -> None:
    for absurd in (10**10, 2**62):
        with pytest.raises(ValueError, match="1048576"):
            Limits(open_files=absurd)
    with pytest.raises(ValueError, match="1024"):
        anyrecord.create(tmp_path / "a.ffr", threads=3000)


def test_shards_on_a_device_or_pipe_are_refused_at_create(tmp_path: Path) -> None:
    (tmp_path / "null.ffr").symlink_to("/dev/null")
    with pytest.raises(ValueError, match="shards"):
        anyrecord.create(tmp_path / "null.ffr", shards=2).discard()


def test_expected_records_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ffr", b"a")
    with pytest.raises(TypeError, match="expected_records"):
        anyrecord.open(path, expected_records="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["read", "repr"])
def test_using_what_is_being_used_is_an_error_not_a_hang(tmp_path: Path, what: str) -> None:
    def act() -> None:
        signal.alarm(5)
        if what == "read":
            file = Blocking(write(tmp_path / "a.ffr", b"a", b"b").read_bytes())
            records = anyrecord.open(file)  # type: ignore[arg-type]
            file._stop = lambda: records[1]  # type: ignore[method-assign,assignment]
            records[0]
        else:
            sink = Blocking()
            out = anyrecord.create(sink, format="ffrecord")  # type: ignore[arg-type]
            sink._stop = lambda: repr(out)  # type: ignore[method-assign,assignment]
            out.close()

    try:
        forked(act)
    except AssertionError as died:
        pytest.fail(str(died))
    except Exception:
        pass


def test_an_error_of_a_stream_names_the_file() -> None:
    with pytest.raises(OSError) as caught:
        anyrecord.create("/dev/full", format="ffrecord").close()
    assert caught.value.filename == "/dev/full"
