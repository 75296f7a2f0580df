"""Ctrl-C and a kill leave nothing half-made, whatever the verb is doing. Real signals go to real processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyrecord
import pytest
from children import LIMIT_SECONDS
from writing.killed import left_behind

from cli.files import break_record, make, names
from cli.running import COMMAND, environment, run

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

LARGE = [bytes([number]) * (1 << 20) for number in range(16)]

# The command itself. Only its progress bar is another one: when half of the work is done, it tells so and waits.
SCRIPT = """
import sys
from contextlib import contextmanager
from anyrecord.cli import _output, main

class Step:
    told, label = False, "working"
    def __call__(self, done, total):
        if not self.told and done * 2 >= total:
            self.told = True
            print("halfway", flush=True, file=sys.stderr)
            sys.stdin.read()
    def describe(self, label):
        pass

@contextmanager
def progress(self, label, *, unit="bytes"):
    yield Step()

_output.Output.progress = progress
sys.exit(main(sys.argv[1:]))
"""


def one(name: str) -> Callable[[], object]:
    return lambda: make(name, LARGE)


def two(*, damaged: bool = False) -> None:
    make("a.tfrecord", LARGE)
    make("b.tfrecord", LARGE)
    if damaged:
        break_record("a.tfrecord", LARGE[3])


def folder() -> None:
    os.mkdir("pets")
    for number, record in enumerate(LARGE):
        Path("pets", f"{number}").write_bytes(record)


def packed() -> None:
    folder()
    anyrecord.pack("pets", "pets.ffr")


CASES: dict[str, tuple[Callable[[], object], list[str]]] = {
    "verify": (two, ["verify", "a.tfrecord", "b.tfrecord"]),
    "salvage": (lambda: two(damaged=True), ["salvage", "a.tfrecord", "b.tfrecord", "new.array_record"]),
    "salvage into a folder": (two, ["salvage", "a.tfrecord", "b.tfrecord", "new/", "--format", "ffrecord"]),
    "recover": (lambda: left_behind("a.tfrecord", LARGE * 2), ["recover", "a.tfrecord", "--salvage-to", "new.ffr"]),
    "convert": (one("a.tfrecord"), ["convert", "a.tfrecord", "new.array_record", "--codec", "brotli"]),
    "convert to shards": (one("a.tfrecord"), ["convert", "a.tfrecord", "new.ffr", "--shards", "3"]),
    "convert into a folder": (two, ["convert", "?.tfrecord", "new/", "--format", "recordio"]),
    "pack": (folder, ["pack", "pets", "new.ffr"]),
    "unpack": (packed, ["unpack", "pets.ffr", "new"]),
    "index": (two, ["index", "a.tfrecord", "b.tfrecord"]),
    "bench": (one("a.tfrecord"), ["bench", "a.tfrecord", "--no-original", "--seconds", "0.01"]),
}


def interrupted(args: list[str], sent: signal.Signals) -> tuple[int, str]:
    """Runs a command and sends a signal when its progress says that half of the work is done."""
    command = [sys.executable, "-c", SCRIPT, *args]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(), text=True
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "halfway\n"
        child.send_signal(sent)
        return_of = child.communicate(timeout=LIMIT_SECONDS)
    return child.returncode, return_of[1]


def everything() -> dict[str, int]:
    """All files, hidden ones too, and their sizes. Empty folders do not count."""
    return {
        os.path.join(top, name): os.path.getsize(os.path.join(top, name))
        for top, _, all in os.walk(".")
        for name in all
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"])
def test_a_signal_leaves_nothing_half_made(case: str, sent: signal.Signals, code: int) -> None:
    prepare, args = CASES[case]
    prepare()
    before = everything()
    assert interrupted(args, sent) == (code, "error: interrupted\n" if code == 130 else "error: ended by SIGTERM\n")
    left = everything()
    if case == "index":
        assert left.pop("./.a.tfrecord.index"), "the first file was done, and its index is whole"
    assert left == before
    if sent == signal.SIGINT:
        assert run(*args).code in (0, 1), "the same command works afterwards"


def test_an_interrupted_copy_is_continued_or_removed() -> None:
    two()
    args = ["copy", "a.tfrecord", "b.tfrecord", "new/"]
    for _ in range(2):
        code, told = interrupted(args, signal.SIGINT)
        assert code == 130
        assert told.splitlines()[0] == "1 of 2 files were copied; the same command continues after them"
        assert all(name.startswith(".") and name.endswith(".copied") for name in names("new"))
        assert len(names("new")) == 1
    assert run(*args).lines[0].endswith("; 1 file had been copied before")
    assert names("new") == ["a.tfrecord", "b.tfrecord"]
    interrupted(["copy", "a.tfrecord", "b.tfrecord", "other/"], signal.SIGINT)
    assert run("recover", "other").lines[-1].startswith("removed 1 temporary file")
    assert names("other") == []


def test_ctrl_c_on_a_terminal_takes_the_bar_away() -> None:
    """The real bar, and the character that a terminal turns into a signal."""
    import fcntl
    import pty
    import termios

    make("a.tfrecord", [os.urandom(1 << 20) for _ in range(64)])
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    args = ["convert", "a.tfrecord", "new.array_record", "--codec", "brotli", "--level", "11", "--threads", "0"]
    child = subprocess.Popen(
        [*COMMAND, *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm-256color", COLUMNS="80"),
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    shown = b""
    try:
        while True:
            assert select.select([ours], [], [], LIMIT_SECONDS)[0], shown
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:
                break
            if b"converting" in shown and b"\x03" not in shown and any(name.startswith(".new") for name in names()):
                os.write(ours, b"\x03")
                shown += b"\x03"
        assert child.wait(LIMIT_SECONDS) == 130
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    text = shown.decode()
    assert "converting" in text
    assert text.rstrip().endswith("interrupted")
    assert "\x1b[?25h" in text.rpartition("\x03")[2], "the cursor is back"
    assert names() == ["a.tfrecord"]
