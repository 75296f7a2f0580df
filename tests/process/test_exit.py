"""The interpreter exits while daemon threads are inside this library: as it would without them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from anyrecord._options import OpenOptions
from anyrecord._salvage import Saving
from anyrecord._writer import Creating
from children import LIMIT_SECONDS, python

# What each daemon thread does, for ever. `step()` tells that it was done once more.
PROGRAMS = {
    "single reads": "records = anyrecord.open('a.ffr', io='plain')\n"
    "def act(): return [records[i] for i in range(0, 2000, 7)]",
    "batches": "records = anyrecord.open('a.ffr', io='plain')\ndef act(): return records[list(range(0, 2000, 7))]",
    "batches of a map": "records = anyrecord.open('a.ffr')\ndef act(): return records[list(range(0, 2000, 7))]",
    "batches past the page cache": "warnings.simplefilter('ignore')\n"
    "records = anyrecord.open('a.ffr', io='direct')\ndef act(): return records[list(range(0, 2000, 7))]",
    "compressed batches in threads": "records = anyrecord.open('a.array_record', threads=3, cache_bytes=0)\n"
    "def act(): return records[list(range(0, 2000, 7))]",
    "iteration": "records = anyrecord.open('a.array_record', cache_bytes=0)\ndef act(): return list(records)",
    "one iterator of all": "records = anyrecord.open('a.ffr', io='plain')\nshared = [iter(records)]\n"
    "def act():\n"
    "    if next(shared[0], None) is None: shared[0] = iter(records)",
    "generators of indices": "records = anyrecord.open('a.ffr')\n"
    "def act(): return records[(i for i in range(0, 2000, 7))]",
    "slices": "records = anyrecord.open('a.ffr')\ndef act(): return [records[i:][0] for i in range(0, 2000, 50)]",
    "errors": "shutil.copyfile('a.ffr', 'cut.ffr')\nrecords = anyrecord.open('cut.ffr', io='plain')\n"
    "os.truncate('cut.ffr', 30_000)\n"
    "def act():\n"
    "    for index in range(1900, 2000):\n"
    "        try: records[[index]]\n"
    "        except anyrecord.TruncatedError: pass",
    "a file object": "records = anyrecord.open(open('a.ffr', 'rb'))\n"
    "def act(): return records[list(range(0, 2000, 7))]",
    "a file object, singly": "records = anyrecord.open(open('a.ffr', 'rb'))\n"
    "def act(): return [records[i] for i in range(0, 2000, 70)]",
    "a file object in Python": "class Slow(File):\n"
    "    def before(self):\n"
    "        for _ in range(200): pass\n"
    "records = anyrecord.open(Slow())\n"
    "def act(): return records[list(range(0, 2000, 70))]",
    "many file objects": "def act(): return anyrecord.open(File())[[1, 2, 3]]",
    "a file object that reads others": "inner = anyrecord.open(File())\n"
    "class Nested(File):\n"
    "    def before(self): inner[[1, 2, 3]]\n"
    "def act(): return anyrecord.open(Nested())[list(range(0, 2000, 70))]",
    "a file object that fails": "class Fails(File):\n"
    "    def before(self):\n"
    "        if is_open: raise OSError('a test')\n"
    "is_open = False\n"
    "records = anyrecord.open(Fails())\n"
    "is_open = True\n"
    "def act():\n"
    "    try: records[list(range(0, 2000, 70))]\n"
    "    except OSError: pass",
    "a memory map of Python's": "file = open('a.ffr', 'rb')\n"
    "records = anyrecord.open(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))\n"
    "def act(): return records[list(range(0, 2000, 7))]",
    "opening": "def act(): return anyrecord.open(['a.ffr', 'a.array_record'] * 4)[0]",
    "map functions": "records = anyrecord.open('a.ffr', io='plain').map(lambda record: record[:3])\n"
    "def act(): return list(records.batches(100))",
    "verification": "def act(): return anyrecord.verify('a.array_record', progress=lambda *_: None)",
    "conversion": "def act():\n"
    "    name = f'{threading.get_ident()}.ffr'\n"
    "    anyrecord.convert('a.array_record', name, overwrite=True, map=lambda record: record[:10], durable=False)",
    "writing to a file object": "def act():\n"
    "    with anyrecord.create(io.BytesIO(), format='ffrecord') as out:\n"
    "        for i in range(2000): out.write(b'%d' % i * 50)",
    "writing to a file object in Python": "class Sink:\n"
    "    def write(self, written): return len(bytes(written))\n"
    "def act():\n"
    "    with anyrecord.create(Sink(), format='tfrecord') as out:\n"
    "        for i in range(2000): out.write(b'%d' % i * 50)",
    "writing from a generator": "def act():\n"
    "    with anyrecord.create(io.BytesIO(), format='array_record', threads=2) as out:\n"
    "        out.write_many(b'%d' % i * 50 for i in range(2000))",
    "writing from a generator without end": "def act():\n"
    "    with anyrecord.create(open(os.devnull, 'wb'), format='tfrecord') as out:\n"
    "        out.write_many(step() or b'%d' % i for i in itertools.count())",
    "a folder": "folder = anyrecord.Folder('folder.ffr')\ndef act(): return [folder[f'{i}'] for i in range(20)]",
}

DISCARDED = re.compile(r".*RuntimeWarning: .* still open at the end of the program, and discarded.*\n(  .*\n)?")
"""What is told of a writer that a thread has not closed when the program ends."""

SCRIPT = """
import io, itertools, mmap, os, pathlib, shutil, sys, threading, traceback, warnings
import anyrecord
data = pathlib.Path("a.ffr").read_bytes()
class File:  # in Python: the GIL changes hands in the middle of a read
    def __init__(self): self.inner = io.BytesIO(data)
    def before(self): pass
    def read(self, size=-1):
        self.before()
        return self.inner.read(size)
    def seek(self, *to): return self.inner.seek(*to)
    def tell(self): return self.inner.tell()
{program}
steps, enough = itertools.count(), threading.Event()
def step():
    if next(steps) >= {steps}: enough.set()
