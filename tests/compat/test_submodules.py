"""Submodules are there as soon as their package is imported, as far as the originals have them there."""

from __future__ import annotations

from pathlib import Path

import pytest

from .scripts import run_text

# How a package is imported, and what is used then, without a further import.
USES = [
    ("import anyrecord.compat.ffrecord as ffrecord", "ffrecord.utils.dump"),
    ("import anyrecord.compat.ffrecord as ffrecord", "ffrecord.fileio.FileReader"),
    ("import anyrecord.compat.ffrecord as ffrecord", "ffrecord.package.PackedFolder"),
    ("import ffrecord", "ffrecord.fileio.FileWriter"),
    ("from ffrecord.fileio import FileReader, FileWriter", "FileReader"),
    ("from ffrecord.package import PackedFolder", "PackedFolder"),
    ("import anyrecord.compat.recordio as recordio", "recordio.recordio.Writer"),
    ("from recordio.recordio import Index, Scanner, Writer", "Scanner"),
    (
        "import anyrecord.compat.array_record as array_record",
        "array_record.python.array_record_module.ArrayRecordReader",
    ),
    ("import array_record.python as python", "python.array_record_data_source.ArrayRecordDataSource"),
    (
        "from array_record.python import array_record_data_source",
        "array_record_data_source.array_record_module.ArrayRecordReader",
    ),
]
TORCH = [
    ("import anyrecord.compat.ffrecord as ffrecord", "ffrecord.torch.Dataset"),
    ("import ffrecord", "ffrecord.torch.DataLoader"),
    ("from ffrecord import torch", "torch.Subset"),
    ("from ffrecord.torch.dataset import ConcatDataset", "ConcatDataset"),
]


def program(imports: str, used: str) -> str:
    return f"""
        import anyrecord.compat
        anyrecord.compat.install("array_record", "ffrecord", "recordio")
        {imports}
        import sys
        before = "torch" in sys.modules
        print({used}.__module__.startswith("anyrecord.compat."), before)
    """


@pytest.mark.parametrize(("imports", "used"), USES)
def test_it_can_be_used(tmp_path: Path, imports: str, used: str) -> None:
    assert run_text(program(imports, used), tmp_path) == "True False\n"


@pytest.mark.framework
@pytest.mark.parametrize(("imports", "used"), TORCH)
def test_pytorch_is_imported_when_its_module_is_used(tmp_path: Path, imports: str, used: str) -> None:
    expected = "True False\n" if imports.startswith("import ") else "True True\n"
    assert run_text(program(imports, used), tmp_path) == expected


def test_dir_shows_what_can_be_used_and_imports_nothing(tmp_path: Path) -> None:
    text = """
        import sys
        import anyrecord.compat.array_record as array_record
        import anyrecord.compat.ffrecord as ffrecord
        print("torch" in dir(ffrecord), "FileReader" in dir(ffrecord), "python" in dir(array_record))
        print("torch" in sys.modules, "anyrecord.compat.array_record.python" in sys.modules)
        from anyrecord.compat.ffrecord import *
        print("utils" in globals(), "torch" in sys.modules)
    """
    assert run_text(text, tmp_path) == "True True True\nFalse False\nFalse False\n"


def test_other_names_are_attribute_errors(tmp_path: Path) -> None:
    text = """
        from anyrecord.compat import array_record, ffrecord
        for package in (array_record, array_record.python, ffrecord):
            assert not hasattr(package, "nothing")
            try:
                package.nothing
            except AttributeError as error:
                print(error)
    """
    assert run_text(text, tmp_path).splitlines() == [
        f"module 'anyrecord.compat.{name}' has no attribute 'nothing'"
        for name in ("array_record", "array_record.python", "ffrecord")
    ]


def test_all_of_ffrecord_is_what_the_original_has() -> None:
    from anyrecord.compat import ffrecord

    assert ffrecord.__all__ == ["FileReader", "FileWriter", "PackedFolder", "checkFsAlign", "pack_folder"]


BLOCKERS = {
    "none in sys.modules": "sys.modules['{name}'] = None",
    "a finder": """
class Blocker:
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition('.')[0] == '{name}':
            raise ImportError('blocked')
sys.meta_path.insert(0, Blocker())""",
}


@pytest.mark.parametrize("blocker", BLOCKERS.values(), ids=list(BLOCKERS))
@pytest.mark.parametrize(
    "statement",
    [
        "import anyrecord.compat.ffrecord",
        "from anyrecord.compat.ffrecord import FileReader",
        "import anyrecord.compat.ffrecord.torch",
        "import ffrecord",
        "from ffrecord import FileWriter",
        "from ffrecord.utils import dump",
        "from ffrecord.torch import Dataset",
    ],
)
def test_without_numpy_the_error_says_what_to_install(tmp_path: Path, statement: str, blocker: str) -> None:
    text = f"import sys{{}}\nimport anyrecord.compat\nanyrecord.compat.install('ffrecord')\n{statement}\n"
    errors = run_text(text.format("\n" + blocker.format(name="numpy")), tmp_path, fails=True)
    assert errors.endswith("ModuleNotFoundError: anyrecord.compat.ffrecord needs numpy: pip install numpy\n")


@pytest.mark.parametrize("blocker", BLOCKERS.values(), ids=list(BLOCKERS))
@pytest.mark.parametrize("statement", ["ffrecord.torch.Dataset", "import ffrecord.torch", "from ffrecord import torch"])
def test_without_pytorch_the_error_says_what_to_install(tmp_path: Path, statement: str, blocker: str) -> None:
    text = (
        f"import sys{{}}\nimport anyrecord.compat\nanyrecord.compat.install('ffrecord')\nimport ffrecord\n{statement}"
    )
    errors = run_text(text.format("\n" + blocker.format(name="torch")), tmp_path, fails=True)
    assert errors.endswith("ModuleNotFoundError: anyrecord.compat.ffrecord.torch needs PyTorch: pip install torch\n")


@pytest.mark.parametrize("blocker", BLOCKERS.values(), ids=list(BLOCKERS))
def test_the_other_drop_ins_need_no_numpy(tmp_path: Path, blocker: str) -> None:
    text = """
import sys{}
import anyrecord.compat
anyrecord.compat.install("array_record", "recordio")
from array_record.python import array_record_data_source, array_record_module
import recordio
writer = array_record_module.ArrayRecordWriter("a.array_record")
writer.write(b"x")
writer.close()
writer = recordio.Writer("a.recordio")
writer.write(b"y")
writer.close()
print(array_record_data_source.ArrayRecordDataSource("a.array_record")[[0]], list(recordio.Scanner("a.recordio")))
"""
    assert run_text(text.format("\n" + blocker.format(name="numpy")), tmp_path) == "[b'x'] [b'y']\n"
