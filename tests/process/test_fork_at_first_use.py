"""Forks while other threads use the library for the first time: no initialisation leaves a lock closed in the child."""

from __future__ import annotations

from pathlib import Path

import anyrecord
import pytest
from children import python

# Everything that is made at first use: thread pools, caches, types, the SIGBUS handler, errors.
SCRIPT = """
import io, os, signal, sys, threading, warnings
import anyrecord
warnings.simplefilter("ignore")
ways = sys.argv[1].split(",")
rows = [b"%d" % i * 30 for i in range(1000)]

def batch():
    with anyrecord.open("a.array_record", threads=3, cache_bytes=1 << 20) as records:
        assert records[list(range(1000))] == rows
def map():
    with anyrecord.open(["a.ffr"] * 6, io="map") as records:
        assert records[5999] == rows[999] and bytes(records.buffer(7)) == rows[7]
def direct():
    with anyrecord.open("a.ffr", io="direct") as records:
        assert records[[5, 900]] == [rows[5], rows[900]]
def write():
    with anyrecord.create(io.BytesIO(), format="array_record", codec="zstd", threads=2) as out:
        out.write_many(rows)
def fail():
    with anyrecord.open("cut.ffr", io="plain") as records:
        try: records[list(range(1000)) * 4]
        except anyrecord.ChecksumError: return
        raise AssertionError
def file():
    with open("a.ffr", "rb") as file:
        assert anyrecord.open(file)[[1, 2]] == rows[1:3]

def act():
    for way in ways: globals()[way]()

stop, begun = threading.Event(), threading.Barrier(5)
def run():
    begun.wait()
    while not stop.is_set(): act()
threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads: thread.start()
begun.wait()
children = []
for _ in range(15):
    child = os.fork()
    if child == 0:
        signal.alarm(40)  # ends a child that hangs
        try: act()
        except BaseException as error: os.write(2, repr(error).encode())
        else: os._exit(0)
        os._exit(1)
    children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
for thread in threads: thread.join()
print(children)
"""


@pytest.mark.parametrize(
    "ways", ["batch", "map", "direct", "write", "fail", "file", "map,fail,batch,file,write,direct"]
)
def test_a_child_that_is_forked_in_the_middle_of_a_first_use_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.ffr", "a.array_record", "cut.ffr"):
        with anyrecord.create(name, durable=False) as out:
            out.write_many(b"%d" % index * 30 for index in range(1000))
    damaged = bytearray(Path("cut.ffr").read_bytes())
    damaged[-1000] ^= 1
    Path("cut.ffr").write_bytes(damaged)
    for _ in range(3):
        assert python(SCRIPT, ways).strip() == str([0] * 15)
