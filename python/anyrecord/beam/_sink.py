"""`RecordSink`: writes record files of any format through the file systems of Beam.

Beam creates a temporary folder beside the output. Each bundle writes files there. When all bundles are done, Beam gives
the files their final names and deletes the folder.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from typing import Any, SupportsIndex

from apache_beam.coders import BytesCoder
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.iobase import Writer as BeamWriter
from apache_beam.metrics import Metrics
from apache_beam.options.value_provider import ValueProvider
from apache_beam.transforms.display import DisplayDataItem

import anyrecord
from anyrecord._locations import StrPath, is_url, text_of
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, optional_number, whole_number
from anyrecord._targets import is_folder_name
from anyrecord._writer import FormatOptions, format_of, implied_codec

__all__ = ["NAMESPACE", "RecordSink", "absolute", "check_options", "delete_quietly", "refuse_pattern"]

NAMESPACE = "anyrecord"
"""The namespace of our counters."""

_WRITER_OPTIONS = (*FormatOptions.__annotations__, "threads")


class RecordSink(FileBasedSink):
    """A Beam sink for record files of one format.

    - `format`: `"array_record"`, `"ffrecord"`, `"recordio"` or `"tfrecord"`. By default the suffix chooses it.
    - `options`: keywords of `anyrecord.create` for that format, such as `codec` and `group_size`, and `threads`. The
      default is `threads=0`, because the runner already uses the cores.
    - `max_records_per_shard`, `max_bytes_per_shard`: begin another file when one has so many records, or so many bytes
      of records before compression. They hold for every kind of write.
    - The other keywords are those of Beam's `FileBasedSink`.

    Options are checked here, where the pipeline is built.
    """

    def __init__(
        self,
        file_path_prefix: str | os.PathLike[str] | ValueProvider,
        *,
        format: str | None = None,
        coder: Any = None,
        options: Mapping[str, Any] | None = None,
        file_name_suffix: str | ValueProvider = "",
        num_shards: SupportsIndex | None = 0,
        shard_name_template: str | None = None,
        mime_type: str = "application/octet-stream",
        max_records_per_shard: SupportsIndex | None = None,
        max_bytes_per_shard: SupportsIndex | None = None,
        skip_if_empty: bool = False,
        convert_fn: Any = None,
        triggering_frequency: int | None = None,
    ) -> None:
        if isinstance(file_path_prefix, str | os.PathLike):
            file_path_prefix = absolute(file_path_prefix)
        super().__init__(
            file_path_prefix,
            coder=BytesCoder() if coder is None else coder,
            file_name_suffix=file_name_suffix,
            num_shards=whole_number("num_shards", num_shards or 0, 0, MOST_COUNT),
            shard_name_template=shard_name_template,
            mime_type=mime_type,
            # Beam would compress the whole file if the suffix is .gz. Our formats compress by themselves.
            compression_type=CompressionTypes.UNCOMPRESSED,
            max_records_per_shard=optional_number("max_records_per_shard", max_records_per_shard, 1, MOST_COUNT),
            max_bytes_per_shard=optional_number("max_bytes_per_shard", max_bytes_per_shard, 1, MOST_COUNT),
            skip_if_empty=skip_if_empty,
            convert_fn=convert_fn,
            triggering_frequency=triggering_frequency,
        )
        if shard_name_template == "" and (self.max_records_per_shard or self.max_bytes_per_shard):
            raise ValueError("shard_name_template='' means one file, but a limit can need more: pass another template")
        name = self._example_name()
        if name is not None:
            refuse_pattern(name)
        if format is None:
            if name is None:
                raise ValueError("the name of the output is known only at run time: pass format=")
            format = format_of(name)
        self.format = format
        given = {keyword: value for keyword, value in (options or {}).items() if value is not None}
        if format == "tfrecord" and name is not None and (codec := implied_codec(name)) is not None:
            given = {"codec": codec, **given}
        self.options = check_options(format, given)
        self.temporary_mark = ""
        """A part of the name of the temporary folder, for those who want to find it."""

    def with_template(self, shard_name_template: str) -> RecordSink:
        """The same sink with other names of shards."""
        sink = copy(self)
        sink.shard_name_template = shard_name_template
        sink.shard_name_format = self._template_to_format(shard_name_template)
        sink.shard_name_glob_format = self._template_to_glob_format(shard_name_template)
        return sink

    def _example_name(self) -> str | None:
        """A name such as the files will have. None if it is known only at run time."""
        if not (self.file_path_prefix.is_accessible() and self.file_name_suffix.is_accessible()):
            return None
        example = {"shard_num": 0, "num_shards": 1, "uuid": 0, "window": "", "window_utc": ""}
        return f"{self.file_path_prefix.get()}{self.shard_name_format % example}{self.file_name_suffix.get()}"

    def display_data(self) -> dict[str, Any]:
        shown: dict[str, Any] = super().display_data()
        shown["format"] = DisplayDataItem(self.format, label="Record Format")
        return shown

    # Beam calls these when it writes.

    def initialize_write(self) -> str:
        """Chooses a temporary folder. The first file creates it, so that attempts that fail leave no folder."""
        refuse_pattern(f"{self.file_path_prefix.get()}{self.file_name_suffix.get()}")
        return self._create_temp_dir(self.file_path_prefix.get())

    def open_writer(self, init_result: Any, uid: str) -> ShardWriter:
        return ShardWriter(self, super().open_writer, init_result, uid)

    def open(self, temp_path: str) -> OpenFile:
        return OpenFile(self, temp_path)

    def write_record(self, file_handle: Any, value: Any) -> None:
        if type(self.coder) is not BytesCoder:
            super().write_record(file_handle, value)
        elif isinstance(value, bytes):
            self.write_encoded_record(file_handle, value)
        else:
            raise TypeError(f"elements must be bytes, not {type(value).__name__}; pass coder= to encode others")

    def write_encoded_record(self, file_handle: OpenFile, encoded_value: bytes) -> None:
        file_handle.writer.write(encoded_value)

    def close(self, file_handle: OpenFile) -> None:
        file_handle.close()

    # Beam calls these when all bundles are written.

    def pre_finalize(self, init_result: Any, writer_results: Iterable[Any]) -> Any:
        return super().pre_finalize(init_result, _paths(writer_results))

    def pre_finalize_windowed(self, init_result: Any, writer_results: Iterable[Any], window: Any = None) -> Any:
        return super().pre_finalize_windowed(init_result, _paths(writer_results), window)

    def finalize_windowed_write(
        self, init_result: Any, writer_results: Iterable[Any], unused_pre_finalize_results: Any, w: Any = None
    ) -> Iterator[str]:
        """Gives the files their names. `finalize_write` of Beam calls this, too."""
        yield from super().finalize_windowed_write(init_result, _paths(writer_results), unused_pre_finalize_results, w)
        # Beam deletes the folder by a name without a slash. In an object store, no object has that name.
        delete_quietly(FileSystems.join(init_result, "*"))

    def _create_temp_dir(self, file_path_prefix: str) -> str:
        # Beam would make it beside a folder, and the folder itself would be missing when files get their names.
        name = f"{file_path_prefix}records" if is_folder_name(file_path_prefix) else file_path_prefix
        folder: str = super()._create_temp_dir(name)
        return folder + self.temporary_mark

    @staticmethod
    def _template_to_glob_format(shard_name_template: str) -> str:
        """The names of all shards of a window. Beam finds none of them, because it leaves the W as it is.

        It looks for files with their final names when it repeats a write that was interrupted.
        """
        if not shard_name_template:
            return ""
        format: str = FileBasedSink._template_to_format(shard_name_template)
        return re.sub(r"%\((shard_num|uuid)\)0\d+d", "*", format)


class OpenFile:
    """One temporary file that is being written."""

    def __init__(self, sink: RecordSink, path: str) -> None:
        self.path = path
        self._stream = FileSystems.create(path, sink.mime_type, sink.compression_type)
        self.writer = anyrecord.create(self._stream, format=sink.format, **sink.options)

    def close(self) -> None:
        """Completes the file."""
        self.writer.close()
        self._stream.close()
        Metrics.counter(NAMESPACE, "records_written").inc(self.writer.num_records)
        Metrics.counter(NAMESPACE, "bytes_written").inc(self.writer.num_bytes)

    def discard(self) -> None:
        """Deletes the file. Never raises: it is called after another error, and Beam deletes the folder later."""
        with suppress(Exception):
            self.writer.discard()
        with suppress(Exception):
            self._stream.close()
        delete_quietly(self.path)


class ShardWriter(BeamWriter):
    """Writes the records of one bundle or of one shard to a file, or to more files if a limit is reached.

    Beam's own writer tells its caller when a file is full, and some callers do not ask.
    """

    def __init__(self, sink: RecordSink, open_file: Any, init_result: Any, uid: str) -> None:
        self._sink = sink
        self._open_file = open_file
        self._place = (init_result, uid)
        self._number = 0
        self._closed: list[str] = []
        self._file: OpenFile | None = None
        self._begin()

    def _begin(self) -> None:
        folder, uid = self._place
        self._number += 1
        name = uid if self._number == 1 else f"{uid}-{self._number}"
        self._file = self._open_file(folder, name).temp_handle

    @property
    def temp_shard_path(self) -> str:
        """The first file."""
        return self._closed[0] if self._closed or self._file is None else self._file.path

    def write(self, value: Any) -> None:
        try:
            if self._file is None or self._is_full(self._file.writer):
                self._end()
                self._begin()
            self._sink.write_record(self._file, value)
        except BaseException:
            self._discard()
            raise

    def _is_full(self, writer: anyrecord.Writer) -> bool:
        records, size = self._sink.max_records_per_shard, self._sink.max_bytes_per_shard
        return (records is not None and writer.num_records >= records) or (
            size is not None and writer.num_bytes >= size
        )

    def at_capacity(self) -> bool:
        """Never: `write` begins another file by itself."""
        return False

    def _end(self) -> None:
        file = self._file
        if file is not None:
            self._sink.close(file)
            self._closed.append(file.path)
            self._file = None

    def close(self) -> str | list[str]:
        """Completes the last file. Returns the file, or the files if a limit was reached."""
        try:
            self._end()
        except ValueError as error:  # Beam takes it as harmless in a windowed write
            self._discard()
            raise RuntimeError(str(error)) from error
        except BaseException:
            self._discard()
            raise
        return self._closed[0] if len(self._closed) == 1 else self._closed

    def _discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.discard()
        for path in self._closed:
            delete_quietly(path)
        self._closed = []

    def __del__(self) -> None:
        # The bundle failed in another step. A bundle that has succeeded has no open file.
        if getattr(self, "_file", None) is not None:
            with suppress(Exception):  # the interpreter may be about to exit
                self._discard()


def absolute(target: StrPath) -> str:
    """A local path as an absolute one, because Beam finds only files with absolute names again.

    URLs stay as they are, because Beam can have file systems that we do not have.

    >>> absolute("/data/./train"), absolute("/data/"), absolute("gs://bucket/train")
    ('/data/train', '/data/', 'gs://bucket/train')
    >>> absolute("") == os.path.join(os.getcwd(), "")
    True
    """
    text = os.fspath(target)
    if isinstance(text, str) and is_url(text) and not text.lower().startswith("file://"):
        return text
    path = text_of(target)
    return os.path.join(os.path.abspath(path), "") if not path or is_folder_name(path) else os.path.abspath(path)


def refuse_pattern(name: str) -> None:
    """Raises ValueError if Beam would take the name of an output for a pattern: it would lose or delete files."""
    if any(sign in name for sign in "*?["):
        raise ValueError(f"{name!r} cannot be written: Beam takes a name with *, ? or [ for a pattern; choose another")


def _paths(writer_results: Iterable[Any]) -> list[str]:
    """The files of all writers."""
    return [path for result in writer_results for path in ([result] if isinstance(result, str) else result)]


def delete_quietly(path: str) -> None:
    """Deletes a file, or the files that match, if they are there."""
    with suppress(OSError, BeamIOError, ValueError):
        found = [file.path for match in FileSystems.match([path]) for file in match.metadata_list]
        if found:
            FileSystems.delete(found)


def check_options(format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a writer with our defaults. Raises for options that the format does not have."""
    for keyword in options:
        if keyword not in _WRITER_OPTIONS:
            raise TypeError(f"unknown option {keyword!r}; the options of writers are {', '.join(_WRITER_OPTIONS)}")
    checked = {"threads": 0, **options}
    whole_number("threads", checked["threads"], 0, MOST_THREADS)
    anyrecord.create(io.BytesIO(), format=format, **checked).discard()
    return checked
