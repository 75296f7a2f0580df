"""`ConvertFiles`: converts each file to one file. Records do not pass through Python or the runner."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsIter, AsSingleton

import anyrecord
from anyrecord import _core, _pouring
from anyrecord._copying import Target, one_to_one
from anyrecord._dataclasses import dataclass
from anyrecord._locations import is_url, shown
from anyrecord._options import OpenOptions
from anyrecord._paths import FileRange, expand
from anyrecord._records import open_range
from anyrecord.beam._sink import NAMESPACE, delete_quietly, refuse_pattern

__all__ = ["Conversion", "ConvertFiles", "temporary_folder"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What to convert, and to what."""

    pattern: Any
    folder: str
    """Ends in a slash."""
    format: str
    reading: OpenOptions
    options: dict[str, Any]
    """Of the writer."""

    def targets(self) -> list[Target]:
        """Finds the files. Raises if two of them have the same name, or if one would be replaced."""
        files = expand(self.pattern, self.reading)
        refuse_pattern(self.folder)
        targets = one_to_one(files, self.folder, self.format, self.options)
        sources = {_identity(file.path) for file in files}
        for target in targets:
            if _identity(target.path) in sources:
                raise ValueError(f"{shown(target.path)!r} is a source and would be replaced; choose another folder")
        return targets


def _identity(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)


class ConvertFiles(beam.PTransform):
    """Converts each file. The result is a PCollection of the new names.

    Files are written to a temporary folder. When all of them are complete, they get their names.
    """

    def __init__(self, conversion: Conversion, mark: str) -> None:
        super().__init__()
        self._conversion, self._mark = conversion, mark

    def expand(self, pbegin: Any) -> Any:
        conversion, mark = self._conversion, self._mark
        once = pbegin.pipeline | "Once" >> beam.Create([None])
        # The first file creates the folder, so that attempts that fail leave no folder.
        folder = once | "NameFolder" >> beam.Map(lambda _: f"{temporary_folder(conversion.folder, mark)}-{_unique()}")
        written = (
            once
            | "FindFiles" >> beam.FlatMap(lambda _: conversion.targets())
            | "Reshuffle" >> beam.Reshuffle()
            | "Convert" >> beam.ParDo(_ConvertFile(conversion), AsSingleton(folder))
        )
        return once | "Rename" >> beam.FlatMap(_rename, AsSingleton(folder), AsIter(written)).with_output_types(str)


def temporary_folder(folder: str, mark: str) -> str:
    """The beginning of the names of temporary folders."""
    return str(FileSystems.join(folder, f"beam-temp-{mark}"))


def _unique() -> str:
    return uuid.uuid4().hex


class _ConvertFile(beam.DoFn):
    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion

    def process(self, target, folder):  # type: ignore[no-untyped-def]
        # Without annotations: Beam would take them for the types of collections.
        path = FileSystems.join(folder, _unique())
        try:
            self._write(target.files[0], path)
        except BaseException:
            delete_quietly(path)
            raise
        yield path, target.path

    def _write(self, file: FileRange, path: str) -> None:
        conversion, damaged = self._conversion, 0
        # Our formats compress by themselves.
        with (
            FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as stream,
            anyrecord.create(stream, format=conversion.format, **conversion.options) as out,
        ):
            if conversion.reading.reads_on:
                with open_range(file, conversion.reading) as records:
                    _pouring.pour(records, out, None, None, None, 0)
                    damaged = len(records.skipped)
            else:
                _core.pour(out, [(file.path, file.start, file.stop)], conversion.reading, None, None, None, 0)
        counts = {
            "records_read": out.num_records,
            "bytes_read": out.num_bytes,
            "records_damaged": damaged,
            "records_written": out.num_records,
            "bytes_written": out.num_bytes,
        }
        for name, count in counts.items():
            Metrics.counter(NAMESPACE, name).inc(count)


def _rename(_: None, folder: str, written: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Gives the files their names. It can be called again after an interruption."""
    pairs = sorted(written, key=lambda pair: pair[1])
    there = _files_in(folder)
    old = _files_in(FileSystems.split(pairs[0][1])[0]) if pairs else set()
    waiting = [(source, name) for source, name in pairs if source in there]
    for source, name in pairs:
        if source not in there and name not in old:
            raise BeamIOError(f"neither {source!r} nor {shown(name)!r} exists; was the temporary folder deleted?")
    # A local file is replaced by the new one. Besides, Beam would take the name of a local file for a pattern here.
    if replaced := [name for _, name in waiting if name in old and is_url(name)]:
        FileSystems.delete(replaced)
    size = max(1, FileSystems.get_chunk_size(folder))
    for begin in range(0, len(waiting), size):
        sources, names = zip(*waiting[begin : begin + size], strict=True)
        FileSystems.rename(list(sources), list(names))
    delete_quietly(FileSystems.join(folder, "*"))
    with suppress(OSError, BeamIOError):  # an object store has no folders
        FileSystems.delete([folder])
    yield from (name for _, name in pairs)


def _files_in(folder: str) -> set[str]:
    found = FileSystems.match([FileSystems.join(folder, "*")])
    return {file.path for match in found for file in match.metadata_list}
