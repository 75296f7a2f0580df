"""A child process that stops before each call that changes files: it can go on, fail, write half, or be killed.

The kernel asks us before each call (seccomp user notification, Linux 5.6 and later). Nothing of the child is replaced,
and the child needs no tool beside it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import pickle
import platform
import select
import signal
import socket
import stat
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

__all__ = [
    "CHANGES",
    "GO_ON",
    "HALF",
    "HALF_THEN_KILL",
    "KILL",
    "OPENS",
    "RENAMES",
    "SYNCS",
    "WRITES",
    "Call",
    "Ended",
    "missing",
    "watch",
]

KILL: Final = -1
HALF: Final = -2
"""The first half of the bytes is written, and the call says so. Only for `WRITES`."""
HALF_THEN_KILL: Final = -3
GO_ON: Final = 0

LIMIT_SECONDS = 60.0
"""How long a child may compute between two calls: many times what the slowest one needs on a busy machine."""

WRITES: Final = frozenset({"write", "pwrite64"})
SYNCS: Final = frozenset({"fsync", "fdatasync"})
RENAMES: Final = frozenset({"rename", "renameat", "renameat2"})
OPENS: Final = frozenset({"openat"})

# Name -> (number on x86_64, number on aarch64, which argument is a descriptor, which one is a path).
_CALLS: Final[dict[str, tuple[int | None, int, int | None, int | None]]] = {
    "write": (1, 64, 0, None),
    "close": (3, 57, 0, None),
    "pwrite64": (18, 68, 0, None),
    "writev": (20, 66, 0, None),
    "sendfile": (40, 71, 0, None),
    "fsync": (74, 82, 0, None),
    "fdatasync": (75, 83, 0, None),
    "truncate": (76, 45, None, 0),
    "ftruncate": (77, 46, 0, None),
    "rename": (82, -1, None, 0),
    "mkdir": (83, -1, None, 0),
    "rmdir": (84, -1, None, 0),
    "creat": (85, -1, None, 0),
    "link": (86, -1, None, 1),
    "unlink": (87, -1, None, 0),
    "symlink": (88, -1, None, 1),
    "chmod": (90, -1, None, 0),
    "fchmod": (91, 52, 0, None),
    "chown": (92, -1, None, 0),
    "fchown": (93, 55, 0, None),
    "openat": (257, 56, None, 1),
    "mkdirat": (258, 34, None, 1),
    "fchownat": (260, 54, None, 1),
    "unlinkat": (263, 35, None, 1),
    "renameat": (264, 38, None, 1),
    "linkat": (265, 37, None, 3),
    "symlinkat": (266, 36, None, 2),
    "fchmodat": (268, 53, None, 1),
    "splice": (275, 76, 2, None),
    "sync_file_range": (277, 84, 0, None),
    "fallocate": (285, 47, 0, None),
    "pwritev": (296, 70, 0, None),
    "renameat2": (316, 276, None, 1),
    "copy_file_range": (326, 285, 2, None),
    "pwritev2": (328, 287, 0, None),
    "io_uring_enter": (426, 426, 0, None),
    "openat2": (437, 437, None, 1),
}
_FOLDER_ARGUMENT: Final = {"openat": 0, "mkdirat": 0, "unlinkat": 0, "renameat": 0, "renameat2": 0, "fchmodat": 0}
CHANGES: Final = frozenset(_CALLS) - {"close"}
"""Every call of Linux with which a writer can change a file or a folder. Opening counts if it may create or empty."""
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_PIDFD_GETFD: Final = 438
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # ioctls of <linux/seccomp.h>
_CHANGING_FLAGS: Final = os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY) if sys.platform == "linux" else 0
_AT_FDCWD: Final = -100


def _numbers() -> dict[str, int]:
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    numbers = {name: (row[0], row[1])[column] for name, row in _CALLS.items()}
    return {name: number for name, number in numbers.items() if number is not None and number >= 0}


@dataclass(frozen=True)
class Call:
    """A call that the child is about to make."""

    number: int
    """From 0 on; only calls below the folder that is watched are counted."""
    name: str
    path: str
    """What it changes. " (deleted)" at the end: a file without a name."""
    is_folder: bool
    """Whether it is about a folder that is open, as in a sync of a folder."""

    def __str__(self) -> str:
        return f"{self.name} of {os.path.basename(self.path)} (change {self.number})"


@dataclass(frozen=True)
class Ended:
    """How the child ended."""

    killed: bool
    error: str
    """What `act` raised, as `Type: message`; empty if it returned."""
    text: str
    """The traceback of the error."""
    warnings: tuple[str, ...]
    leaked: tuple[str, ...]
    """What the descriptors refer to that the child had open after `act` and not before."""


def missing() -> str | None:
    """Why this system cannot watch its children, and what to do; None if it can."""
    if not sys.platform.startswith("linux") or platform.machine() not in _SECCOMP:
        return f"{sys.platform} on {platform.machine()} cannot stop a process at each call: run this on Linux"
    try:
        watch(lambda: None, lambda call: GO_ON, os.devnull)
    except OSError as error:
        return (
            f"the kernel does not let a process watch the calls of another ({error}): run this on Linux 5.6 or later, "
            "and in a container whose profile allows seccomp (Docker: --security-opt seccomp=unconfined)"
        )
    return None


def watch(
    act: Callable[[], object],
    decide: Callable[[Call], int],
    folder: str,
    calls: frozenset[str] = CHANGES,
    *,
    kill_at_end: bool = False,
) -> Ended:
    """Runs `act` in a forked child and calls `decide` before each of its `calls` that is about something in `folder`.

    `decide` returns `GO_ON`, `KILL`, `HALF`, `HALF_THEN_KILL`, or the number of an error that the call then fails with.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run(act, calls, theirs, kill_at_end)
    theirs.close()
    ended = None
    try:
        with ours:
            ours.settimeout(LIMIT_SECONDS)
            first, listeners, _, _ = socket.recv_fds(ours, 1 << 16, 1)
            if not listeners:
                raise OSError(int(first or b"0"), os.strerror(int(first or b"0")))
            try:
                _answer(listeners[0], pid, decide, os.path.realpath(folder))
            finally:
                os.close(listeners[0])
            answer = b""
            while piece := ours.recv(1 << 16):
                answer += piece
            ended = pickle.loads(answer) if answer else None
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == -signal.SIGKILL:
        return Ended(True, "", "", (), ())
    if ended is None:
        raise AssertionError(f"the child died with {code}")
    return Ended(False, *ended)


