"""What becomes of the threads and processes of a `Loader`: when it is stopped, fails, forks or exits."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Records
from children import LIMIT_SECONDS, forked, python

from . import loading
from .loading import N, nothing_left_behind, numbers, write_numbers

pytestmark = pytest.mark.framework

KINDS: list[dict[str, Any]] = [{"threads": 3}, {"processes": 2}, {"processes": 1, "context": "fork"}]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return anyrecord.open(write_numbers(tmp_path_factory.mktemp("loader") / "numbers.ffr"))


def loader(*arguments: Any, **keywords: Any) -> Any:
    from anyrecord.torch import Loader

    return Loader(*arguments, **keywords)


# Stopping


def leave_a_loop(batches: Any) -> None:
    for _ in batches:
        break


def fail_in_a_loop(batches: Any) -> None:
    def loop() -> None:
        for _ in batches:
            raise KeyError

    with pytest.raises(KeyError):
        loop()


def close(batches: Any) -> None:
    it = iter(batches)
    next(it)
    it.close()
    assert list(it) == []
    it.close()


def never_begin(batches: Any) -> None:
    iter(batches)


def leave_a_cycle(batches: Any) -> None:
    it = iter(batches)
    next(it)
    cycle: list[Any] = [it]
    cycle.append(cycle)
    gone = weakref.ref(it)
    del it, cycle
    gc.collect()
    assert gone() is None


def run_to_the_end(batches: Any) -> None:
    assert numbers(batches) == list(range(N))


def close_from_another_thread(batches: Any) -> None:
    it = iter(batches)
    next(it)
    thread = threading.Thread(target=it.close)
    thread.start()
    thread.join()
    assert list(it) == []


ENDS = [
    leave_a_loop,
    fail_in_a_loop,
    close,
    never_begin,
    leave_a_cycle,
    run_to_the_end,
    close_from_another_thread,
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_is_left_behind_however_it_ends(records: Records, kind: dict[str, Any]) -> None:
    for end in ENDS:
        with nothing_left_behind():
            end(loader(records, 8, decode=int, **kind))


def test_programs_may_have_a_default_timeout_of_sockets(records: Records) -> None:
    # Apache Beam sets one. Python then makes connections non-blocking that descriptors are sent through.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60)
    try:
        with nothing_left_behind():
            assert numbers(loader(records, 8, decode=int, processes=2)) == list(range(N))
    finally:
        socket.setdefaulttimeout(before)


def test_a_process_that_hangs_is_ended(records: Records) -> None:
    with nothing_left_behind():
        batches = iter(loader(records, 8, decode=loading.hangs, processes=2))
        got: list[Any] = []
        consumer = threading.Thread(target=lambda: got.extend(batches))
        consumer.start()
        while batches._pipeline is None:
            pass
        batches.close()
        consumer.join()
        assert got == []


def test_a_consumer_that_waits_is_woken_by_close(records: Records) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def decode(record: bytes) -> int:
        begun.set()
        go_on.wait()
        return int(record)

    batches = iter(loader(records, 8, decode=decode, threads=1))
    got: list[Any] = []
    consumer = threading.Thread(target=lambda: got.extend(batches))
    consumer.start()
    begun.wait()
    closer = threading.Thread(target=batches.close)
    closer.start()
    # The threads begin before the consumer has the pipeline.
    while batches._pipeline is None or not batches._pipeline.is_closed:
        pass
    go_on.set()
    closer.join()
    consumer.join()
    assert got == []


def test_the_garbage_collector_may_close_what_is_being_closed() -> None:
    """At exit, all pipelines are closed, and the collector may find the iterator of one of them meanwhile."""
    script = """if True:
        import gc, threading
        import anyrecord.torch
        from anyrecord.torch._pipeline import Maker, Pipeline
        from anyrecord.torch import _pipeline

        class Collecting(Maker):
            def make(self, number, piece, of):
                return number

            def interrupt(self):
                pipeline.close()

        pipeline = Pipeline(Collecting(), 10, 2)
        print(pipeline.take())
        _pipeline._close_all()
        print([t.name for t in threading.enumerate() if "loader" in t.name])
    """
    assert python(script) == "0\n[]\n"


def test_the_garbage_collector_may_run_in_a_thread_that_another_loader_waits_for(records: Records) -> None:
    script = f"""if True:
        import gc, threading
        from anyrecord.torch import Loader

        begun, go_on = threading.Event(), threading.Event()

        def wait(samples):
            if samples[0] != b"0":
                begun.set()
                go_on.wait()
            return len(samples)

        def collect(samples):
            gc.collect()
            go_on.set()
            return len(samples)

        gc.disable()
        it = iter(Loader({records.paths[0]!r}, 8, collate=wait, threads=1))
        next(it)
        begun.wait()
        cycle = [it]
        cycle.append(cycle)
        del it, cycle
        print(sum(Loader({records.paths[0]!r}, 8, collate=collect, threads=1)))
        for thread in threading.enumerate():
            if "loader" in thread.name:
                thread.join()
    """
    assert python(script) == f"{N}\n"


class Batch:
    """A batch that one can have a weak reference to."""

    def __init__(self, samples: list[bytes]) -> None:
        self.samples = samples


def test_an_iterator_that_was_closed_keeps_no_batches(records: Records) -> None:
    made: weakref.WeakSet[Batch] = weakref.WeakSet()
    count = threading.Semaphore(0)

    def collate(samples: list[bytes]) -> Batch:
        batch = Batch(samples)
        made.add(batch)
        count.release()
        return batch

    it = iter(loader(records, 8, collate=collate, threads=2, prefetch=5))
    next(it)
    for _ in range(6):
        count.acquire()
    it.close()
    assert list(made) == []


def test_an_iterator_that_failed_keeps_no_batches(records: Records) -> None:
    made: weakref.WeakSet[Batch] = weakref.WeakSet()
    count = threading.Semaphore(0)

    def collate(samples: list[bytes]) -> Batch:
        if b"100" in samples:
            for _ in range(4):  # those behind this one
                count.acquire()
            raise ZeroDivisionError
        batch = Batch(samples)
        if int(samples[0]) > 100:
            made.add(batch)
            count.release()
        return batch

    it = iter(loader(records, 8, collate=collate, threads=2, prefetch=5))
    with pytest.raises(ZeroDivisionError):
        for _ in it:
            pass
    assert list(made) == []


def test_the_end_of_a_program_closes_all_loaders_whatever_fails() -> None:
    from anyrecord.torch._pipeline import Maker, Pipeline, _close_all

    class Fails(Maker):
        closed = 0

        def make(self, number: int, piece: int, of: int) -> int:
            return number

        def close(self) -> None:
            self.closed += 1
            if self.closed == 1:
                raise ZeroDivisionError

    makers = [Fails(), Fails()]
    pipelines = [Pipeline(maker, 10, 1) for maker in makers]
    with pytest.raises(ZeroDivisionError):
        _close_all()
    assert [maker.closed for maker in makers] == [1, 1]
    for pipeline in pipelines:
        pipeline.close()


@pytest.mark.parametrize("kind", [{"threads": 0}, {"threads": 2}], ids=str)
def test_several_threads_may_take_batches_from_one_iterator(records: Records, kind: dict[str, Any]) -> None:
    with nothing_left_behind():
        for _ in range(20):
            batches = loader(records, 3, decode=int, **kind)
            it, got, start = iter(batches), list[list[int]](), threading.Barrier(4)

            def take(it: Any = it, got: list[list[int]] = got, start: threading.Barrier = start) -> None:
                start.wait()
                got.extend(it)

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(numbers(got)) == list(range(N))
            assert batches.state_dict()["position"] == N
            del it, take


def test_a_program_may_exit_in_the_middle(records: Records) -> None:
    script = f"""if True:
        import atexit, threading
        atexit.register(lambda: print("left", [t.name for t in threading.enumerate() if "loader" in t.name]))
        import anyrecord.torch
        kinds = {{}}, {{"decode": int}}, {{"collate": "packed"}}, {{"decode": len, "processes": 2}}
        running = [iter(anyrecord.torch.Loader({records.paths[0]!r}, 4, **keywords)) for keywords in kinds]
        print("delivered", [len(next(batches)) for batches in running])
    """
    assert python(script) == "delivered [4, 4, 2, 4]\nleft []\n"


# Errors


FAILURES: list[tuple[Callable[[bytes], Any], type[Exception], str]] = [
    (loading.fails_at_100, KeyError, "a hundred"),
    (loading.stops_at_100, RuntimeError, "raised StopIteration"),
]
FAILURES_OF_PROCESSES: list[tuple[Callable[[bytes], Any], type[Exception], str]] = [
    *FAILURES,
    (loading.not_pickled_at_100, RuntimeError, "NotPickled: 1 and 2"),
    (loading.refused_at_100, ConnectionRefusedError, "by a server"),
]


@pytest.mark.parametrize("kind", [{"threads": 0}, {"threads": 1}, {"threads": 3}], ids=str)
@pytest.mark.parametrize(("decode", "error", "message"), FAILURES)
def test_an_error_of_decode_names_the_record(
    records: Records, kind: dict[str, Any], decode: Any, error: type[Exception], message: str
) -> None:
    assert_named(records, kind, decode, error, message)


@pytest.mark.parametrize(("decode", "error", "message"), FAILURES_OF_PROCESSES)
def test_an_error_of_decode_in_a_process_names_the_record(
    records: Records, decode: Any, error: type[Exception], message: str
) -> None:
    raised = assert_named(records, {"processes": 2}, decode, error, message)
    assert "Traceback" in str(raised.__cause__)
    assert "_at_100" in str(raised.__cause__), "the traceback of the process"


def assert_named(
    records: Records, kind: dict[str, Any], decode: Any, error: type[Exception], message: str
) -> BaseException:
    batches = loader(records[::-1], 8, decode=decode, **kind)
    seen: list[list[int]] = []
    with nothing_left_behind(), pytest.raises(error, match=message) as caught:
        seen.extend(batches)
    assert numbers(seen) == list(range(N - 1, 101, -1)), "the batches before it were delivered"
    assert batches.state_dict()["position"] == 8 * len(seen)
    assert f"in the function on record 100 of {records.paths[0]}, at position 49 of the view" in caught.value.__notes__
    return caught.value


@pytest.mark.parametrize("kind", [{"threads": 0}, {"threads": 2}, {"processes": 1}], ids=str)
def test_an_error_of_collate_names_the_batch(records: Records, kind: dict[str, Any]) -> None:
    with nothing_left_behind(), pytest.raises(ZeroDivisionError, match="in vain") as caught:
        list(loader(records, 8, decode=int, collate=loading.fails_to_collate, **kind))
    assert caught.value.__notes__ == [f"in collate on the batch that begins with record 96 of {records.paths[0]}"]


def test_a_killed_process_is_an_error_that_names_it(records: Records) -> None:
    seen: list[list[int]] = []
    batches = loader(records, 8, decode=loading.dies_at_100, processes=2)
    message = r"worker process \d+ of the loader was killed by SIGKILL"
    with nothing_left_behind(), pytest.raises(RuntimeError, match=message):
        seen.extend(batches)
    # The batches of the other process are before and after it.
    assert numbers(seen) == list(range(8 * len(seen)))
    assert 8 * len(seen) <= 96


def test_a_sample_that_cannot_be_sent_is_an_error(records: Records) -> None:
    with nothing_left_behind(), pytest.raises(Exception, match=r"(?i)pickle") as caught:
        list(loader(records, 8, decode=loading.lambda_at_100, processes=1))
    assert "in collate on the batch that begins with record 96" in caught.value.__notes__[0]


def test_an_error_does_not_keep_the_batch_alive(records: Records) -> None:
    """The error's traceback has frames of the loader's thread, and these have the batch."""
    batches = iter(loader(records, 8, decode=loading.fails_at_100, threads=2))
    next(batches)
    pipeline = weakref.ref(batches._pipeline)
    with pytest.raises(KeyError):
        list(batches)
    gc.disable()
    try:
        del batches
        assert pipeline() is None, "a cycle"
    finally:
        gc.enable()


def test_closed_records_are_an_error(tmp_path: Path) -> None:
    records = anyrecord.open(write_numbers(tmp_path / "a.ffr"))
    batches = loader(records, 8)
    records.close()
    with nothing_left_behind(), pytest.raises(anyrecord.ClosedError):
        list(batches)


# Fork


def test_an_iterator_cannot_be_used_after_a_fork_but_the_loader_can(records: Records) -> None:
    batches = loader(records, 8, decode=int, threads=2)
    it = iter(batches)
    first = next(it)

    def in_child() -> tuple[str, list[int]]:
        try:
            next(it)
        except RuntimeError as error:
            text = str(error)
        it.close()
        return text, numbers(batches)

    text, of_child = forked(in_child)
    assert "belongs to the parent process" in text
    assert of_child == list(range(N))
    assert first + numbers(it) == list(range(N))


# Processes


def test_processes_in_a_worker_of_a_data_loader_are_refused_and_threads_work(records: Records) -> None:
    from torch.utils.data import DataLoader

    class Samples:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, number: int) -> tuple[list[int], str]:
            with pytest.raises(RuntimeError) as caught:
                list(loader(records, 8, decode=int, processes=1))
            return numbers(loader(records, 8, decode=int, threads=2)), str(caught.value)

    batches: Any = DataLoader(Samples(), batch_size=None, num_workers=1, multiprocessing_context="fork")
    ((got, message),) = batches
    assert got == list(range(N))
    assert "may not start processes; use threads= instead of processes=" in message


def test_forked_processes_end_when_their_parent_is_killed(records: Records) -> None:
    script = f"""if True:
        import multiprocessing, os, signal
        from anyrecord.torch import Loader
        batches = iter(Loader({records.paths[0]!r}, 8, decode=int, processes=3, context="fork"))
        next(batches)
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    try:
        # It waits for the end of the output, which the processes hold, too.
        subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        for pid in (error.output or b"").split():
            os.kill(int(pid), signal.SIGKILL)
        raise AssertionError("the processes did not end") from None


