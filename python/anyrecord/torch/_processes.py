"""Worker processes that decode and collate. A thread for each of them reads its batches into shared memory."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from queue import Empty
from typing import Any

import torch

from anyrecord._calls import add_note
from anyrecord._mapped import MappedRecords
from anyrecord.torch._making import Place, Plan
from anyrecord.torch._parent import Process
from anyrecord.torch._pipeline import NOTHING, Maker, Ordered, Tasks
from anyrecord.torch._shared import can_share
from anyrecord.torch._worker import Failed, Work

__all__ = ["ProcessMaker", "check_picklable", "start_context"]

_JOBS = 2
"""How many batches a process has at once: it works on one, and the next one is ready for it.

If batches go through the connection, it has one: it could not read the next one while it sends an answer.
"""


def start_context(context: str | BaseContext | None) -> BaseContext:
    """The context that starts processes. `fork` is not the default: it is not safe in a process that has threads."""
    if isinstance(context, BaseContext):
        return context
    methods = multiprocessing.get_all_start_methods()
    if context is None:
        context = "forkserver" if "forkserver" in methods else "spawn"
    if context not in methods:
        raise ValueError(f"context={context!r} is not valid: it must be one of {', '.join(map(repr, methods))}")
    return multiprocessing.get_context(context)


class _Discard:
    """Keeps of a pickle only whether it refers to the main module."""

    refers_to_main = False

    def write(self, data: Any) -> None:
        self.refers_to_main |= b"__main__" in bytes(data)


def check_picklable(functions: object) -> None:
    """Raises TypeError if these functions cannot be sent to another process."""
    pickled = _Discard()
    try:
        pickle.Pickler(pickled).dump(functions)
    except Exception as error:
        raise TypeError(
            f"processes= needs decode= and collate= functions that can be pickled ({error}); define them at the top "
            "level of a module, or use threads="
        ) from error
    if pickled.refers_to_main and not _has_main_file():
        raise TypeError(
            "processes= cannot find functions that were defined in a notebook or an interactive session; "
            "define them in a module, or use threads= or context='fork'"
        )


def _has_main_file() -> bool:
    """Whether other processes can import the main module."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is not None or os.path.exists(getattr(main, "__file__", None) or "")


def _preload(context: BaseContext) -> None:
    """Lets the fork server import PyTorch once, instead of each process, unless the user has chosen what it imports."""
    server = getattr(forkserver, "_forkserver", None)
    if context.get_start_method() == "forkserver" and getattr(server, "_preload_modules", None) == ["__main__"]:
        context.set_forkserver_preload(["__main__", "anyrecord.torch._worker"])


class _RemoteTraceback(Exception):
    """The traceback in a worker process, as the cause of its error."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class ProcessMaker(Maker):
    """Makes batches in worker processes."""

    def __init__(
        self,
        plan: Plan,
        functions: Sequence[Callable[[Any], Any]],
        collate: Callable[[list[Any]], Any] | None,
        place: Place | None,
        context: BaseContext,
        processes: int,
    ) -> None:
        self._plan, self._functions, self._place = plan, functions, place
        self._processes: list[Process] = []
        self._jobs = _JOBS if can_share() else 1
        if multiprocessing.current_process().daemon:
            raise RuntimeError(
                "this process is itself a worker, of a DataLoader for example, and may not start processes; "
                "use threads= instead of processes="
            )
        _preload(context)
        seed = int(torch.empty((), dtype=torch.int64).random_())  # as `DataLoader` does it
        try:
            for i in range(min(processes, plan.count)):
                work = Work(functions, collate, (seed + i) % 2**63)
                self._processes.append(Process(context, work, self._jobs, plan.most_records))
        except BaseException:
            self.close()
            raise

    def run(self, tasks: Tasks, lock: threading.Lock, index: int) -> None:
        """Keeps one process busy. It waits for tasks only if it has no answer to wait for."""
        process = self._processes[index]
        sent: deque[tuple[Ordered, Sequence[int]]] = deque()
        try:
            while True:
                try:
                    if len(sent) < self._jobs:
                        task = tasks.take(not sent)
                        if task is None:
                            return
                        self._send(process, task[0], sent)
                        del task  # the consumer alone keeps the batch alive
                        continue
                except Empty:
                    pass
                self._receive(process, *sent[0])
                sent.popleft()
        except (EOFError, ConnectionError):
            if not process.is_ending:
                error = process.death()
                for ordered, _ in sent:
                    ordered.fail(error)
        except BaseException as error:  # the consumer must not wait for a thread that has ended
            for ordered, _ in sent:
                ordered.fail(error)

    def _send(self, process: Process, ordered: Ordered, sent: deque[tuple[Ordered, Sequence[int]]]) -> None:
        try:
            positions = self._plan.positions(ordered.number)
            offsets = process.read(self._plan.records, positions)
        except BaseException as error:
            ordered.fail(error)
            return
        if len(offsets) == 1:
            ordered.deliver(NOTHING)
            return
        sent.append((ordered, positions))
        process.send(offsets)

    def _receive(self, process: Process, ordered: Ordered, positions: Sequence[int]) -> None:
        received = process.receive()
        try:
            answer = received.load()
            if type(answer) is not Failed:
                ordered.measure(answer)
                ordered.deliver(answer if self._place is None else self._place(answer))
                return
        except BaseException as error:
            ordered.fail(error)
            return
        answer.error.__cause__ = _RemoteTraceback(answer.traceback)
        if answer.record is None:
            add_note(answer.error, f"in collate on {self._plan.describe(ordered.number)}")
        else:
            mapped: MappedRecords[Any] = MappedRecords(self._plan.records, *self._functions)
            mapped._noted_among(answer.error, positions, answer.record)
        ordered.fail(answer.error)

    def interrupt(self) -> None:
        for process in self._processes:
            process.interrupt()

    def close(self) -> None:
        # All end at once. Ctrl-C may interrupt this; the next call goes on with those that are left.
        for process in self._processes:
            process.end()
        while self._processes:
            self._processes[-1].close()
            self._processes.pop()
