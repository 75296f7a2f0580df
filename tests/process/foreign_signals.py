"""One program after the other that gets a SIGBUS, each in a forked child. Run by test_foreign_signals.py.

usage: foreign_signals.py LIBRARY    (a list of [io, steps] on stdin, a list of [status, output] on stdout, as JSON)
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import anyrecord
from anyrecord import Records

LIMIT_SECONDS = 30
PAGE = mmap.PAGESIZE


class Program:
    """What the steps of a program are."""

    def __init__(self, handlers: ctypes.CDLL, io: str) -> None:
        self.handlers, self.io = handlers, io
        self.records: Records | None = None
        self.maps: list[ctypes.c_void_p] = []

    def run(self, step: str) -> None:
        verb, _, what = step.partition(": ")
        getattr(self, verb.replace(" ", "_"))(*filter(None, [what]))

    # --- what comes before the signal ---

    def handler(self, what: str) -> None:
        kind, *flags = what.split(" with ")
        wanted = {"SA_SIGINFO": 4, "SA_ONSTACK": 0x08000000, "SA_NODEFER": 0x40000000, "SA_RESETHAND": 0x80000000}
        number = sum(wanted[flag] for flag in flags)
        assert self.handlers.install(kind.encode(), ctypes.c_int(number)) == 0

    def stack(self) -> None:
        assert self.handlers.use_alternate_stack() == 0

    def faulthandler(self, what: str) -> None:
        faulthandler.enable() if what == "on" else faulthandler.disable()

    def python_handler(self) -> None:
        signal.signal(signal.SIGBUS, lambda *_: os.write(1, b"[Python]"))

    def open(self) -> None:
        """Opens a file and reads it, so that the SIGBUS handler of its memory map is the one that is installed."""
        self.records = anyrecord.open("data.ffr", io=self.io)  # type: ignore[arg-type]
        self.read()

    def read(self) -> None:
        """So often that the SIGBUS handler is looked after again."""
        assert self.records is not None
        for _ in range(1100):
            assert self.records[0] == b"0" * 100

    def block(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS})

    def fork(self) -> None:
        """Goes on in a child, and ends as it does."""
        child = os.fork()
        if child:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os._exit(status if status >= 0 else 128 - status)

    # --- the signal ---

    def foreign_page(self) -> int:
        """An address of a mapped file that has no such byte any more."""
        with tempfile.TemporaryFile() as file:
            file.truncate(2 * PAGE)
            memory = mmap.mmap(file.fileno(), 2 * PAGE)
            file.truncate(0)
        view = ctypes.c_char.from_buffer(memory)
        self.maps.append(view)  # type: ignore[arg-type]
        return ctypes.addressof(view) + PAGE + 5

    def fault(self) -> None:
        found = self.handlers.touch(ctypes.c_void_p(self.foreign_page()))
        os.write(1, b"[touched: %d]\n" % found)

    def faults(self) -> None:
        """Many, one after the other, from ever further down the stack."""
        found = [self.handlers.touch_deeper(ctypes.c_void_p(self.foreign_page()), 3 * i) for i in range(60)]
        os.write(1, b"[touched: %a]\n" % set(found))

    def fault_in_threads(self) -> None:
        together = threading.Barrier(4)

        def act() -> None:
            page = self.foreign_page()
            together.wait()
            self.fault() if page else None

        threads = [threading.Thread(target=act) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGBUS)

    def killed(self) -> None:
        child = os.fork()
        if child == 0:
            os.kill(os.getppid(), signal.SIGBUS)
            os._exit(0)
        os.waitpid(child, 0)

    def raised(self) -> None:
        signal.raise_signal(signal.SIGBUS)

    def queue(self) -> None:
        self.handlers.send_queued(os.getpid())

    def own(self) -> None:
        """The file of the records is truncated, and read."""
        assert self.records is not None
        os.truncate("data.ffr", 50_000)
        try:
            found: object = self.records[len(self.records) - 1]
        except anyrecord.RecordError as error:
            found = type(error).__name__
        assert self.records[0] == b"0" * 100
        os.write(1, b"[found %a]\n" % found)

    def own_in_threads(self) -> None:
        threads = [threading.Thread(target=self.own) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def in_a_child(act: Callable[[], None], steps: list[str]) -> tuple[int, str]:
    """Its status (the signal is negative) and its output; what is different in every run is left out."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_SECONDS)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        try:
            act()
        except BaseException as error:
            print(f"[{type(error).__name__}: {error}]", flush=True)
            os._exit(100)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        output = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # Where exactly a signal comes that another process sent is not known, nor the order in which threads run.
    words = re.sub("0x[0-9a-f]+", "0x", re.sub(", line [0-9]+", "", output))
    return status, "\n".join(sorted(words.split("\n")) if "thread" in steps[-1] else words.split("\n"))


def main() -> None:
    handlers = ctypes.CDLL(sys.argv[1])
    results = []
    with anyrecord.create("data.ffr", overwrite=True, durable=False) as out:
        out.write_many([b"%d" % (index % 10) * 100 for index in range(1000)])
    whole = Path("data.ffr").read_bytes()
    for io, steps in json.load(sys.stdin):
        if os.path.getsize("data.ffr") != len(whole):
            Path("data.ffr").write_bytes(whole)
        program = Program(handlers, io)

        def act(program: Program = program, steps: list[str] = steps) -> None:
            for step in steps:
                program.run(step)

        results.append(in_a_child(act, steps))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
