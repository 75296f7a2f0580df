"""Runners on one machine: threads, processes, a job service. Slow consumers, and workers that are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyrecord
import apache_beam as beam
import grpc
import pytest
from anyrecord.beam import ReadAllFromRecords, ReadFromRecords, WriteToRecords
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import SubprocessSdkWorkerHandler
from apache_beam.runners.portability.local_job_service import SubprocessSdkWorker
from conformance.formats import FIRST_CASES, Case

from .files import Collect, collected, left_in, pipeline, write

pytestmark = pytest.mark.framework

RECORDS = [b"%d" % number for number in range(200)]
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
THREADS = ("--direct_running_mode=multi_threading", "--direct_num_workers=2")


@contextmanager
def job_service() -> Iterator[str]:
    """The address of a local job service."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "apache_beam.runners.portability.local_job_service_main", "--port", str(port)]
    with open("service.log", "wb") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        address = f"localhost:{port}"
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(timeout=120)
        yield address
    finally:
        service.terminate()
        service.wait()


def copy_records(case: Case, flags: tuple[str, ...], runner: Any = "FnApiRunner") -> None:
    """Reads a file in many ranges and writes its records, all on one runner."""
    path = os.path.abspath(write("in", case, RECORDS))
    with pipeline(*flags, runner=runner) as started:
        records = started | ReadFromRecords(path, desired_bundle_size=500)
        records | WriteToRecords(os.path.abspath("out/a"), file_name_suffix=case.suffix)
        names = started | beam.Create([path])
        positions = names | ReadAllFromRecords(with_position=True, desired_bundle_size=500)
        positions | "Keyed" >> WriteToRecords(
            os.path.abspath("keyed/a"), file_name_suffix=case.suffix, num_shards=3, coder=beam.coders.PickleCoder()
        )
    assert sorted(anyrecord.open("out")) == sorted(RECORDS)
    assert all(name.startswith("a-") for name in left_in("out") + left_in("keyed"))
    keyed = [beam.coders.PickleCoder().decode(record) for record in anyrecord.open(f"keyed/a{case.suffix}@3")]
    assert sorted(keyed) == [(path, index, record) for index, record in enumerate(RECORDS)]


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
@pytest.mark.parametrize("flags", [(), THREADS, PROCESSES], ids=["in_process", "multi_threading", "multi_processing"])
def test_records_are_copied_on_this_machine(case: Case, flags: tuple[str, ...]) -> None:
    copy_records(case, flags)


def test_records_are_copied_by_the_portable_runner() -> None:
    with job_service() as address:
        flags = (f"--job_endpoint={address}", "--environment_type=LOOPBACK")
        copy_records(FIRST_CASES[0], flags, "PortableRunner")


# --- slow consumers ---


