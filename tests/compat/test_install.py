"""`install`, the environment variable, and `python -m anyrecord.compat`."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

import pytest
from anyrecord.compat import install, installation

from .scripts import run, run_text

ROOT = Path(__file__).parents[2]
PTH = ROOT / "anyrecord.data" / "purelib" / "anyrecord_compat.pth"
OURS = "anyrecord.compat.array_record.python.array_record_module"
IMPORTS = "import array_record.python.array_record_module as m; print(m.__name__)"


def test_import_of_anyrecord_has_nothing_of_compat() -> None:
    program = "import anyrecord, sys; print([name for name in sys.modules if 'compat' in name and 'anyrecord' in name])"
    assert run("-c", program).stdout == "[]\n"


def test_the_module_is_one_object_under_two_names_however_it_is_imported(tmp_path: Path) -> None:
    program = """
        import anyrecord.compat
        anyrecord.compat.install("array_record")
        import array_record.python.array_record_module as a
        import array_record
        from array_record.python import array_record_module as b, array_record_data_source as s
        from array_record.python.array_record_module import ArrayRecordReader
        import importlib
        c = importlib.import_module("array_record.python.array_record_module")
        import anyrecord.compat.array_record.python.array_record_module as ours
        assert a is b is c is ours is array_record.python.array_record_module
        assert array_record is anyrecord.compat.array_record
        assert ArrayRecordReader is ours.ArrayRecordReader
        assert ours.__spec__.name == ours.__name__ == "anyrecord.compat.array_record.python.array_record_module"
        anyrecord.compat.install("array_record")        # once more is no error
        print("good")
    """
    assert run_text(program, tmp_path) == "good\n"


@pytest.mark.parametrize(
    "statement",
    [
        "import array_record.nothing",
        "import array_record.python.nothing",
        "from array_record.python import nothing",
        "from array_record.python.array_record_module import nothing",
        "import array_record.setup",
    ],
)
def test_what_we_do_not_have_is_an_import_error_that_names_it(tmp_path: Path, statement: str) -> None:
    errors = run_text(f"import anyrecord.compat as c\nc.install('array_record')\n{statement}\n", tmp_path, fails=True)
    assert "Error: " in errors
    last = errors.strip().splitlines()[-1]
    assert last.startswith(("ImportError", "ModuleNotFoundError"))
    assert "anyrecord.compat" in last
    assert "nothing" in last or "setup" in last


@pytest.mark.framework
def test_coming_too_late_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    program = """
        import array_record.python.array_record_module
        import anyrecord.compat
        anyrecord.compat.install("array_record")
    """
    last = run_text(program, tmp_path, fails=True).strip().splitlines()[-1]
    assert last.startswith("ImportError: array_record is already imported")
    assert "ANYRECORD_COMPAT=array_record" in last


@pytest.mark.framework
def test_uninstall_gives_the_original_back(tmp_path: Path) -> None:
    program = """
        import os
        import anyrecord.compat
        anyrecord.compat.install("array_record")
        import array_record.python.array_record_module as ours
        assert os.environ["ANYRECORD_COMPAT"] == "array_record"
        anyrecord.compat.uninstall()
        anyrecord.compat.uninstall()
        assert "ANYRECORD_COMPAT" not in os.environ
        import array_record.python.array_record_module as theirs
        print(ours.__name__, theirs.__name__)
    """
    assert run_text(program, tmp_path).split() == [OURS, "array_record.python.array_record_module"]


def test_several_are_installed_at_once_and_one_by_one(tmp_path: Path) -> None:
    program = """
        import os
        import anyrecord.compat
        anyrecord.compat.install("array_record")
        anyrecord.compat.install("ffrecord")
        print(os.environ["ANYRECORD_COMPAT"])
        import array_record, ffrecord
        from ffrecord import FileReader
        print(array_record.__name__, ffrecord.__name__, FileReader is anyrecord.compat.ffrecord.FileReader)
    """
    expected = ["array_record,ffrecord", "anyrecord.compat.array_record anyrecord.compat.ffrecord True"]
    assert run_text(program, tmp_path).splitlines() == expected
    assert (
        run_text(program.replace('d")\n        anyrecord.compat.install("f', 'd", "f'), tmp_path).splitlines()
        == expected
    )
    done = run(
        "-c", "import array_record, ffrecord; print(ffrecord.__name__)", ANYRECORD_COMPAT="array_record,ffrecord"
    )
    assert done.stdout == "anyrecord.compat.ffrecord\n"


def test_names_are_checked() -> None:
    with pytest.raises(ValueError) as unknown:
        install("arrayrecord")
    assert str(unknown.value) == (
        "anyrecord.compat has no replacement for 'arrayrecord'; use array_record, ffrecord or recordio"
    )
    with pytest.raises(ValueError) as none:
        install()
    assert "array_record" in str(none.value)
    assert not any(type(finder).__module__ == installation.__name__ for finder in sys.meta_path)


def test_an_original_without_modules_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(installation.ORIGINALS, "other_record", "anyrecord.compat.other_record")
    with pytest.raises(ModuleNotFoundError) as caught:
        install("other_record")
    assert "has no modules for other_record" in str(caught.value)


@pytest.mark.parametrize("value", ["array_record", " array_record ,", "array_record,array_record"])
def test_the_environment_variable_works_by_itself(value: str) -> None:
    assert run("-c", IMPORTS, ANYRECORD_COMPAT=value).stdout == OURS + "\n"


def test_without_the_variable_nothing_is_imported_at_the_start() -> None:
    program = "import sys; print([name for name in sys.modules if name.startswith('anyrecord')])"
    assert run("-c", program).stdout == "[]\n"
    assert run("-c", program, ANYRECORD_COMPAT="").stdout == "[]\n"


def test_the_file_for_the_start_is_installed_and_is_one_line() -> None:
    places = [Path(folder) / PTH.name for folder in site.getsitepackages()]
    found = [place for place in places if place.exists()]
    assert found, f"{PTH.name} is in none of {places}: install the package again (make does)"
    assert found[0].read_text() == PTH.read_text()
    assert len(PTH.read_text().splitlines()) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_have_what_their_parent_installed(tmp_path: Path, method: str) -> None:
    program = f"""
        import multiprocessing

        def work(queue):
            {IMPORTS.replace("print(m.__name__)", "queue.put(m.__name__)")}

        if __name__ == "__main__":
            import anyrecord.compat
            anyrecord.compat.install("array_record")
            context = multiprocessing.get_context("{method}")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            print(queue.get(timeout=60))
            process.join()
    """
    assert run_text(program, tmp_path) == OURS + "\n"


def test_children_of_any_kind_have_it(tmp_path: Path) -> None:
    program = f"""
        import subprocess, sys
        import anyrecord.compat
        anyrecord.compat.install("array_record")
        print(subprocess.run([sys.executable, "-c", {IMPORTS!r}], capture_output=True, text=True).stdout, end="")
    """
    assert run_text(program, tmp_path) == OURS + "\n"


PROGRAM = f"import sys, os, beside; {IMPORTS}; print(__name__, sys.argv, beside.here)"


def test_a_program_is_run_with_its_arguments_and_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "beside.py").write_text("here = True")
    path = os.path.join("inside", "program.py")
    done = run("-m", "anyrecord.compat", path, "--epochs", "-m", folder=tmp_path)
    assert done.stdout.splitlines() == [OURS, f"__main__ {[path, '--epochs', '-m']} True"]


def test_a_module_is_run_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("here = True")
    done = run("-m", "anyrecord.compat", "-m", "program", "--epochs", "3", folder=tmp_path)
    file = str(tmp_path / "program.py")
    assert done.stdout.splitlines() == [OURS, f"__main__ {[file, '--epochs', '3']} True"]


def test_a_program_that_fails_fails(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; sys.exit(3)")
    done = run("-m", "anyrecord.compat", "program.py", folder=tmp_path, fails=True)
    assert done.returncode == 3


def test_spawned_workers_of_a_program_that_was_run_so(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import multiprocessing\n"
        f"def work(_): {IMPORTS.replace('print(m.__name__)', 'return m.__name__')}\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(work, [0]))\n"
    )
    for arguments in (["program.py"], ["-m", "program"]):
        done = run("-m", "anyrecord.compat", *arguments, folder=tmp_path)
        assert done.stdout == f"{[OURS]}\n"


@pytest.mark.parametrize("arguments", [[], ["-m"], ["--what"]])
def test_without_a_program_there_is_a_hint(arguments: list[str]) -> None:
    assert "usage: python -m anyrecord.compat" in run("-m", "anyrecord.compat", *arguments, fails=True).stderr


def test_help() -> None:
    assert "example:" in run("-m", "anyrecord.compat", "--help").stdout
