"""`WriteToArrayRecord` writes a PCollection to ArrayRecord files.

>>> import anyrecord, apache_beam as beam
>>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
>>> from anyrecord.compat.array_record.beam.arrayrecordio import WriteToArrayRecord
>>> with beam.Pipeline(FnApiRunner()) as pipeline:
...     records = pipeline | beam.Create([b"record %d" % i for i in range(10)])
...     names = records | WriteToArrayRecord("doc", file_name_suffix=".array_record", num_shards=2)
>>> sorted(anyrecord.open("doc-*-of-00002.array_record"))[:2]
[b'record 0', b'record 1']
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from apache_beam import io, transforms
from apache_beam.coders import coders
from apache_beam.io import filesystem
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.options.value_provider import ValueProvider
from apache_beam.pvalue import AsSingleton, PCollection

from anyrecord.beam._sink import OpenFile, RecordSink

__all__ = ["WriteToArrayRecord"]

Name: TypeAlias = str | os.PathLike[str] | ValueProvider


class _ArrayRecordSink(RecordSink):
    """Writes shards with one record in a chunk, as the original does.

    A subclass may return a writer of its own from `open(temp_path)`. The writer needs `write(record)` and `close()`.
    """

    def __init__(
        self,
        file_path_prefix: Name,
        file_name_suffix: str | ValueProvider | None = None,
        num_shards: int | AsSingleton = 0,
        shard_name_template: str | None = None,
        coder: coders.Coder = coders.ToBytesCoder(),  # noqa: B008  # it has no state, and the original has it there
        compression_type: str = filesystem.CompressionTypes.AUTO,
    ) -> None:
        if not filesystem.CompressionTypes.is_valid_compression_type(compression_type):
            raise TypeError(f"compression_type must be one of CompressionTypes, not {compression_type!r}")
        is_counted = isinstance(num_shards, AsSingleton)
        super().__init__(
            file_path_prefix,
            format="array_record",
            options={"group_size": 1},
            file_name_suffix="" if file_name_suffix is None else file_name_suffix,
            num_shards=0 if is_counted else num_shards,
            shard_name_template=shard_name_template,
            coder=coder,
        )
        if is_counted and shard_name_template != "":  # the empty template means one shard
            self.num_shards = _CountedShards(num_shards)

    def initialize_write(self) -> Any:
        # A writer of a subclass expects that the temporary folder is there. Ours make it.
        return super().initialize_write() if self._has_our_writers else FileBasedSink.initialize_write(self)

    def open_writer(self, init_result: Any, uid: str) -> Any:
        if self._has_our_writers:
            return super().open_writer(init_result, uid)
        return FileBasedSink.open_writer(self, init_result, uid)

    @property
    def _has_our_writers(self) -> bool:
        return type(self).open is _ArrayRecordSink.open

    def open(self, temp_path: str) -> Any:
        return super().open(temp_path)

    def write_encoded_record(self, file_handle: Any, value: bytes) -> None:
        (file_handle.writer if isinstance(file_handle, OpenFile) else file_handle).write(value)

    def close(self, file_handle: Any) -> None:
        file_handle.close()

    def display_data(self) -> dict[str, Any]:
        shown = super().display_data()
        if isinstance(self.num_shards, AsSingleton):
            del shown["shards"]
        return shown

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if isinstance(self.num_shards, AsSingleton):
            state["num_shards"] = 0  # workers get the number as a side input
        return state


class _CountedShards(AsSingleton):
    """A number of shards that is known when the pipeline runs.

    Beam's `Write` hands it to the steps that need it, but first compares it with 1.
    """

    def __init__(self, count: AsSingleton) -> None:
        super().__init__(count.pvalue, count.default_value)

    def __ge__(self, other: object) -> bool:
        return True

    def __gt__(self, other: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = AsSingleton.__hash__


class WriteToArrayRecord(transforms.PTransform):
    """Writes a PCollection to ArrayRecord files, with one record in a chunk. Returns the names of the files.

    - `file_path_prefix`: the beginning of the names: a local path, or any other that Beam can write, such as `gs://`.
    - `file_name_suffix`: the end of the names, such as `".array_record"`.
    - `num_shards`: the number of files. By default the runner decides. It can also be `beam.pvalue.AsSingleton`.
    - `shard_name_template`: the part between, `"-SSSSS-of-NNNNN"` by default.
    - `coder` turns elements into bytes. By default bytes stay as they are, and other elements become their `str()`.
    - `compression_type` has no effect: the records inside of the files are compressed.
    """

    def __init__(
        self,
        file_path_prefix: Name,
        file_name_suffix: str | ValueProvider = "",
        num_shards: int | AsSingleton = 0,
        shard_name_template: str | None = None,
        coder: coders.Coder = coders.ToBytesCoder(),  # noqa: B008
        compression_type: str = filesystem.CompressionTypes.AUTO,
    ) -> None:
        super().__init__()
        self._sink = _ArrayRecordSink(
            file_path_prefix, file_name_suffix, num_shards, shard_name_template, coder, compression_type
        )

    def expand(self, pcoll: PCollection) -> PCollection:
        return pcoll | io.iobase.Write(self._sink)
