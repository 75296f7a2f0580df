"""Reads TFRecord files through the file systems of Beam. TensorFlow is not needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
from apache_beam.io.fileio import EmptyMatchTreatment, MatchFiles
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

import anyrecord

__all__ = ["MatchTFRecords", "TFRecordFile", "check_matches", "only_file", "with_records"]


class TFRecordFile:
    """The records of one file, in order. It is read each time it is iterated, and small when it is sent to a worker.

    As in Beam's own sources, the suffix says whether the file is compressed (`.gz`, `.bz2`, `.zst` and others).
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __iter__(self) -> Iterator[bytes]:
        if self._is_plain_local():
            yield from anyrecord.open(Path(self.path), format="tfrecord", threads=0)
            return
        # A remote file is read once, from front to back, and kept on disk while its records are used.
        with tempfile.TemporaryDirectory(prefix="anyrecord-") as folder:
            copy = Path(folder, "records.tfrecord")
            with FileSystems.open(self.path) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            try:
                yield from anyrecord.open(copy, format="tfrecord", threads=0)
            except anyrecord.RecordError as error:
                error.args = (str(error).replace(str(copy), self.path),)
                error.path = self.path
                raise

    def _is_plain_local(self) -> bool:
        if FileSystems.get_scheme(self.path) is not None:
            return False
        compression = CompressionTypes.detect_compression_type(self.path)
        return bool(compression == CompressionTypes.UNCOMPRESSED)


class MatchTFRecords(beam.PTransform):
    """The paths of the files that match a pattern. It is an error if there are none."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = _with_folder(pattern)

    def expand(self, start: beam.Pipeline) -> beam.PCollection[str]:
        return (
            start | MatchFiles(self._pattern, EmptyMatchTreatment.DISALLOW) | "Path" >> beam.Map(lambda file: file.path)
        )


def _with_folder(pattern: str) -> str:
    """Beam finds no local files by a pattern without a folder, such as `*.tfrecord`."""
    return os.path.abspath(pattern) if FileSystems.get_scheme(pattern) is None else pattern


def check_matches(pattern: str) -> None:
    """Raises FileNotFoundError if no file matches."""
    if not FileSystems.match([_with_folder(pattern)], limits=[1])[0].metadata_list:
        raise FileNotFoundError(f"no files match {pattern}: --input must name TFRecord files")


def with_records(path: str) -> tuple[str, TFRecordFile]:
    """A path and its records."""
    return path, TFRecordFile(path)


def only_file(name: str, paths: Iterable[str]) -> tuple[str, TFRecordFile]:
    """The file that is converted to this name, and its records. ValueError if there are two."""
    first, *others = sorted(paths)
    if others:
        raise ValueError(f"{first} and {others[0]} would both be written to {name}: convert them to different folders")
    return with_records(first)