def run():
    try:
        while True:
            act()
            step()
    except anyrecord.ClosedError:  # at the end of the program, open writers are discarded with a warning
        if "writer" not in traceback.format_exc(): raise
    except BaseException:
        traceback.print_exc()
        os._exit(1)
class Late:
    def __del__(self):  # the interpreter takes its time: whoever asks for the GIL now is ended
        for _ in range(1_000_000): pass
late = Late()
sys.setswitchinterval(1e-5)
for _ in range(4): threading.Thread(target=run, daemon=True).start()
enough.wait()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import anyrecord

    folder = tmp_path_factory.mktemp("exit")
    for name in ("a.ffr", "a.array_record"):
        with anyrecord.create(folder / name, durable=False) as out:
            out.write_many(b"%d" % index * 20 for index in range(2000))
    (folder / "files").mkdir()
    for index in range(20):
        (folder / "files" / f"{index}").write_bytes(b"%d" % index)
    anyrecord.pack(folder / "files", folder / "folder.ffr")
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_exits_while_daemon_threads_work(folder: Path, tmp_path: Path, name: str) -> None:
    for path in folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    for steps in (0, 3, 20):
        script = SCRIPT.format(program=PROGRAMS[name], steps=steps)
        writes = name.startswith("writing") or name == "conversion"
        ran = subprocess.run(
            [sys.executable, *([] if writes else ["-W", "error"]), "-c", script],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        told = DISCARDED.sub("", ran.stderr) if writes else ran.stderr
        assert (ran.returncode, told) == (0, "")


def test_the_end_of_a_sub_interpreter_stops_nobody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    script = """if True:
        import sys, threading
        import anyrecord
        try: import _interpreters as interpreters
        except ImportError: import _xxsubinterpreters as interpreters
        other = interpreters.create()
        try: interpreters.run_string(other, f"import sys; sys.path[:] = {sys.path}; import anyrecord")
        except Exception as refused: assert "ImportError" in str(refused)
        interpreters.destroy(other)
        records, found = anyrecord.open("a.ffr", io="plain"), []
        thread = threading.Thread(target=lambda: found.append(records[[1, 2]]), daemon=True)
        thread.start()
        thread.join(20)
        print(len(found))
    """
    assert python(script) == "1\n"


def test_open_writers_leave_no_temporary_file_where_warnings_are_errors(tmp_path: Path) -> None:
    script = (
        "import threading\n"
        "import anyrecord\n"
        "opened = threading.Event()\n"
        "def hold():  # a daemon thread keeps its variables for ever: nothing drops these writers\n"
        "    writers = [anyrecord.create(f'{name}.ffr') for name in 'abc']\n"
        "    opened.set()\n"
        "    threading.Event().wait()\n"
        "threading.Thread(target=hold, daemon=True).start()\n"
        "opened.wait()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert "still open at the end of the program" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [OpenOptions, Saving, Creating])
def test_options_that_the_core_reads_are_no_python_code(options: type) -> None:
    """If the interpreter exits while the core calls Python code without a precaution, the process is aborted."""
    assert [name for name, value in vars(options).items() if isinstance(value, property)] == []
