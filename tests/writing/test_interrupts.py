"""Ctrl-C is heard while the core is at work, not only when it is done."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import anyrecord
import pytest
from children import LIMIT_SECONDS, python

from writing.folders import names

MIB = 1 << 20


def huge_file(path: Path, samples: int) -> None:
    """A sparse file of samples of 1 MiB each: quick to make, and minutes to read."""
    begin = 12 + 12 * samples
    tables = struct.pack("<q", samples) + struct.pack("<I", zlib.crc32(bytes(MIB))) * samples
    tables += struct.pack(f"<{samples}q", *range(begin, begin + samples * MIB, MIB))
    with path.open("wb") as file:
        file.write(struct.pack("<I", zlib.crc32(tables)) + tables)
        file.truncate(begin + samples * MIB)


def test_an_interrupt_in_the_middle_of_verify_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "huge.ffr"
    huge_file(path, 1 << 20)
    script = """if True:
        import sys, anyrecord
        def progress(done, total):
            print(done, flush=True)
        try:
            anyrecord.verify(sys.argv[1], progress=progress)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert 0 < int(child.stdout.readline()) < path.stat().st_size
        child.send_signal(signal.SIGINT)
        try:
            rest, _ = child.communicate(timeout=LIMIT_SECONDS)
        finally:
            child.kill()
    assert rest.endswith("interrupted\n")
    assert child.returncode == 0


def test_an_interrupt_is_heard_by_verify_without_progress(tmp_path: Path) -> None:
    """No line of Python runs between the beginning and the end of this one: the core itself has to ask."""
    path = tmp_path / "huge.ffr"
    huge_file(path, 1 << 20)
    script = """if True:
        import os, signal, sys, threading, anyrecord
        def interrupt_when_reading():
            # Far more than opening the file reads: the main thread is in the middle of its samples.
            while int(open("/proc/self/io").readline().split()[1]) < 300_000_000:
                pass
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt_when_reading, daemon=True).start()
        try:
            anyrecord.verify(sys.argv[1])
        except KeyboardInterrupt:
            print("interrupted")
    """
    command = [sys.executable, "-c", script, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (ran.returncode, ran.stdout) == (0, "interrupted\n")


def test_what_progress_raises_ends_verify_and_comes_out_as_it_went_in(tmp_path: Path) -> None:
    path = tmp_path / "huge.ffr"
    huge_file(path, 1 << 20)
    error = LookupError("mine")
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        assert total == path.stat().st_size
        calls.append(done)
        raise error

    with pytest.raises(LookupError) as caught:
        anyrecord.verify(path, progress=progress)
    assert caught.value is error
    assert len(calls) == 1


def test_an_interrupt_from_progress_itself_ends_verify(tmp_path: Path) -> None:
    path = tmp_path / "huge.ffr"
    huge_file(path, 1 << 20)
    with pytest.raises(KeyboardInterrupt):
        anyrecord.verify(path, progress=lambda done, total: os.kill(os.getpid(), signal.SIGINT))


def test_an_interrupt_while_many_files_are_opened_ends_it(tmp_path: Path, suffix: str) -> None:
    """The last file cannot be opened. To get there is to have ignored the signal for 200,000 files."""
    path = tmp_path / f"a{suffix}"
    with anyrecord.create(path) as out:
        out.write(b"a")
    (tmp_path / "broken").write_bytes(b"not a record file, whatever the format may be")
    script = """if True:
        import os, signal, sys, threading, anyrecord
        from anyrecord import _core, _options as options
        def interrupt_when_opening():
            # Files are opened by more threads than this and the main one.
            while len(os.listdir("/proc/self/task")) < 5:
                pass
            os.kill(os.getpid(), signal.SIGINT)
        def heard(number, frame):
            # Only inside the call below. An error that it raises runs Python code of the library, which would hear it.
            if frame.f_code.co_name == "<module>":
                raise KeyboardInterrupt
        signal.signal(signal.SIGINT, heard)
        files = [(sys.argv[1], 0, None)] * 200_000 + [(sys.argv[2], 0, None)]
        threading.Thread(target=interrupt_when_opening, daemon=True).start()
        reached_the_end = False
        try:
            try:
                _core.open_paths(files, options.open_options(format=None))
            except anyrecord.FormatError:
                reached_the_end = True
        except KeyboardInterrupt:
            pass
        print("reached the end" if reached_the_end else "interrupted")
    """
    assert python(script, str(path), str(tmp_path / "broken")) == "interrupted\n"


def test_an_interrupt_while_a_generator_is_written_publishes_nothing(tmp_path: Path, suffix: str) -> None:
    script = """if True:
        import itertools, os, signal, sys, anyrecord
        def records():
            for number in itertools.count():
                yield b"x" * 10_000
                if number == 5_000:
                    os.kill(os.getpid(), signal.SIGINT)
        try:
            with anyrecord.create(sys.argv[1], threads=2) as out:
                out.write_many(records())
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert python(script, str(tmp_path / f"a{suffix}")) == "interrupted\n"
    assert names(tmp_path) == []


def test_an_interrupt_is_heard_while_another_thread_encodes_one_large_chunk(tmp_path: Path) -> None:
    """The chunk takes minutes to compress. Whoever waited for it would not end before it is done."""
    script = """if True:
        import os, signal, sys, threading, anyrecord
        is_closing = False
        def raise_when_closing(number, frame):
            if is_closing:
                raise KeyboardInterrupt
        signal.signal(signal.SIGINT, raise_when_closing)
        def interrupt():
            while not threading.Event().wait(0.01):
                os.kill(os.getpid(), signal.SIGINT)
        out = anyrecord.create(sys.argv[1], codec="brotli", level=11, group_size=100_000, threads=2)
        out.write_many(os.urandom(1000) for _ in range(100_000))
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            is_closing = True
            out.close()
        except KeyboardInterrupt:
            is_closing = False
            print("interrupted", flush=True)
        os._exit(0)  # the thread that compresses has not ended
    """
    assert python(script, str(tmp_path / "a.array_record")) == "interrupted\n"
