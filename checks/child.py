"""Runs a function in a forked child, so that a crash or a hang ends only the child and can be counted."""

from __future__ import annotations

import json
import os
import select
import signal
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["LIMIT_SECONDS", "Died", "in_child"]

LIMIT_SECONDS = 120.0
"""Many times what the slowest child needs on a busy machine. A child that is silent for longer hangs."""


class Died(Exception):
    """The child hung, crashed or raised. The text says which."""


def in_child(act: Callable[[], object], share: float = 1.0) -> Any:
    """What `act` returns in a forked child, as JSON carries it. `share` is the part of the limit that it may take: a
    child that has children of its own must still be there when one of them hangs."""
    limit = share * LIMIT_SECONDS
    results, sink = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(act, sink)
    os.close(sink)
    answer = b""
    try:
        while True:
            if not select.select([results], [], [], limit)[0]:
                os.kill(child, signal.SIGKILL)
                raise Died(f"hung for {limit:.0f} seconds")
            if not (piece := os.read(results, 1 << 16)):
                break
            answer += piece
    finally:
        os.close(results)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        raise Died(f"was ended by {signal.Signals(-status).name}")
    value, error = json.loads(answer or '[null, "ended without an answer"]')
    if error is not None:
        raise Died(error)
    return value


def _answer(act: Callable[[], object], sink: int) -> NoReturn:
    """Ends the process without any clean-up: what the parent has is not the child's to clean up."""
    try:
        answer = json.dumps([act(), None]).encode()
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        answer = json.dumps([None, f"raised {error!r} in {where.filename}, line {where.lineno}"]).encode()
    while answer:
        answer = answer[os.write(sink, answer) :]
    os._exit(0)