class WaitForSplits(beam.DoFn):
    """The first bundle waits at some of its records until a split was made. Each wait is a pipe."""

    def __init__(self, waits: dict[int, str]) -> None:
        self._waits, self._folder = waits, os.getcwd()

    def start_bundle(self) -> None:
        self._seen = 0

    def process(self, record: Any) -> Iterator[Any]:
        self._seen += 1
        if self._seen == 1:
            self._is_first = self._take("first-bundle")
        if self._is_first and self._seen in self._waits:
            Path(self._folder, self._waits[self._seen]).read_bytes()  # blocks until a writer has closed it
        yield (os.getpid(), record)

    def _take(self, name: str) -> bool:
        """Whether nobody has taken it before."""
        try:
            os.close(os.open(f"{self._folder}/{name}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@pytest.mark.parametrize("flags", [THREADS, PROCESSES], ids=["multi_threading", "multi_processing"])
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_what_is_left_for_a_slow_consumer_is_split_again_and_again(case: Case, flags: tuple[str, ...]) -> None:
    path = os.path.abspath(write("in", case, RECORDS))
    waits = {1: "pipe-0", 4: "pipe-1", 7: "pipe-2"}
    for name in waits.values():
        os.mkfifo(name)
    splits: list[Any] = []

    def split(elements: int) -> Iterator[float | None]:
        """Splits the first bundle three times, each time while its consumer waits."""
        if splits or not elements:
            return
        yield None  # begin the bundle
        for name in waits.values():
            while (made := (yield 0.5)) is None:
                pass
            splits.append(made)
            Path(name).write_bytes(b"")

    with fn_runner.split_manager("Read/ReadRanges", split), pipeline(*flags) as started:
        reading = ReadFromRecords(path, with_position=True)
        started | "Read" >> reading | beam.ParDo(WaitForSplits(waits)) | Collect("collected")
    assert len(splits) == 3
    found = collected("collected")
    assert sorted(position for _, position in found) == [(path, index, record) for index, record in enumerate(RECORDS)]
    if flags == PROCESSES:
        assert len({process for process, _ in found}) == 2, "another process has read what was split off"


# --- workers that are killed ---


UNHANDLED = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""Threads of the runner that talk to the dead worker."""


class KillAt(beam.DoFn):
    """Kills its own process at one record, once."""

    def __init__(self, record: bytes) -> None:
        self._record, self._folder = record, os.getcwd()

    def process(self, record: bytes) -> Iterator[bytes]:
        mark = Path(self._folder, "killed")
        if record == self._record and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield record


@pytest.fixture
def noticing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the runner notice each time that a worker process has died. By itself it sometimes waits for ever."""

    def start_worker(self: Any) -> None:
        worker = SubprocessSdkWorker(
            self._worker_command_line, self.control_address, self.provision_info, self.worker_id
        )

        def run() -> None:
            try:
                worker.run()
            except RuntimeError as error:
                self.control_conn.abort(error)

        self.worker_thread = threading.Thread(target=run)
        self.worker_thread.start()

    monkeypatch.setattr(SubprocessSdkWorkerHandler, "start_worker", start_worker)


@pytest.fixture
def retrying(noticing: None, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Lets the runner give the bundle of a dead worker to another one, as Dataflow, Flink and Spark do.

    The runner of this machine would end the job. The result is the list of failures.
    """
    failures: list[Exception] = []
    dead: list[Any] = []
    process = fn_runner.BundleManager.process_bundle

    def process_again(self: Any, *arguments: Any, **keywords: Any) -> Any:
        context = self.bundle_context_manager
        while True:
            context._worker_handlers = [worker for worker in context.worker_handlers if worker not in dead]
            try:
                return process(self, *arguments, **keywords)
            except Exception as error:
                if failures:
                    raise
                failures.append(error)
                dead.append(self._worker_handler)

    monkeypatch.setattr(fn_runner.BundleManager, "process_bundle", process_again)
    return failures


@UNHANDLED
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_the_bundle_of_a_killed_worker_is_done_by_another_one(case: Case, retrying: list[Exception]) -> None:
    path = os.path.abspath(write("in", case, RECORDS))
    with pipeline(*PROCESSES) as started:
        records = started | ReadFromRecords(path, desired_bundle_size=500) | beam.ParDo(KillAt(RECORDS[100]))
        records | WriteToRecords(os.path.abspath("out/a"), file_name_suffix=case.suffix)
    assert Path("killed").exists()
    assert retrying
    assert sorted(anyrecord.open("out")) == sorted(RECORDS)
    assert all(name.startswith("a-") for name in left_in("out")), "no temporary files"


@UNHANDLED
def test_without_retries_a_killed_worker_ends_the_job_and_the_next_run_is_complete(noticing: None) -> None:
    path = os.path.abspath(write("in", FIRST_CASES[0], RECORDS))

    def run() -> None:
        with pipeline(*PROCESSES) as started:
            records = started | ReadFromRecords(path, desired_bundle_size=500) | beam.ParDo(KillAt(RECORDS[100]))
            records | WriteToRecords(os.path.abspath("out/a"), file_name_suffix=".array_record")

    with pytest.raises(Exception, match=r"Channel closed|Worker subprocess exited"):
        run()
    assert not [name for name in left_in("out") if name.startswith("a-")], "no file has its final name"
    run()
    assert sorted(anyrecord.open("out")) == sorted(RECORDS)
