"""The public surface: frozen names, documented, light to import, and strict about what it is given."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Limits
from children import python

ROOT = Path(__file__).parent.parent

PUBLIC = [
    "BatchIterator",
    "Batches",
    "ChecksumError",
    "ClosedError",
    "Converted",
    "Copied",
    "DamageWarning",
    "ElasticRecords",
    "FileInfo",
    "Folder",
    "FormatError",
    "HeldShard",
    "Info",
    "Lease",
    "LeaseLostError",
    "LimitError",
    "Limits",
    "Location",
    "MappedIterator",
    "MappedRecords",
    "MemoryStore",
    "Packed",
    "Permutation",
    "PublishError",
    "RecordError",
    "Records",
    "RecordsIterator",
    "Recovered",
    "Report",
    "Salvaged",
    "Shard",
    "ShardPlan",
    "ShardQueue",
    "ShardStatus",
    "ShardStore",
    "Skipped",
    "Stats",
    "Temporary",
    "TruncatedError",
    "Writer",
    "build_index",
    "concat",
    "convert",
    "copy",
    "create",
    "elastic",
    "info",
    "mix",
    "open",
    "pack",
    "recover",
    "salvage",
    "unpack",
    "verify",
]
"""A name that is added here is promised to everybody; one that is taken away breaks somebody."""


def test_the_public_names_are_exactly_these() -> None:
    assert anyrecord.__all__ == PUBLIC == sorted(PUBLIC)


def test_nothing_else_is_in_sight() -> None:
    modules = {"beam", "cli", "compat", "errors", "ray", "sampling", "torch"}
    visible = {name for name in dir(anyrecord) if not name.startswith("_")}
    assert visible - modules == {*PUBLIC, "annotations"}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name: str) -> None:
    thing = getattr(anyrecord, name)
    inherited = {base.__doc__ for base in getattr(thing, "__mro__", [])[1:]}
    assert inspect.getdoc(thing)
    assert thing.__doc__ not in inherited, "a docstring of its own"
    # What the dataclass decorator makes up is a signature, not a docstring.
    assert not str(thing.__doc__).startswith(f"{name}(")


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(getattr(anyrecord, name))])
def test_every_public_method_and_property_is_documented(name: str) -> None:
    kind = getattr(anyrecord, name)
    if issubclass(kind, Exception):
        return
    members = {member for member in dir(kind) if not member.startswith("_")}
    # Fields are documented where they are declared, which cannot be asked for at run time.
    fields = {*getattr(kind, "__dataclass_fields__", ()), *getattr(kind, "_fields", ())}
    undocumented = {member for member in members - fields if not inspect.getdoc(getattr(kind, member))}
    assert undocumented == set()


@pytest.mark.parametrize("function", [anyrecord.open, anyrecord.create])
def test_every_keyword_of_open_and_create_is_explained(function: Callable[..., object]) -> None:
    explained = set(re.findall(r"`(\w+)", inspect.getdoc(function) or ""))
    keywords = {
        name for name, value in inspect.signature(function).parameters.items() if value.kind is value.KEYWORD_ONLY
    }
    assert len(keywords) > 5
    assert keywords - explained == set()


def test_all_options_are_by_keyword_only() -> None:
    for function in (anyrecord.open, anyrecord.create, anyrecord.info, anyrecord.verify):
        first, *others = inspect.signature(function).parameters.values()
        assert first.kind is first.POSITIONAL_OR_KEYWORD
        assert {parameter.kind for parameter in others} == {inspect.Parameter.KEYWORD_ONLY}


def test_importing_loads_no_framework_and_no_heavy_module() -> None:
    script = """if True:
        import sys
        before = set(sys.modules)
        import anyrecord
        print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
    """
    loaded = set(python(script).split())
    assert "anyrecord" in loaded
    heavy = {
        *("numpy", "torch", "tensorflow", "jax", "grain", "ray", "apache_beam", "pandas", "pyarrow"),
        *("typing_extensions", "multiprocessing", "concurrent", "subprocess", "asyncio", "ssl", "socket", "logging"),
        *("array_record", "ffrecord", "recordio", "click", "rich"),
        *("dataclasses", "inspect", "pathlib", "pickle", "shutil", "datetime", "urllib", "tempfile", "hashlib"),
    }
    assert loaded & heavy == set()


def test_using_it_loads_no_framework_either() -> None:
    script = """if True:
        import sys, anyrecord
        with anyrecord.create("a.ffr", threads=2) as out:
            out.write_many([b"a", b"b"])
        records = anyrecord.open("a.ffr")
        records.read_packed([1, 0]).tolist(), records.read_packed([0]).__arrow_c_array__()
        list(records), records[[1, 0]], records.sizes(), anyrecord.verify("a.ffr"), anyrecord.info("a.ffr")
        print(*({"numpy", "torch", "tensorflow", "multiprocessing", "pyarrow"} & set(sys.modules)))
    """
    assert python(script).split() == []


def test_the_version_stands_in_one_place() -> None:
    """In `Cargo.toml`. Everything else takes it from there, or says the same."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert anyrecord.__version__ == version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert "version" in project["dynamic"]
    for crate in (ROOT / "crates").glob("*/Cargo.toml"):
        assert tomllib.loads(crate.read_text())["package"]["version"] == {"workspace": True}, crate
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    ours = {package["name"]: package["version"] for package in locked if package["name"].startswith("anyrecord")}
    assert ours == dict.fromkeys(["anyrecord", "anyrecord-models", "anyrecord-python"], version)
    headings = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == version, "the newest version in the changelog"


# Errors


