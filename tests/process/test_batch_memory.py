"""The memory of batches is used again: no new pages for each batch, whoever reads, and no batch sees another."""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

import anyrecord
import pytest
from anyrecord import Records
from children import LIMIT_SECONDS, forked, python

COUNT = 2000


def record(index: int) -> bytes:
    return (b"%06d" % index) * 683  # about 4 KB


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "data.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(map(record, range(COUNT)))
    return path


FAULTS = """
import resource, sys, threading
import anyrecord

records = anyrecord.open(sys.argv[1], threads=1)
pages, batches = 256, 40
read = {
    "lists": lambda at: records[range(at, at + 256)],
    "packed": lambda at: records.read_packed(range(at, at + 256)),
    "iteration": lambda at: list(records[at:at + 256]),
}[sys.argv[2]]

def work(count):
    for at in range(count):
        read(at * 37 % 1700)

def in_threads(count):
    threads = [threading.Thread(target=work, args=(count,)) for _ in range(int(sys.argv[3]))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

for at in range(0, 1700, 100):
    read(at)
work(20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
if sys.argv[3] == "0":
    work(batches)
else:
    in_threads(batches)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults / (batches * max(1, int(sys.argv[3]))) / pages)
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "confstr"), reason="about glibc")
@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("way", ["lists", "packed", "iteration"])
def test_a_batch_takes_the_memory_of_the_one_before(path: Path, way: str, threads: int) -> None:
    if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
        pytest.skip("another C library")
    part = float(python(FAULTS, str(path), way, str(threads)))
    assert part < 0.1, f"{part:.0%} of the pages of a batch were new"


def check(records: Records, seed: int) -> None:
    """Reads batches of many sizes and keeps some of them for a while."""
    chance = random.Random(seed)
    kept: list[tuple[list[int], anyrecord.Packed]] = []
    for _ in range(60):
        picked = chance.choices(range(COUNT), k=chance.choice([0, 1, 5, 20, 60, 200]))
        packed = records.read_packed(picked)
        kept.append((picked, packed))
        if len(kept) > 3:
            picked, packed = kept.pop(chance.randrange(len(kept)))
            assert packed.tolist() == [record(index) for index in picked]
            packed.data[:] = b"\xff" * packed.data.nbytes  # what is freed next must not be seen in a later batch
    for picked, packed in kept:
        assert packed.tolist() == [record(index) for index in picked]


@pytest.mark.parametrize("number", [1, None])
def test_threads_that_pack_at_once_do_not_share_memory(path: Path, number: int | None) -> None:
    with anyrecord.open(path, threads=number) as records:
        errors: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                check(records, seed)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
        assert errors == []


def test_children_forked_while_others_pack_read_on_in_memory_of_their_own(path: Path) -> None:
    records, ended = anyrecord.open(path), threading.Event()

    def work(seed: int) -> None:
        while not ended.is_set():
            check(records, seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        mine = records.read_packed(range(300))

        def child() -> bool:
            check(records, 7)
            is_same = mine.tolist() == [record(index) for index in range(300)]
            mine.data[:4] = b"mine"
            return is_same

        for _ in range(5):
            assert forked(child)
        assert mine.tolist() == [record(index) for index in range(300)]
    finally:
        ended.set()
        for thread in threads:
            thread.join(LIMIT_SECONDS)


LEAKS = """
import resource, sys
import anyrecord, numpy

records = anyrecord.open(sys.argv[1], threads=1)

def round():
    packed = records.read_packed(range(256))
    packed.__dlpack__(), packed.__dlpack__(max_version=(1, 0)), packed.__dlpack__(copy=True)
    schema, array = packed.__arrow_c_array__()
    packed.__arrow_c_array__(schema), packed.__arrow_c_schema__(), packed.__arrow_c_stream__()
    arrays = numpy.from_dlpack(packed), numpy.from_dlpack(packed, copy=True), packed.numpy()
    records_of_it = [packed.record(i) for i in range(256)]

for _ in range(20):
    round()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(300):
    round()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_all_that_shares_the_memory_of_a_batch_gives_it_back(path: Path) -> None:
    grown = int(python(LEAKS, str(path))) << 10
    assert grown < 50 << 20, "each round that leaks a batch leaks 1 MB"
