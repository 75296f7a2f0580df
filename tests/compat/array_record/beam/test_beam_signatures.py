"""Modules, names and parameters are those of the original, as it is installed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import anyrecord.compat.array_record.beam
import array_record.beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

FUNCTIONS = [
    "arrayrecordio.WriteToArrayRecord",
    "arrayrecordio.WriteToArrayRecord.expand",
    "arrayrecordio._ArrayRecordSink",
    "arrayrecordio._ArrayRecordSink.close",
    "arrayrecordio._ArrayRecordSink.open",
    "arrayrecordio._ArrayRecordSink.write_encoded_record",
    "demo.main",
    "dofns.ConvertToArrayRecordGCS",
    "dofns.ConvertToArrayRecordGCS.process",
    "example.generate_movie_examples",
    "example.generate_serialized_movie_examples",
    "example.kitty_tfrecord",
    "example.write_example_to_arrayrecord",
    "example.write_example_to_tfrecord",
    "options.get_arguments",
    "pipelines.convert_tf_to_arrayrecord_disk",
    "pipelines.convert_tf_to_arrayrecord_disk_match_shards",
    "pipelines.convert_tf_to_arrayrecord_gcs",
    "pipelines.example_to_arrayrecord",
    "pipelines.example_to_tfrecord",
]
"""All classes and functions that the original defines, and the methods."""

FROM_COMMAND_LINE = ("args", "pipeline_options")
"""The original takes their defaults from the command line when it is imported. Ours are taken when they are called."""


def find(package: str, name: str) -> Any:
    module, *attributes = name.split(".")
    found = importlib.import_module(f"{package}.beam.{module}")
    for attribute in attributes:
        found = getattr(found, attribute)
    return found


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, default_of(each)) for each in found]


def default_of(parameter: inspect.Parameter) -> Any:
    if parameter.name in FROM_COMMAND_LINE:
        return "has one" if parameter.default is not inspect.Parameter.empty else "has none"
    known = str | int | bool | float | None
    return parameter.default if isinstance(parameter.default, known) else str(parameter.default)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_and_their_defaults_are_those_of_the_original(name: str) -> None:
    assert parameters(find("anyrecord.compat.array_record", name)) == parameters(find("array_record", name))


def test_the_modules_are_those_of_the_original() -> None:
    def modules(package: Any) -> set[str]:
        return {module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")}

    assert modules(anyrecord.compat.array_record.beam) == modules(array_record.beam)


def test_no_class_or_function_of_the_original_is_forgotten() -> None:
    defined = set()
    for module in pkgutil.iter_modules(array_record.beam.__path__):
        names = vars(find("array_record", module.name))
        defined |= {
            f"{module.name}.{name}"
            for name, value in names.items()
            if getattr(value, "__module__", None) == f"array_record.beam.{module.name}" and callable(value)
        }
    assert defined == {name for name in FUNCTIONS if name.count(".") == 1}


def test_constants_are_equal() -> None:
    for name in ("testdata.data", "dofns.ConvertToArrayRecordGCS._WRITE_DIR"):
        assert find("anyrecord.compat.array_record", name) == find("array_record", name)
    rows = find("anyrecord.compat.array_record", "testdata.data")
    assert [list(row) for row in rows] == [list(row) for row in find("array_record", "testdata.data")]


def test_the_defaults_have_names_as_in_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program", "--output", "out", "--runner=FnApiRunner"])
    for module, names in (("pipelines", ("def_args", "def_pipeline_options")), ("demo", FROM_COMMAND_LINE)):
        arguments, options = (find("anyrecord.compat.array_record", f"{module}.{name}") for name in names)
        assert arguments == {"input": None, "output": "out"}
        assert isinstance(options, PipelineOptions)
        assert options.get_all_options()["runner"] == "FnApiRunner"
        assert not hasattr(find("anyrecord.compat.array_record", module), "nothing")


def test_import_with_a_star_gives_the_pipelines() -> None:
    found: dict[str, Any] = {}
    exec("from anyrecord.compat.array_record.beam.pipelines import *", found)
    assert {f"pipelines.{name}" for name in found if name != "__builtins__"} == {
        name for name in FUNCTIONS if name.startswith("pipelines.")
    }