def test_an_interrupted_close_of_processes_can_be_repeated(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyrecord.torch._parent import Process

    close, calls = Process.close, itertools.count()

    def interrupted(process: Process) -> None:
        assert all(each._connection.closed for each in processes), "all are told to end before one is waited for"
        if next(calls) == 1:
            raise KeyboardInterrupt
        close(process)

    with nothing_left_behind():
        it = iter(loader(records, 8, decode=int, processes=3))
        next(it)
        processes = list(it._pipeline._maker._processes)
        monkeypatch.setattr(Process, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            it.close()
        it.close()
        assert next(calls) == 4, "each was closed once"


def test_a_thread_that_waits_for_work_for_its_process_does_not_keep_the_last_batch(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyrecord.torch import _pipeline

    waits = threading.Semaphore(0)

    class Tasks(_pipeline.Tasks):
        def __init__(self) -> None:
            super().__init__()
            take = self.take

            def counted(block: bool = True) -> Any:
                if block:
                    waits.release()
                return take(block)

            self.take = counted  # type: ignore[assignment]  # called with one argument only

    monkeypatch.setattr(_pipeline, "Tasks", Tasks)
    it = iter(loader(records[:8], 8, decode=int, collate="tensors", processes=1))
    batch = weakref.ref(next(it))
    for _ in range(2):  # for the only batch, and for the next one
        waits.acquire()
    assert batch() is None
    it.close()


def test_processes_take_as_much_memory_as_there_are_records(records: Records) -> None:
    with nothing_left_behind():
        assert numbers(loader(records, 10**12, decode=int, processes=1)) == list(range(N))


def test_functions_that_processes_cannot_import_are_refused_at_once(records: Records) -> None:
    script = f"""if True:
        from anyrecord.torch import Loader
        def decode(record):
            return int(record)
        for context in ("forkserver", "spawn"):
            try:
                Loader({records.paths[0]!r}, 4, decode=decode, processes=1, context=context)
            except TypeError as error:
                print(error)
        print(len(list(Loader({records.paths[0]!r}, 50, decode=decode, processes=1, context="fork"))))
    """
    *messages, batches = python(script).splitlines()
    assert batches == str(N // 50)
    assert len(messages) == 2
    for message in messages:
        assert "defined in a notebook or an interactive session; define them in a module, or use threads=" in message


def test_batches_of_processes_come_in_order_in_every_form(records: Records) -> None:
    with nothing_left_behind():
        lists = loader(records, 8, decode=int, processes=2, shuffle=True, seed=1)
        assert numbers(lists) == loading.order(N)
        assert lists.state_dict() == loader_at_the_end(records)
        joined = loader(records[8:11], 3, decode=loading.tensor, collate="jagged", processes=1)
        assert [row.tolist() for batch in joined for row in batch.unbind()] == [[8, 8, 8], [9], [10, 10]]
        collated = loader(records, 64, decode=loading.pair, collate="tensors", processes=2)
        assert [x for batch in collated for x in batch["number"].tolist()] == list(range(N))
        assert list(loader(records, 64, collate=len, processes=2)) == [64, 64, N - 128]


def loader_at_the_end(records: Records) -> dict[str, int]:
    batches = loader(records, 16, shuffle=True, seed=1)
    list(batches)
    state: dict[str, int] = batches.state_dict()
    return state


def test_processes_take_batches_that_are_larger_than_those_before(tmp_path: Path) -> None:
    sizes = [10, 3_000_000, 20, 0, 5_000_000, 1, 0, 7_000_000]
    with anyrecord.create(tmp_path / "a.ffr", durable=False) as out:
        out.write_many(bytes(size) for size in sizes)
    with nothing_left_behind():
        assert numbers(loader(tmp_path / "a.ffr", 1, decode=len, processes=2)) == sizes


def test_processes_leave_damaged_records_out(tmp_path: Path) -> None:
    data = bytearray(write_numbers(tmp_path / "a.ffr").read_bytes())
    data[data.rindex(b"100101102") - 1] ^= 1  # record 99
    (tmp_path / "a.ffr").write_bytes(data)
    records = anyrecord.open(tmp_path / "a.ffr", on_error="skip")
    with pytest.warns(anyrecord.DamageWarning), pytest.raises(KeyError) as caught:
        list(loader(records, 8, decode=loading.fails_at_100, processes=1))
    assert caught.value.__notes__[0].startswith("in the function on record 100 of")
    opened = anyrecord.open(tmp_path / "a.ffr", on_error="skip")
    with pytest.warns(anyrecord.DamageWarning):
        got = numbers(loader(opened, 1, decode=int, processes=1))
    assert got == [i for i in range(N) if i != 99]


def test_samples_arrive_from_processes_as_they_were_made(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def check(samples: list[Any], ours: list[Any]) -> None:
        assert len(samples) == len(ours)
        for sample, own in zip(samples, ours, strict=True):
            assert sample.keys() == own.keys()
            for name, value in own.items():
                got = sample[name]
                assert type(got) is type(value), name
                if isinstance(value, torch.Tensor):
                    assert (got.dtype, got.shape, got.layout) == (value.dtype, value.shape, value.layout), name
                    assert got.requires_grad == value.requires_grad
                    assert torch.equal(got.detach(), value.detach()), name
                    with torch.no_grad():
                        got.zero_()  # it can be written to
                else:
                    assert (got.tolist() if name == "array" else got) == (value.tolist() if name == "array" else value)

    few = records[:20]
    ours = [loading.many_kinds(record) for record in few]
    with nothing_left_behind():
        batches = list(loader(few, 8, decode=loading.many_kinds, processes=2))
        check([sample for batch in batches for sample in batch], ours)
        batches.clear()
        # As on systems without anonymous files.
        monkeypatch.delattr("os.memfd_create")
        batches = list(loader(few, 8, decode=loading.many_kinds, processes=2, context="fork"))
        check([sample for batch in batches for sample in batch], ours)


def test_processes_have_few_descriptors_however_many_tensors_they_send(records: Records) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    list(loader(records[:1], 1, decode=loading.tensor, processes=1))  # starts the fork server
    before = opened()
    batches = list(loader(records, 50, decode=loading.tensor, processes=2))
    assert opened() - before < 10
    assert [int(sample[0]) for batch in batches for sample in batch] == list(range(N))


def test_large_jobs_and_large_answers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Both directions of a connection hold less than one of these batches."""
    n = 100_000
    with anyrecord.create(tmp_path / "a.ffr", durable=False) as out:
        out.write_many(b"%d" % i for i in range(n))
    batches = loader(tmp_path / "a.ffr", n // 4, decode=bytes.decode, processes=1)
    assert numbers(batches) == list(range(n))


def test_each_process_has_random_numbers_of_its_own(records: Records) -> None:
    """Also in the next epoch, whose processes are new ones."""
    batches = loader(records[:8], 1, decode=loading.random_numbers, processes=4)
    seen = [sample for _ in range(2) for batch in batches for sample in batch]
    for numbers_of_one_kind in zip(*seen, strict=True):
        assert len(set(numbers_of_one_kind)) == 16
