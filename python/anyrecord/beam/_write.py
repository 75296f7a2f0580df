"""`WriteToRecords`: writes a PCollection as record files."""

from __future__ import annotations

import os
from typing import Any, SupportsIndex

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.filebasedsink import DEFAULT_SHARD_NAME_TEMPLATE, DEFAULT_WINDOW_SHARD_NAME_TEMPLATE
from apache_beam.io.iobase import Write
from apache_beam.options.value_provider import ValueProvider

from anyrecord.beam._sink import RecordSink

__all__ = ["WriteToRecords"]


class WriteToRecords(beam.PTransform):
    """Writes a PCollection of `bytes` as record files. The result is a PCollection of their names.

    >>> import anyrecord, apache_beam as beam
    >>> from anyrecord.beam import WriteToRecords
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     numbers = pipeline | beam.Create([b"one", b"two", b"three"])
    ...     _ = numbers | WriteToRecords("numbers", file_name_suffix=".array_record", num_shards=2)
    >>> sorted(anyrecord.open("numbers-*.array_record"))
    [b'one', b'three', b'two']

    Files are written through Beam's own file systems, with the credentials of the runner. First they get temporary
    names; when all of them are complete, they get their final names, and temporary files are deleted. Files of the same
    names are replaced.

    - `file_path_prefix`, `shard_name_template`, `file_name_suffix`: the parts of the names, in this order. The template
      is `-SSSSS-of-NNNNN` (number of the shard, number of shards) for bounded collections and `-W-SSSSS-of-NNNNN` for
      unbounded ones, where W is the window and V the window as readable times; these need W or V. `""` means one file
      without a number. Names cannot have `*`, `?` or `[`, which Beam takes for patterns.
    - `format`: `"array_record"`, `"ffrecord"`, `"recordio"` or `"tfrecord"`. By default the suffix chooses it.
    - `coder`: encodes each element. By default, elements are `bytes`.
    - `num_shards`: the number of files. By default, each bundle makes one, and the runner chooses the bundles.
    - `max_records_per_shard`, `max_bytes_per_shard`: begin another file when one has so many records, or so many bytes
      of records before compression. There can then be more than `num_shards` files.
    - `skip_if_empty=True`: write no file if there are no elements.
    - `triggering_frequency`: for unbounded collections, the length in seconds of the windows that become files. It is
      needed if the collection has no windows of its own.
    - `options`: keywords of `anyrecord.create` for the format (`codec`, `level`, `group_size` and so on), and
      `threads`, which is 0 by default, because the runner already uses the cores.

    Counters of the pipeline, in the namespace `anyrecord`: `records_written` and `bytes_written` (of records).
    """

    def __init__(
        self,
        file_path_prefix: str | os.PathLike[str] | ValueProvider,
        *,
        format: str | None = None,
        coder: Coder | None = None,
        file_name_suffix: str | ValueProvider = "",
        num_shards: SupportsIndex | None = 0,
        shard_name_template: str | None = None,
        max_records_per_shard: SupportsIndex | None = None,
        max_bytes_per_shard: SupportsIndex | None = None,
        skip_if_empty: bool = False,
        triggering_frequency: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(coder, Coder | None):
            raise TypeError(f"coder= takes a coder of Beam, such as StrUtf8Coder(), not {type(coder).__name__}")
        self._sink = RecordSink(
            file_path_prefix,
            format=format,
            coder=coder,
            options=options,
            file_name_suffix=file_name_suffix,
            num_shards=num_shards,
            shard_name_template=shard_name_template,
            max_records_per_shard=max_records_per_shard,
            max_bytes_per_shard=max_bytes_per_shard,
            skip_if_empty=skip_if_empty,
            triggering_frequency=triggering_frequency,
        )

    def expand(self, pcoll: Any) -> Any:
        sink = self._sink
        if not pcoll.is_bounded and sink.shard_name_template == DEFAULT_SHARD_NAME_TEMPLATE:
            sink = sink.with_template(DEFAULT_WINDOW_SHARD_NAME_TEMPLATE)
        if not pcoll.is_bounded and not {"W", "V"} & set(sink.shard_name_template):
            raise ValueError(
                f"shard_name_template={sink.shard_name_template!r} gives the files of all windows the same names: "
                "add W (the window) or V (the window as readable times), as in '-V-SSSSS-of-NNNNN'"
            )
        return pcoll | Write(sink)

    def display_data(self) -> dict[str, Any]:
        return {"sink_dd": self._sink}
