"""Files that the pipelines read, and what the original says of those that they write."""

from __future__ import annotations

from pathlib import Path

import anyrecord
from apache_beam.options.pipeline_options import PipelineOptions
from array_record.python.array_record_module import ArrayRecordReader


def in_process() -> PipelineOptions:
    """Options for Beam's runner in this process, and for a store that asks for no credentials."""
    return PipelineOptions(["--runner=FnApiRunner", "--no_auth"])


def write_tfrecords(folder: Path, *counts: int) -> list[bytes]:
    """Writes files of so many records each. Returns all records."""
    folder.mkdir(exist_ok=True)
    records = []
    for file, count in enumerate(counts):
        mine = [b"record %d of file %d" % (i, file) for i in range(count)]
        with anyrecord.create(folder / f"in-{file}.tfrecord") as out:
            out.write_many(mine)
        records += mine
    return records


def names(folder: Path) -> list[str]:
    """The names in a folder. No temporary file may stay there."""
    return sorted(path.name for path in folder.iterdir())


def read_by_original(path: Path) -> list[bytes]:
    """The records as the original reads them, from a file that it would have written."""
    reader = ArrayRecordReader(str(path))
    assert reader.ok()
    assert reader.writer_options_string().startswith("group_size:1,")
    records: list[bytes] = reader.read_all()
    reader.close()
    return records
