"""`array_record.beam` under the drop-in: our modules, which need neither the original nor what they do not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.scripts import run, run_text

MODULES = ["arrayrecordio", "demo", "dofns", "example", "options", "pipelines", "testdata"]


def test_the_modules_are_ours_under_both_names(tmp_path: Path) -> None:
    program = f"""
        import importlib, sys
        import array_record.beam
        import anyrecord.compat.array_record.beam as ours
        assert array_record.beam is ours and ours.beam.__name__ == "apache_beam"
        for name in {MODULES}:
            module = importlib.import_module("array_record.beam." + name)
            assert module is getattr(ours, name) is sys.modules["anyrecord.compat.array_record.beam." + name]
        from array_record.beam.dofns import ConvertToArrayRecordGCS
        print(ConvertToArrayRecordGCS.__module__)
    """
    printed = "anyrecord.compat.array_record.beam.dofns\n"
    assert run_text(program, tmp_path, ANYRECORD_COMPAT="array_record") == printed
    assert run("-m", "anyrecord.compat", "program.py", folder=tmp_path).stdout == printed
    program = f"    import anyrecord.compat\n    anyrecord.compat.install('array_record')\n{program}"
    assert run_text(program.replace("        ", "    "), tmp_path) == printed


def test_importing_reads_no_command_line_and_imports_no_tensorflow(tmp_path: Path) -> None:
    program = f"""
        import sys
        sys.modules["tensorflow"] = None
        sys.modules["google.cloud.storage"] = None
        import argparse
        argparse.ArgumentParser.parse_known_args = argparse.ArgumentParser.parse_args = None
        import importlib
        for name in {MODULES}:
            importlib.import_module("array_record.beam." + name)
        print(sorted(importlib.import_module("array_record.beam.testdata").data[0]))
    """
    printed = run_text(program, tmp_path, "--help", "--input", ANYRECORD_COMPAT="array_record")
    assert printed.startswith("['Age', 'Movie', ")


def test_converting_needs_no_tensorflow(tmp_path: Path) -> None:
    program = """
        import sys
        for name in ("tensorflow", "crcmod", "google_crc32c"):
            sys.modules[name] = None
        import anyrecord
        from array_record.beam import pipelines
        with anyrecord.create("in.tfrecord") as out:
            out.write_many([b"a", b"b"])
        pipelines.convert_tf_to_arrayrecord_disk().run()
        pipelines.convert_tf_to_arrayrecord_disk_match_shards({"input": "in.tfrecord", "output": "two"}).run()
        print(list(anyrecord.open(["out-00000-of-00001.arrayrecord", "two-00000-of-00001.arrayrecord"])))
    """
    line = ("--input=in.tfrecord", "--output=out", "--runner=FnApiRunner")
    printed = run_text(program, tmp_path, *line, ANYRECORD_COMPAT="array_record")
    assert printed == "[b'a', b'b', b'a', b'b']\n"


def test_the_module_of_the_pipelines_explains_itself(tmp_path: Path) -> None:
    help = run("-m", "anyrecord.compat", "-m", "array_record.beam.pipelines", "--help", folder=tmp_path).stdout
    assert all(text in help for text in ("--input", "--output", "--num_shards", "--runner"))
    errors = run("-m", "anyrecord.compat", "-m", "array_record.beam.pipelines", folder=tmp_path, fails=True).stderr
    assert "no input is given" in errors.splitlines()[-1]


NEEDS = [
    ("apache_beam", "import array_record.beam", "Apache Beam: pip install 'anyrecord[beam]'"),
    ("apache_beam", "import array_record.beam.pipelines", "Apache Beam: pip install 'anyrecord[beam]'"),
    ("apache_beam", "from array_record import beam", "Apache Beam: pip install 'anyrecord[beam]'"),
    (
        "tensorflow",
        "from array_record.beam import example; example.generate_movie_examples()",
        "tf.train.Example objects: pip install tensorflow",
    ),
    (
        "google.cloud.storage",
        "from array_record.beam import dofns; dofns.ConvertToArrayRecordGCS().process(('a', []), 'gs://b/')",
        "Google's client: pip install google-cloud-storage",
    ),
]


@pytest.mark.parametrize(("missing", "statement", "text"), NEEDS)
def test_what_is_missing_is_named_when_it_is_needed(tmp_path: Path, missing: str, statement: str, text: str) -> None:
    program = f"import sys\nsys.modules[{missing!r}] = None\n{statement}\n"
    errors = run_text(program, tmp_path, fails=True, ANYRECORD_COMPAT="array_record")
    last = errors.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert last.endswith(text)


@pytest.mark.parametrize("name", ["array_record.other", "array_record.beam.nothing", "array_record.python.beam"])
def test_no_module_comes_from_the_original(tmp_path: Path, name: str) -> None:
    for file in ("__init__.py", "other.py", "beam/__init__.py", "beam/nothing.py"):
        (tmp_path / "packages" / "array_record" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "packages" / "array_record" / file).write_text("")
    folder = str(tmp_path / "packages")
    program = f"import sys\nsys.path.insert(0, {folder!r})\nimport {name}\n"
    errors = run_text(program, tmp_path, fails=True, ANYRECORD_COMPAT="array_record")
    why = f"anyrecord.compat replaces array_record and has no anyrecord.compat.{name}"
    assert errors.endswith(f"ModuleNotFoundError: No module named {name!r}: {why}\n")


def test_uninstall_gives_the_original_back(tmp_path: Path) -> None:
    program = """
        import anyrecord.compat
        anyrecord.compat.install("array_record")
        import array_record.beam.testdata as before
        anyrecord.compat.uninstall()
        import array_record.beam.testdata as after
        print(before.__name__, after.__name__, before.data == after.data)
    """
    printed = "anyrecord.compat.array_record.beam.testdata array_record.beam.testdata True\n"
    assert run_text(program, tmp_path) == printed
