"""A conversion that does not come to its end leaves nothing behind that could be taken for its result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError, _core
from anyrecord._options import open_options
from anyrecord._writer import Creating, Writer, new_writer
from children import LIMIT_SECONDS
from conformance.formats import CASES, Case

RECORDS = [b"%d" % number * 100 for number in range(3000)]


@pytest.fixture
def source() -> str:
    with anyrecord.create("a.tfrecord", durable=False) as out:
        out.write_many(RECORDS)
    return "a.tfrecord"


SCRIPT = """
import sys, anyrecord

def halfway(record):
    if record == b"1500" * 100:
        print("halfway", flush=True)
        sys.stdin.readline()
    return record

try:
    anyrecord.convert("a.tfrecord", sys.argv[1], format=sys.argv[2], map=halfway, shards=eval(sys.argv[3]))
except KeyboardInterrupt:
    sys.exit(77)
"""


@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 77), (signal.SIGKILL, -signal.SIGKILL)], ids=["int", "kill"]
)
def test_a_killed_conversion_leaves_the_old_files_and_can_be_run_again(
    source: str, suffix: str, sent: signal.Signals, code: int, shards: int | None
) -> None:
    format = _core.format_of_suffix(suffix) or ""
    command = [sys.executable, "-c", SCRIPT, f"b{suffix}", format, repr(shards)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "halfway\n"
        child.send_signal(sent)
        child.communicate("\n", timeout=LIMIT_SECONDS)
    assert child.returncode == code
    seen = [name for name in os.listdir() if not name.startswith(".")]
    assert seen == ["a.tfrecord"]
    if sent == signal.SIGINT:
        assert os.listdir() == ["a.tfrecord"], "not even a temporary file"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a killed process leaves temporary files
        done = anyrecord.convert(source, f"b{suffix}", shards=shards)
    assert not [name for name in os.listdir() if name.startswith(".")]
    assert [record for path in done.paths for record in anyrecord.open(path)] == RECORDS


def test_ctrl_c_is_heard_without_a_function_on_the_records(tmp_path: Path) -> None:
    """Nothing but the core runs, and it looks up now and then."""
    with anyrecord.create("large.tfrecord", durable=False) as out:
        for _ in range(200):
            out.write(os.urandom(1 << 20))
    script = """
import os, signal, sys, threading, anyrecord
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    anyrecord.convert("large.tfrecord", "b.array_record", codec="brotli", level=11, threads=2)
except KeyboardInterrupt:
    sys.exit(77)
"""
    ran = subprocess.run([sys.executable, "-c", script], timeout=LIMIT_SECONDS, check=False)
    assert ran.returncode == 77
    assert os.listdir() == ["large.tfrecord"]


def test_one_failure_among_many_files_publishes_none_of_them(source: str, suffix: str) -> None:
    for number in range(5):
        Path(f"{number}.tfrecord").write_bytes(Path(source).read_bytes())
    with open("3.tfrecord", "r+b") as file:
        file.seek(100_000)
        file.write(b"damaged")
    with pytest.raises(anyrecord.FormatError) as caught:
        anyrecord.convert("[0-9].tfrecord", "made/", format=_core.format_of_suffix(suffix))
    assert caught.value.path == "3.tfrecord"
    assert os.listdir("made") == []


def test_an_old_target_stays_until_the_new_one_is_whole(source: str) -> None:
    with anyrecord.create("b.ffr") as out:
        out.write(b"old")

    def fails(record: bytes) -> bytes:
        assert list(anyrecord.open("b.ffr")) == [b"old"]
        if record == RECORDS[-1]:
            raise LookupError("mine")
        return record

    with pytest.raises(LookupError):
        anyrecord.convert(source, "b.ffr", map=fails, overwrite=True)
    assert list(anyrecord.open("b.ffr")) == [b"old"]
    assert sorted(os.listdir()) == ["a.tfrecord", "b.ffr"]


def sealed(case: Case, source: str, sharding: tuple[str, int] = ("one", 0)) -> Writer:
    """A conversion right before its result is read again."""
    creating = Creating(case.format.name, False, False, 0, sharding, None, tally=True)
    writer = new_writer(f"b{case.suffix}", creating, case.options)
    _core.pour(writer, [(source, 0, None)], open_options(), None, None, None, 0)
    writer._seal()
    return writer


def temporary() -> list[Path]:
    return sorted(Path().glob(".*.tmp"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_written_is_compared_before_it_is_published(source: str, case: Case) -> None:
    writer = sealed(case, source)
    writer._check(open_options(), 2)
    # The same records in another order are whole and sound, and still not what was written.
    (made,) = temporary()
    with anyrecord.create(made, overwrite=True, format=case.format.name, **case.options) as out:
        out.write_many(RECORDS[::-1])
    with pytest.raises(ChecksumError, match="does not hold the records that were passed to the writer") as caught:
        writer._check(open_options(), 2)
    assert caught.value.path == f"b{case.suffix}"
    writer.discard()
    assert os.listdir() == [source]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_one_bad_shard_is_found_among_many(source: str, case: Case, threads: int) -> None:
    writer = sealed(case, source, ("records", 200))
    made = temporary()
    assert len(made) == 15
    writer._check(open_options(), threads)
    made[7].write_bytes(made[8].read_bytes())
    with pytest.raises(ChecksumError, match="does not hold the records"):
        writer._check(open_options(), threads)
    writer.discard()
    assert os.listdir() == [source]


def test_what_cannot_be_published_takes_back_what_was(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else makes a file of that name while we convert."""

    def late(done: int, total: int) -> None:
        if done == total:
            Path("b.ffr").write_bytes(b"somebody else's")

    with pytest.raises(FileExistsError):
        anyrecord.convert(source, "b.ffr", progress=late)
    assert Path("b.ffr").read_bytes() == b"somebody else's"
    assert sorted(os.listdir()) == ["a.tfrecord", "b.ffr"]


def test_one_file_that_cannot_be_published_takes_back_the_others(source: str) -> None:
    for name in ("c.tfrecord", "d.tfrecord"):
        Path(name).write_bytes(Path(source).read_bytes())
    Path("made").mkdir()

    def late(done: int, total: int) -> None:
        if done == total:
            Path("made/d.ffr").write_bytes(b"somebody else's")

    with pytest.raises(FileExistsError):
        anyrecord.convert([source, "c.tfrecord", "d.tfrecord"], "made", format="ffrecord", progress=late)
    assert os.listdir("made") == ["d.ffr"]
    Path("made/d.ffr").unlink()
    assert len(anyrecord.convert([source, "c.tfrecord", "d.tfrecord"], "made", format="ffrecord").paths) == 3


def test_the_writer_is_gone_after_a_failure_without_a_warning(source: str, recwarn: Any) -> None:
    with pytest.raises(ValueError, match="too large"):
        anyrecord.convert(source, "b.recordio", chunk_bytes=10)
    assert not recwarn.list
