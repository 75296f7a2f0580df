"""`convert`: converts record files with a Beam pipeline, on any runner."""

from __future__ import annotations

import glob
import os
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, SupportsIndex

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from anyrecord._dataclasses import dataclass
from anyrecord._locations import StrPath, is_url
from anyrecord._options import OnError
from anyrecord._shard_names import record_suffix
from anyrecord._stores import Storage
from anyrecord.beam._one_to_one import Conversion, ConvertFiles, temporary_folder
from anyrecord.beam._read import ReadFromRecords, reading_of
from anyrecord.beam._sink import NAMESPACE, absolute, check_options, delete_quietly
from anyrecord.beam._write import WriteToRecords

__all__ = ["Counts", "convert"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a conversion did, by the counters of the pipeline."""

    records: int
    """How many records were written."""
    bytes: int
    """Their size, before compression."""
    damaged: int
    """How many damaged records were left out or replaced."""


def convert(
    sources: StrPath | Iterable[StrPath],
    target: StrPath,
    *,
    runner: Any = None,
    pipeline_options: PipelineOptions | None = None,
    format: str | None = None,
    num_shards: SupportsIndex | None = None,
    shard_name_template: str | None = None,
    max_records_per_shard: SupportsIndex | None = None,
    max_bytes_per_shard: SupportsIndex | None = None,
    source_format: str | None = None,
    on_error: OnError = "raise",
    max_errors: SupportsIndex | None = None,
    storage: Storage | None = None,
    **options: Any,
) -> Counts:
    """Runs a pipeline that writes the records of `sources` to `target`, and waits for its end.

    >>> import anyrecord, anyrecord.beam
    >>> with anyrecord.create("old.tfrecord", shards=2, overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> anyrecord.beam.convert("old-*.tfrecord", "new/", format="array_record", runner="FnApiRunner")
    Counts(records=3, bytes=11, damaged=0)
    >>> anyrecord.open("new/").paths
    ['new/old-00000-of-00002.array_record', 'new/old-00001-of-00002.array_record']

    `sources` is what `ReadFromRecords` takes. `target` is one of these:

    - a folder (its name ends in a slash, or it exists): each source file becomes one file there, with the same records
      in the same order. It keeps its name and its shard number, and gets the suffix of `format`.
    - a name such as `new.array_record`: the records become shards, `new-00000-of-00016.array_record` and so on. Their
      order changes. Files are divided among workers. With `num_shards=`, the records pass through the runner, which
      groups them; else each bundle of the runner makes one shard. `max_records_per_shard`, `max_bytes_per_shard` and
      `shard_name_template` are those of `WriteToRecords`.

    The target is written through Beam's file systems. Files with the names of the new ones are replaced.

    - `runner`, `pipeline_options`: as for `beam.Pipeline`.
    - `format`: the format of the target. By default its suffix chooses it. A folder needs it.
    - `source_format`, `on_error`, `max_errors`, `storage`: `format` and the others of `anyrecord.open`, for sources.
    - `options`: those of the new format, as for `anyrecord.create`: `codec`, `level`, `group_size` and so on.
    """
    name, mark = absolute(target), uuid.uuid4().hex
    reading: dict[str, Any] = {
        "format": source_format,
        "on_error": on_error,
        "max_errors": max_errors,
        "storage": storage,
    }
    options = {keyword: value for keyword, value in options.items() if value is not None}
    pattern = sources if isinstance(sources, str | os.PathLike) else list(sources)
    sharding: dict[str, Any] = {
        "num_shards": num_shards,
        "shard_name_template": shard_name_template,
        "max_records_per_shard": max_records_per_shard,
        "max_bytes_per_shard": max_bytes_per_shard,
    }
    given = [keyword for keyword, value in sharding.items() if value is not None]
    pipeline = beam.Pipeline(runner=runner, options=pipeline_options)
    missing = _missing_folders(name)
    if name.endswith("/") or (not is_url(name) and os.path.isdir(name)):
        if given:
            raise ValueError(f"{name} is a folder, which gets one file for each source; {given[0]}= needs a file name")
        if format is None:
            raise ValueError(f"{name} is a folder: pass format= to choose the format of the new files")
        checked = check_options(format, options)
        opening = reading_of("convert", None, False, 1, reading).options
        conversion = Conversion(pattern, os.path.join(name, ""), format, opening, checked)
        conversion.targets()  # raises what is wrong before the pipeline runs
        temporary = temporary_folder(conversion.folder, mark)
        pipeline | ConvertFiles(conversion, mark)
    else:
        suffix = record_suffix(os.path.basename(name))
        prefix = name.removesuffix(suffix)
        write = WriteToRecords(prefix, format=format, file_name_suffix=suffix, **sharding, **options)
        write._sink.temporary_mark = f"-{mark}"
        temporary = f"{FileSystems.join(FileSystems.split(prefix)[0], 'beam-temp-')}*-{mark}"
        pipeline | ReadFromRecords(pattern, **reading) | write
    try:
        return _run(pipeline)
    except Exception:
        _delete_temporary(temporary)  # nobody else does
        for folder in missing:
            with suppress(OSError):  # it was not made, or it has files
                os.rmdir(folder)
        raise


def _missing_folders(name: str) -> list[str]:
    """The folders that a local output needs and that are not there, the innermost first."""
    missing, folder = [], os.path.dirname(name)
    while not is_url(name) and folder and not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _run(pipeline: beam.Pipeline) -> Counts:
    result = pipeline.run()
    state = result.wait_until_finish()
    if state in (PipelineState.FAILED, PipelineState.CANCELLED):
        raise RuntimeError(f"the pipeline ended with the state {state}")
    found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    sums: dict[str, int] = {}
    for counter in found:
        sums[counter.key.metric.name] = sums.get(counter.key.metric.name, 0) + counter.result
    names = ("records_written", "bytes_written", "records_damaged")
    return Counts(*(sums.get(name, 0) for name in names))


def _delete_temporary(beginning: str) -> None:
    """Deletes the temporary folders whose names begin like this."""
    if is_url(beginning):
        delete_quietly(f"{beginning}*/*")
        return
    for folder in glob.glob(f"{beginning}*"):
        with suppress(OSError, BeamIOError):
            shutil.rmtree(folder)
