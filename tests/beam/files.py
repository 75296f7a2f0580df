"""Record files and pipelines for the tests of Beam."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anyrecord
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from conformance.formats import Case

RECORDS = [b"%d" % number * (number % 7) for number in range(40)]
"""Records of different sizes; some are empty."""


def write(name: str, case: Case, records: Iterable[bytes] = RECORDS, **options: Any) -> str:
    """Writes a file and returns its path."""
    path = f"{name}{case.suffix}"
    with anyrecord.create(path, format=case.format.name, **(case.options | options)) as out:
        out.write_many(records)
    return path


def pipeline(*flags: str, runner: Any = "FnApiRunner") -> beam.Pipeline:
    """A pipeline. The runner is chosen, because the default one looks for a program on the network."""
    return beam.Pipeline(runner=runner, options=PipelineOptions(list(flags)))


class Collect(beam.PTransform):
    """Writes what comes as lines of a file, so that tests see it whatever process it came from."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, collection: Any) -> Any:
        return collection | beam.Map(repr) | beam.io.WriteToText(os.path.abspath(self._path), shard_name_template="")


def collected(path: str) -> list[Any]:
    return sorted(eval(line) for line in Path(path).read_text().splitlines())


def read(*transforms: Any, flags: Sequence[str] = (), runner: Any = "FnApiRunner") -> list[Any]:
    """What a chain of transforms yields, sorted."""
    with pipeline(*flags, runner=runner) as started:
        last: Any = started
        for transform in transforms:
            last = last | transform
        last | Collect("collected")
    found = collected("collected")
    os.remove("collected")
    return found


def left_in(folder: str = ".") -> list[str]:
    """The names of all files and folders there, hidden ones too."""
    return sorted(os.listdir(folder))


def counters(result: Any) -> dict[str, int]:
    """Our counters of a pipeline that has run, by their names."""
    sums: dict[str, int] = {}
    for counter in result.metrics().query()["counters"]:
        if counter.key.metric.namespace == "anyrecord":
            sums[counter.key.metric.name] = sums.get(counter.key.metric.name, 0) + counter.result
    return sums