# -- the child --


def _run(act: Callable[[], object], calls: frozenset[str], channel: socket.socket, kill_at_end: bool) -> NoReturn:
    gc.freeze()  # so that `collect` looks only at what `act` makes
    try:
        before = _descriptors()
        try:
            listener = _listener(calls)
        except OSError as failed:
            channel.sendall(str(failed.errno).encode())
            os._exit(2)
        socket.send_fds(channel, [b"."], [listener])
        os.close(listener)
        error = text = ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                act()
            except BaseException as raised:
                error, text = f"{type(raised).__name__}: {raised}", traceback.format_exc()
                raised.__traceback__ = None
            gc.collect()
        after = _descriptors()
        if kill_at_end:
            os.kill(os.getpid(), signal.SIGKILL)
        leaked = tuple(f"{number} -> {name}" for number, name in after.items() if number not in before)
        channel.sendall(pickle.dumps((error, text, tuple(str(warning.message) for warning in caught), leaked)))
    finally:
        os._exit(0)


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the descriptor of the listing itself
            continue
    return found


def _listener(wanted: frozenset[str]) -> int:
    """A descriptor on which the kernel asks, from now on, before each of the calls."""

    def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    ask = instruction(0x06, 0x7FC00000)
    program = [instruction(0x20, 0)]  # the number of the call
    for name, number in _numbers().items():
        if name not in wanted:
            continue
        if name == "openat" and wanted != OPENS:
            # The flags are the third argument. After a look at them, the number of the call is loaded again.
            program += [instruction(0x15, number, 0, 4), instruction(0x20, 32)]
            program += [instruction(0x45, _CHANGING_FLAGS, 0, 1), ask, instruction(0x20, 0)]
        else:
            program += [instruction(0x15, number, 0, 1), ask]
    program.append(instruction(0x06, 0x7FFF0000))  # allow

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    code = ctypes.create_string_buffer(b"".join(program))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges, without which only root may do this
    seccomp = _SECCOMP[platform.machine()]
    listener: int = libc.syscall(seccomp, 1, 8, ctypes.byref(Program(len(program), ctypes.addressof(code))))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "no seccomp notification")
    return listener