def test_the_tree_of_exceptions_is_as_drawn() -> None:
    tree = {
        anyrecord.RecordError: (Exception,),
        anyrecord.FormatError: (anyrecord.RecordError, ValueError),
        anyrecord.TruncatedError: (anyrecord.FormatError,),
        anyrecord.ChecksumError: (anyrecord.FormatError,),
        anyrecord.LeaseLostError: (anyrecord.RecordError,),
        anyrecord.LimitError: (anyrecord.RecordError,),
        anyrecord.PublishError: (anyrecord.RecordError,),
        anyrecord.ClosedError: (anyrecord.RecordError, ValueError),
    }
    assert {kind: kind.__bases__ for kind in tree} == tree
    errors = {name for name in PUBLIC if name.endswith("Error")}
    assert errors == {kind.__name__ for kind in tree}
    assert not issubclass(anyrecord.LimitError, ValueError)
    for kind in tree:
        assert kind.__name__ in str(anyrecord.errors.__doc__)


ERRORS = [getattr(anyrecord, name) for name in PUBLIC if name.endswith("Error")]


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("way", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_an_exception_survives_pickling_with_all_it_knows(
    kind: type[anyrecord.RecordError], way: Callable[[anyrecord.RecordError], anyrecord.RecordError]
) -> None:
    error = kind("what", path="a.ffr", offset=7, record=3, expected="this", found="that")
    error.add_note("and a note")
    again = way(error)
    assert type(again) is kind
    assert again is not error
    assert str(again) == "what"
    assert vars(again) == vars(error)
    assert (again.path, again.offset, again.record, again.expected, again.found) == ("a.ffr", 7, 3, "this", "that")


@pytest.mark.parametrize("kind", ERRORS)
def test_what_an_exception_does_not_know_is_none(kind: type[anyrecord.RecordError]) -> None:
    error = kind("what")
    assert [error.path, error.offset, error.record, error.expected, error.found] == [None] * 5


# Wrong values


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.ffr"
    with anyrecord.create(path) as out:
        out.write(b"a")
    return path


@pytest.mark.parametrize(
    "function",
    [
        *(anyrecord.open, anyrecord.create, anyrecord.info, anyrecord.verify, anyrecord.build_index, anyrecord.Folder),
        lambda path, **keywords: anyrecord.convert(path, "new.ffr", **keywords),
        lambda path, **keywords: anyrecord.pack(path.parent, "new.ffr", **keywords),
        lambda path, **keywords: anyrecord.recover(path, keep="old", **keywords),
    ],
)
def test_an_unknown_keyword_is_a_type_error(path: Path, function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        function(path, colour="red")


WRONG_FOR_OPEN: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"table": "tape"}, ValueError, r"table='tape' is not valid: it must be 'memory' or 'disk'"),
    ({"table": None}, ValueError, r"table=None is not valid: it must be 'memory' or 'disk'"),
    ({"limits": 7}, TypeError, r"limits= takes an anyrecord.Limits, not int"),
    ({"limits": {"open_files": 7}}, TypeError, r"limits= takes an anyrecord.Limits, not dict"),
    ({"format": "parquet"}, ValueError, r"unknown format 'parquet'; known formats: .*ffrecord"),
    ({"format": ""}, ValueError, r"unknown format ''; known formats: .*ffrecord"),
    ({"format": 7}, TypeError, r"format"),
    ({"expected_records": 7}, anyrecord.FormatError, r"expected 7, found 1"),
]


@pytest.mark.parametrize(("keywords", "error", "message"), WRONG_FOR_OPEN)
def test_open_refuses_a_wrong_value_and_names_the_valid_ones(
    path: Path, keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        anyrecord.open(path, **keywords)


WRONG_FOR_CREATE: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"threads": -1}, ValueError, "threads=-1 is not valid: it must be a whole number from 0 to 1024"),
    ({"transpose": 1}, TypeError, "transpose=1 is not valid: it must be True or False, not int"),
    ({"codec": 7}, TypeError, "codec= takes the name of a compression as a str, not int"),
    ({"shards": 2, "shard_bytes": 9}, ValueError, "shards, shard_bytes and shard_records exclude each other"),
    ({"format": "parquet"}, ValueError, r"unknown format 'parquet'; known formats: .*ffrecord"),
    ({"format": 7}, TypeError, r"format"),
    *(
        (keyword, ValueError, f"ffrecord has no option '{next(iter(keyword))}'; it has: num_records")
        for keyword in ({"codec": "zstd"}, {"level": 3}, {"group_size": 2}, {"transpose": True}, {"window_log": 20})
    ),
]


@pytest.mark.parametrize(("keywords", "error", "message"), WRONG_FOR_CREATE)
def test_create_refuses_a_wrong_value_and_names_the_valid_ones(
    tmp_path: Path, keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        anyrecord.create(tmp_path / "new.ffr", **keywords)
    assert list(tmp_path.iterdir()) == []


def test_a_name_without_a_known_suffix_asks_for_the_format(tmp_path: Path) -> None:
    for target in (tmp_path / "new.parquet", tmp_path / "new", io.BytesIO()):
        with pytest.raises(ValueError, match=r"pass format=, one of .*ffrecord"):
            anyrecord.create(target)
    assert list(tmp_path.iterdir()) == []


def test_limits_are_frozen_equal_by_value_and_named_in_full() -> None:
    with pytest.raises(TypeError, match="open_folders"):
        Limits(open_folders=7)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Limits().open_files = 7  # type: ignore[misc]
    assert Limits(open_files=7) == Limits(open_files=7) != Limits()


def test_map_needs_a_function(path: Path) -> None:
    with pytest.raises(TypeError, match="map needs a function, not str"):
        anyrecord.open(path).map("len")  # type: ignore[arg-type]
