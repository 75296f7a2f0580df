"""A child process that stops before each of its system calls of some kinds: a test can look, let it fail, or kill it.

The kernel asks us before each call (seccomp user notification, Linux 5.5 and later); nothing of the child is replaced.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

from children import LIMIT_SECONDS

__all__ = ["GO_ON", "KILL", "OPENS", "RENAMES", "can_stop", "kill_at_rename", "stop_at_each"]

KILL: Final = -1
GO_ON: Final = 0

RENAMES: Final = frozenset({"rename", "renameat", "renameat2"})
CHANGES: Final = RENAMES | {"link", "linkat", "unlink", "unlinkat", "write", "fsync"}
OPENS: Final = frozenset({"openat"})

_CALLS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        **{"rename": 82, "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265, "unlink": 87, "unlinkat": 263},
        **{"write": 1, "fsync": 74, "openat": 257, "seccomp": 317},
    },
    "aarch64": {
        **{"renameat": 38, "renameat2": 276, "linkat": 37, "unlinkat": 35},
        **{"write": 64, "fsync": 82, "openat": 56, "seccomp": 277},
    },
}
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # ioctls of <linux/seccomp.h>


def can_stop() -> bool:
    """Whether the system can do this."""
    if not sys.platform.startswith("linux") or platform.machine() not in _CALLS:
        return False
    return stop_at_each(lambda: None, lambda number, call: GO_ON) == 0


def stop_at_each(
    act: Callable[[], object], decide: Callable[[int, str], int], calls: frozenset[str] = CHANGES
) -> int | None:
    """Runs `act` in a forked child and calls `decide` before each call that changes files, or each of `calls`.

    `decide` gets the number of the call, from 0 on, and its name. It returns `GO_ON`, `KILL`, or the number of an error
    that the call then fails with. Returns the exit code of the child: 0, 1 if `act` raised, 2 if the system cannot do
    this; None if it was killed.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _run(act, calls, theirs)
    theirs.close()
    try:
        with ours:
            _, listeners, _, _ = socket.recv_fds(ours, 1, 1)
        if listeners:
            _answer(listeners[0], pid, decide)
            os.close(listeners[0])
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if code == -signal.SIGKILL else code


def kill_at_rename(act: Callable[[], object], number: int) -> None:
    """Runs `act` in a child that is killed before its rename with that number, from 0 on."""
    renames = 0

    def decide(_: int, call: str) -> int:
        nonlocal renames
        renames += call in RENAMES
        return KILL if renames > number else GO_ON

    assert stop_at_each(act, decide) is None, "there are not so many renames"


def _run(act: Callable[[], object], calls: frozenset[str], channel: socket.socket) -> NoReturn:
    code = 2
    try:
        listener = _listener(calls)
        socket.send_fds(channel, [b"."], [listener])
        os.close(listener)
        code = 1
        act()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _listener(wanted: frozenset[str]) -> int:
    """A descriptor on which the kernel asks, from now on, before each of the calls."""

    def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    calls = _CALLS[platform.machine()]
    program = [instruction(0x20, 0)]  # the number of the call
    for name, number in calls.items():
        if name in wanted:
            program += [instruction(0x15, number, 0, 1), instruction(0x06, 0x7FC00000)]  # ask
    program.append(instruction(0x06, 0x7FFF0000))  # allow

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    code = ctypes.create_string_buffer(b"".join(program))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges, without which only root may do this
    listener: int = libc.syscall(calls["seccomp"], 1, 8, ctypes.byref(Program(len(program), ctypes.addressof(code))))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "no seccomp notification")
    return listener


def _answer(listener: int, pid: int, decide: Callable[[int, str], int]) -> None:
    names = {number: name for name, number in _CALLS[platform.machine()].items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    number = 0
    while True:
        events = poll.poll(LIMIT_SECONDS * 1000)
        assert events, "the child hangs"
        if events[0][1] & select.POLLHUP:  # it ended
            return
        asked = bytearray(80)
        fcntl.ioctl(listener, _RECEIVE, asked)
        identity, _, _, call = struct.unpack_from("<QIIi", asked)
        answer = decide(number, names[call])
        number += 1
        if answer == KILL:
            os.kill(pid, signal.SIGKILL)
            return
        # value, error, and whether the call is made after all
        reply = struct.pack("<QqiI", identity, 0, -answer, 1 if answer == GO_ON else 0)
        fcntl.ioctl(listener, _SEND, reply)