# -- the parent --


def _answer(listener: int, pid: int, decide: Callable[[Call], int], folder: str) -> None:
    names = {number: name for name, number in _numbers().items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    count = 0
    while True:
        events = poll.poll(LIMIT_SECONDS * 1000)
        if not events:
            raise AssertionError(f"the child hangs: no call and no end for {LIMIT_SECONDS} seconds")
        if events[0][1] & select.POLLHUP:  # it ended
            return
        asked = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, asked)
        except FileNotFoundError:  # it ended meanwhile
            continue
        identity, thread, _, number, _, _, *arguments = struct.unpack("<QIIiIQ6Q", asked)
        found = _look(names[number], thread, arguments)
        answer, value = GO_ON, 0
        if found is not None and (found[0] + "/").startswith(folder.rstrip("/") + "/"):
            answer = decide(Call(count, names[number], *found))
            count += 1
        if answer in (HALF, HALF_THEN_KILL):
            value = _write_half(names[number], pid, thread, arguments)
        if answer in (KILL, HALF_THEN_KILL):
            os.kill(pid, signal.SIGKILL)
            return
        # value, error, and whether the call is made after all
        reply = struct.pack("<QqiI", identity, value, -max(answer, 0), 1 if answer == GO_ON else 0)
        fcntl.ioctl(listener, _SEND, reply)


def _look(name: str, thread: int, arguments: list[int]) -> tuple[str, bool] | None:
    """What a call is about, and whether that is an open folder. None if it is nothing of the file system."""
    _, _, descriptor, path = _CALLS[name]
    try:
        if descriptor is not None:
            link = f"/proc/{thread}/fd/{_signed(arguments[descriptor])}"
            return os.readlink(link), stat.S_ISDIR(os.stat(link).st_mode)
        assert path is not None
        text = os.fsdecode(_string(thread, arguments[path]))
        base = _signed(arguments[_FOLDER_ARGUMENT[name]]) if name in _FOLDER_ARGUMENT else _AT_FDCWD
        above = f"/proc/{thread}/cwd" if base == _AT_FDCWD else f"/proc/{thread}/fd/{base}"
        text = os.path.join(os.readlink(above), text)
        return os.path.join(os.path.realpath(os.path.dirname(text)), os.path.basename(text)), False
    except OSError:  # a descriptor that is not open: the call fails by itself
        return None


def _signed(argument: int) -> int:
    return int(ctypes.c_int32(argument & 0xFFFFFFFF).value)


def _memory(thread: int, address: int, size: int) -> bytes:
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _string(thread: int, address: int) -> bytes:
    found = b""
    while b"\0" not in found:
        # Not beyond the page, because the next one may not exist.
        at = address + len(found)
        found += _memory(thread, at, 4096 - at % 4096)
    return found.split(b"\0")[0]


def _write_half(name: str, pid: int, thread: int, arguments: list[int]) -> int:
    """Writes the first half of the bytes in the child's place. Returns how many."""
    half = arguments[2] // 2
    data = _memory(thread, arguments[1], half)
    process = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        # The copy of the descriptor shares its position with the child's.
        descriptor = libc.syscall(_PIDFD_GETFD, process, _signed(arguments[0]), 0)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "pidfd_getfd")
    finally:
        os.close(process)
    try:
        return os.write(descriptor, data) if name == "write" else os.pwrite(descriptor, data, arguments[3])
    finally:
        os.close(descriptor)


def error_name(number: int) -> str:
    """`ENOSPC` and so on."""
    return errno.errorcode.get(number, str(number))
