"""A writer that is neither closed nor discarded says so where people see it: once, by default, with what to do."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import anyrecord
import pytest
from children import LIMIT_SECONDS

from writing.folders import names

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def stderr_of(script: str, *options: str) -> str:
    """What a script prints to stderr in an interpreter with its default settings; it must end well."""
    command = [sys.executable, *options, "-c", script]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


FORGOTTEN = {
    "in a global variable": "out = anyrecord.create(name); out.write_many([b'x'] * 7)",
    "in another module": "sys.out = anyrecord.create(name); sys.out.write_many([b'x'] * 7)",
    "in a cycle": "out = anyrecord.create(name); out.write_many([b'x'] * 7); out.me = out; del out",
    "in a function": "def f():\n    out = anyrecord.create(name); out.write_many([b'x'] * 7)\nf()",
    "by an exit": "out = anyrecord.create(name); out.write_many([b'x'] * 7); sys.exit(0)",
    "shards": "out = anyrecord.create(name, shards=3); out.write_many([b'x'] * 7)",
    "with threads": "out = anyrecord.create(name, threads=2); out.write_many([b'x'] * 7)",
    "by a thread": (
        "def f():\n    sys.out = anyrecord.create(name); sys.out.write_many([b'x'] * 7)\n"
        "t = threading.Thread(target=f); t.start(); t.join()"
    ),
}


@pytest.mark.parametrize("how", FORGOTTEN.values(), ids=list(FORGOTTEN))
def test_a_forgotten_writer_is_told_once_by_default(how: str, suffix: str) -> None:
    said = stderr_of(f"import sys, threading, anyrecord\nname = 'forgotten{suffix}'\n{how}\n")
    assert said.count("Warning") == 1, said
    for words in (
        "RuntimeWarning",
        f"forgotten{suffix}",
        "with 7 records",
        "nothing was published",
        "with block",
        "close()",
    ):
        assert words in said
    assert names(Path()) == [], "not even a temporary file"


def test_a_forgotten_file_object_is_told_too() -> None:
    script = "import anyrecord\nout = anyrecord.create(open('a', 'wb'), format='tfrecord')\nout.write(b'x')\n"
    said = stderr_of(script)
    assert said.count("a writer of a file object with 1 records") == 1
    assert "incomplete" in said


SILENT = {
    "closed": "out = anyrecord.create('a.ffr'); out.close()",
    "discarded": "out = anyrecord.create('a.ffr'); out.discard()",
    "left": "with anyrecord.create('a.ffr') as out: out.write(b'x')",
    "closed at exit": "import atexit\nout = anyrecord.create('a.ffr')\natexit.register(out.close)",
    "left by an exception": "try:\n    with anyrecord.create('a.ffr') as out: 1 / 0\nexcept ZeroDivisionError: pass",
    "refused": "try: anyrecord.create('a.ffr', codec='zstd')\nexcept ValueError: pass",
    "refused late": "try: anyrecord.create('a.ffr', num_records=7).close()\nexcept ValueError: pass",
    "failed": "try:\n    anyrecord.create('/dev/full', format='ffrecord').close()\nexcept OSError: pass",
    "forked": (
        "out = anyrecord.create('a.ffr')\nif os.fork() == 0: sys.exit()\nos.wait(); out.write(b'x'); out.close()"
    ),
    "forked and dropped": (
        "out = anyrecord.create('a.ffr')\n"
        "if os.fork() == 0:\n    del out; sys.exit()\n"
        "os.wait(); out.write(b'x'); out.close()"
    ),
    "killed": "out = anyrecord.create('a.ffr')\nos._exit(0)",
}


@pytest.mark.parametrize("how", SILENT.values(), ids=list(SILENT))
def test_a_writer_that_was_ended_says_nothing(how: str) -> None:
    assert stderr_of(f"import os, sys, anyrecord\n{how}\n") == ""


def test_a_writer_closed_at_exit_is_published() -> None:
    stderr_of(
        "import atexit, anyrecord\nout = anyrecord.create('a.ffr')\natexit.register(out.close)\nout.write(b'x')\n"
    )
    assert list(anyrecord.open("a.ffr")) == [b"x"]


def test_a_filter_silences_it_and_an_error_shows_it() -> None:
    script = "import anyrecord\nout = anyrecord.create('a.ffr')\nout.write(b'x')\n"
    assert stderr_of(script, "-W", "ignore::RuntimeWarning") == ""
    assert "a.ffr with 1 records" in stderr_of(script, "-W", "error")
    assert names(Path()) == []


def test_the_warning_points_to_where_the_writer_was_dropped() -> None:
    out = anyrecord.create("a.ffr")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del out
        gc.collect()
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert warning.filename == __file__


def test_an_exception_ends_a_block_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(LookupError), anyrecord.create("a.ffr"):
        raise LookupError
    gc.collect()
    assert recwarn.list == []
