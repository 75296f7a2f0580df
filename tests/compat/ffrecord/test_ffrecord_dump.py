"""`utils.dump`, and the module as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyrecord.compat.ffrecord as ffrecord
import pytest
from anyrecord.compat.ffrecord import FileReader, utils

DATA = [b"%d" % i for i in range(23)]


def contents(path: str) -> list[bytes]:
    reader = FileReader(path)
    return [bytes(sample) for sample in reader.read(range(reader.n))]


def test_one_file() -> None:
    utils.dump(DATA, "all.ffr", 1)
    assert contents("all.ffr") == DATA


def test_parts_are_the_originals(golden: Path) -> None:
    shards = golden / "ffrecord" / "shards"
    dataset = {k: bytes(sample) for k, sample in enumerate(FileReader(shards).read(range(23)))}
    utils.dump(dataset, "parts", nfiles=4)
    assert sorted(os.listdir("parts")) == sorted(os.listdir(shards))
    for name in os.listdir("parts"):
        assert Path("parts", name).read_bytes() == (shards / name).read_bytes()


def test_fewer_parts_than_asked_for() -> None:
    with pytest.warns(UserWarning, match="^Split into 4 files rather than 5 files$"):
        utils.dump(DATA[:8], "parts", 5)
    assert sorted(os.listdir("parts")) == [f"PART_0000{k}.ffr" for k in range(4)]
    with pytest.warns(UserWarning, match="^Split into 1 files rather than -3 files$"):
        utils.dump(DATA, Path("negative"), -3)
    assert contents("negative") == DATA


def test_impossible_numbers_of_parts() -> None:
    with pytest.raises(ZeroDivisionError):
        utils.dump(DATA, "parts", 0)
    with pytest.raises(ValueError, match=r"range\(\) arg 3 must not be zero"):
        utils.dump([], "parts", 2)
    utils.dump([], "empty.ffr", 1)
    assert FileReader("empty.ffr").n == 0


class Failing:
    """Cannot be pickled, and has no sample 15."""

    def __init__(self, end_the_process: bool = False) -> None:
        self.end_the_process = end_the_process
        self.unpicklable = lambda: None

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> bytes:
        if index == 15:
            if self.end_the_process:
                os._exit(1)
            raise LookupError("no sample 15")
        return b"x"


def test_an_error_in_a_part_is_raised() -> None:
    with pytest.raises(LookupError, match="no sample 15"):
        utils.dump(Failing(), "parts", 4)
    assert "PART_00003.ffr" not in os.listdir("parts")
    with pytest.raises(LookupError):
        utils.dump(Failing(), "one.ffr", 1)
    assert not os.path.exists("one.ffr")


def test_a_worker_that_dies_is_noticed() -> None:
    with pytest.raises(RuntimeError):
        utils.dump(Failing(end_the_process=True), "parts", 4)
    assert "PART_00003.ffr" not in os.listdir("parts")


def test_more_parts_than_processes() -> None:
    utils.dump(DATA, "parts", 23)
    assert contents("parts") == DATA


def test_other_files_in_the_folder_are_told() -> None:
    utils.dump(DATA, "parts", 4)
    with pytest.warns(UserWarning, match="PART_00003.ffr"):
        utils.dump(DATA, "parts", 3)


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    utils.dump(DATA, "parts", 2, verbose=True)
    utils.dump(DATA, "one.ffr", 1, verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1/2", "2/2", "1/1"]


def test_names_and_version() -> None:
    assert {"FileReader", "FileWriter", "PackedFolder", "checkFsAlign", "pack_folder"} <= set(ffrecord.__all__)
    assert ffrecord.utils is utils
    assert ffrecord.__version__ == "1.4.0"


@pytest.mark.parametrize(
    ("module", "absent"), [("anyrecord", ["numpy", "torch"]), ("anyrecord.compat.ffrecord", ["torch"])]
)
def test_what_an_import_brings_along(module: str, absent: list[str]) -> None:
    program = f"import sys, {module}; print(*[name for name in {absent!r} if name in sys.modules])"
    found: Any = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
