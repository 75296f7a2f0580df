"""`array_record.beam` under the drop-in: the original's modules, on top of our `array_record.python`."""

from __future__ import annotations

from pathlib import Path

import anyrecord
import pytest

from .scripts import run, run_text

PACKAGES = Path(anyrecord.__file__).parents[1]
OURS = "anyrecord.compat.array_record.python.array_record_module"

# What the original has, in small: its Beam modules write through `array_record.python`, which must be ours.
FILES = {
    "__init__.py": "",
    "python/__init__.py": "",
    "python/array_record_module.py": "raise AssertionError('the original under the drop-in')",
    "beam/__init__.py": "import pretend_beam",
    "beam/testdata.py": "data = [b'a record', b'another']",
    "beam/arrayrecordio.py": """
from array_record.python import array_record_module
from . import testdata
from array_record.beam.dofns import Writer

def write(path):
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
    assert isinstance(writer, Writer)
    for record in testdata.data:
        writer.write(record)
    writer.close()
""",
    "beam/dofns.py": "from array_record.python.array_record_module import ArrayRecordWriter as Writer\n",
    "beam/demo.py": "import sys\nfrom array_record.beam import arrayrecordio\nprint(__name__, sys.argv[1:])\n",
    "other/__init__.py": "",
}
USES_BEAM = """
    import array_record.beam.arrayrecordio as io
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    io.write("out.array_record")
    print(list(ArrayRecordDataSource("out.array_record")), io.__name__, io.array_record_module.__name__)
"""
PRINTED = f"[b'a record', b'another'] array_record.beam.arrayrecordio {OURS}\n"


@pytest.fixture
def original(tmp_path: Path) -> str:
    """A folder with an original to put on the path."""
    folder = tmp_path / "packages"
    for name, text in FILES.items():
        file = folder / "array_record" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "pretend_beam.py").write_text("")
    return str(folder)


def test_beam_modules_come_from_the_original_and_use_our_modules(tmp_path: Path, original: str) -> None:
    program = f"    import anyrecord.compat\n    anyrecord.compat.install('array_record'){USES_BEAM}"
    assert run_text(program, tmp_path, PYTHONPATH=original) == PRINTED
    assert run_text(USES_BEAM, tmp_path, PYTHONPATH=original, ANYRECORD_COMPAT="array_record") == PRINTED
    assert run("-m", "anyrecord.compat", "program.py", folder=tmp_path, PYTHONPATH=original).stdout == PRINTED


def test_an_original_that_comes_onto_the_path_later_is_found(tmp_path: Path, original: str) -> None:
    program = f"    import sys\n    sys.path.insert(0, {original!r}){USES_BEAM}"
    assert run_text(program, tmp_path, ANYRECORD_COMPAT="array_record") == PRINTED


def test_a_module_of_beam_is_run_by_its_name(tmp_path: Path, original: str) -> None:
    for before in ((), ("-m", "anyrecord.compat")):
        arguments = [*before, "-m", "array_record.beam.demo", "--input", "x"]
        done = run(*arguments, folder=tmp_path, PYTHONPATH=original, ANYRECORD_COMPAT="array_record")
        assert done.stdout == "__main__ ['--input', 'x']\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_get_functions_of_beam_by_pickle(tmp_path: Path, original: str, method: str) -> None:
    program = f"""
        import multiprocessing
        from array_record.beam import arrayrecordio
        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                pool.map(arrayrecordio.write, ["out.array_record"])
            import anyrecord
            print(list(anyrecord.open("out.array_record")))
    """
    printed = run_text(program, tmp_path, PYTHONPATH=original, ANYRECORD_COMPAT="array_record")
    assert printed == "[b'a record', b'another']\n"


def test_what_beam_modules_raise_is_raised(tmp_path: Path, original: str) -> None:
    (Path(original) / "pretend_beam.py").unlink()
    errors = run_text(
        "import array_record.beam", tmp_path, fails=True, PYTHONPATH=original, ANYRECORD_COMPAT="array_record"
    )
    assert errors.endswith("ModuleNotFoundError: No module named 'pretend_beam'\n")


@pytest.mark.parametrize("name", ["array_record.other", "array_record.beam_not", "array_record.python.beam"])
def test_only_beam_comes_from_the_original(tmp_path: Path, original: str, name: str) -> None:
    errors = run_text(f"import {name}", tmp_path, fails=True, PYTHONPATH=original, ANYRECORD_COMPAT="array_record")
    ours = f"anyrecord.compat.{name}"
    why = f"anyrecord.compat replaces array_record and has no {ours}"
    assert errors.endswith(f"ModuleNotFoundError: No module named {name!r}: {why}\n")


def test_a_module_that_the_original_has_not_is_an_error_that_says_where_it_was_sought(
    tmp_path: Path, original: str
) -> None:
    program = "import array_record.beam.arrayrecordio, array_record.beam.nothing"
    errors = run_text(program, tmp_path, fails=True, PYTHONPATH=original, ANYRECORD_COMPAT="array_record")
    last = errors.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: No module named 'array_record.beam.nothing': ")
    assert str(Path(original) / "array_record" / "__init__.py") in last


@pytest.mark.parametrize("name", ["array_record.beam", "array_record.beam.pipelines"])
def test_without_the_original_the_error_says_what_to_install(tmp_path: Path, name: str) -> None:
    (tmp_path / "array_record").mkdir()  # a folder of data, which is no package
    program = f"import anyrecord.compat\nanyrecord.compat.install('array_record')\nimport {name}\n"
    (tmp_path / "program.py").write_text(program)
    errors = run("-S", "program.py", folder=tmp_path, fails=True, PYTHONPATH=str(PACKAGES)).stderr
    assert errors.endswith(
        "ModuleNotFoundError: No module named 'array_record.beam': anyrecord.compat takes it from the original "
        'array_record, which is not installed; pip install "array-record[beam]"\n'
    )


def test_uninstall_gives_the_whole_original_back(tmp_path: Path, original: str) -> None:
    program = """
        import anyrecord.compat
        anyrecord.compat.install("array_record")
        import array_record.beam.testdata as before
        anyrecord.compat.uninstall()
        import array_record.beam.testdata as after
        assert before is not after and before.__file__ == after.__file__
        import array_record.python.array_record_module
    """
    errors = run_text(program, tmp_path, fails=True, PYTHONPATH=original)
    assert errors.endswith("AssertionError: the original under the drop-in\n")


@pytest.mark.framework
def test_beam_modules_of_the_real_original_ask_for_apache_beam(tmp_path: Path) -> None:
    for name in ("array_record.beam", "array_record.beam.arrayrecordio", "array_record.beam.pipelines"):
        program = f"import sys\nsys.modules['apache_beam'] = None\nimport {name}"
        errors = run_text(program, tmp_path, fails=True, ANYRECORD_COMPAT="array_record")
        assert "import apache_beam as beam\n" in errors
        assert errors.endswith("ModuleNotFoundError: import of apache_beam halted; None in sys.modules\n")
