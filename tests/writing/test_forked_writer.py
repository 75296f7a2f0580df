"""A writer belongs to the process that created it: children can neither write with it nor harm it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ClosedError, Writer
from children import LIMIT_SECONDS, forked, python

from writing.folders import names, temporary

BEFORE, AFTER = [b"before" * 100_000] * 30, [b"after" * 100_000] * 30

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

SETTINGS: dict[str, dict[str, Any]] = {
    "spooled": {},
    "in place": {"num_records": len(BEFORE) + len(AFTER)},
    "threads": {"threads": 3},
    "in turns": {"shards": 3},
}


@pytest.fixture(params=SETTINGS.values(), ids=list(SETTINGS))
def out(request: pytest.FixtureRequest, tmp_path: Path, suffix: str) -> Writer:
    """A writer in the middle of its work."""
    writer = anyrecord.create(tmp_path / f"a{suffix}", **request.param)
    writer.write_many(BEFORE)
    return writer


def assert_finishes(out: Writer, folder: Path) -> None:
    """Whatever the children did, the parent's file comes out whole."""
    assert temporary(folder) == names(folder)
    out.write_many(AFTER)
    out.close()
    assert temporary(folder) == []
    assert sorted(anyrecord.open(folder)) == sorted(BEFORE + AFTER)


USES: dict[str, Callable[[Writer], object]] = {
    "write": lambda out: out.write(b"child"),
    "write much": lambda out: out.write(bytes(1 << 20)),
    "write_many": lambda out: out.write_many([b"child"] * 1000),
    "close": lambda out: out.close(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_using_it_in_a_child_is_a_closed_error(out: Writer, tmp_path: Path, use: Callable[[Writer], object]) -> None:
    with pytest.raises(ClosedError, match="belongs to the process that created it; create one in each process"):
        forked(lambda: use(out))
    assert_finishes(out, tmp_path)


def leave_the_block(out: Writer) -> None:
    with out:
        pass


def leave_the_block_by_an_exception(out: Writer) -> None:
    with out:
        raise LookupError


@pytest.mark.parametrize("end", [Writer.discard, Writer.__del__, leave_the_block, leave_the_block_by_an_exception])
def test_giving_it_up_in_a_child_leaves_it_to_the_parent(
    out: Writer, tmp_path: Path, end: Callable[[Writer], object]
) -> None:
    def act() -> None:
        with suppress(ClosedError, LookupError):
            end(out)

    forked(act)
    assert_finishes(out, tmp_path)


def test_a_child_that_ends_at_once_leaves_it_to_the_parent(out: Writer, tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert_finishes(out, tmp_path)


def test_a_worker_that_ends_normally_leaves_it_to_the_parent(out: Writer, tmp_path: Path) -> None:
    worker = multiprocessing.get_context("fork").Process(target=repr, args=(out,))
    worker.start()
    worker.join(LIMIT_SECONDS)
    assert worker.exitcode == 0
    worker.close()
    assert_finishes(out, tmp_path)


def test_a_child_whose_interpreter_ends_and_collects_everything_leaves_it_to_the_parent(
    tmp_path: Path, suffix: str
) -> None:
    script = """if True:
        import os, sys, anyrecord
        out = anyrecord.create(sys.argv[1])
        out.write(b"x" * 10_000_000)
        if os.fork() == 0:
            sys.exit(7)  # the whole way out, with every object's finalizer
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        out.write(b"y")
        out.close()
        print([len(record) for record in anyrecord.open(sys.argv[1])])
    """
    assert python(script, str(tmp_path / f"a{suffix}")) == "[10000000, 1]\n"
    assert names(tmp_path) == [f"a{suffix}"]


def test_a_child_writes_files_of_its_own_beside(out: Writer, tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "of the child"
    folder.mkdir()

    def act() -> None:
        with anyrecord.create(folder / f"b{suffix}", threads=2) as own:
            own.write_many(AFTER)

    forked(act)
    assert list(anyrecord.open(folder)) == AFTER
    (folder / f"b{suffix}").unlink()
    folder.rmdir()
    assert_finishes(out, tmp_path)


def test_a_writer_cannot_be_sent_to_another_process(out: Writer) -> None:
    context = multiprocessing.get_context("spawn")
    with pytest.raises(TypeError, match="pickle"):
        context.Process(target=print, args=(out,)).start()
    out.discard()
