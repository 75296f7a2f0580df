"""`ReadFromRecords` and `ReadAllFromRecords`: record files as a PCollection."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex
from uuid import uuid4

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder
from apache_beam.io.fileio import EmptyMatchTreatment, ReadableFile
from apache_beam.io.filesystem import FileMetadata
from apache_beam.options.value_provider import ValueProvider
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.typehints import Tuple

from anyrecord._locations import StrPath, is_url, shown
from anyrecord._numbers import MOST_COUNT, whole_number
from anyrecord._options import OpenOptions, open_options
from anyrecord._paths import NO_MATCH, FileRange, expand, with_sizes
from anyrecord.beam._source import Reading, ReadRanges

__all__ = ["FindFiles", "ReadAllFromRecords", "ReadFromRecords", "reading_of"]

_BUNDLE_BYTES = 64 << 20
_OPEN_OPTIONS = (
    "cache",
    "cache_bytes",
    "cache_folder_bytes",
    "checksums",
    "format",
    "io",
    "limits",
    "max_errors",
    "on_error",
    "storage",
    "table",
    "threads",
)


class ReadFromRecords(beam.PTransform):
    """Reads record files as a PCollection of `bytes`.

    >>> import anyrecord, apache_beam as beam
    >>> from anyrecord.beam import ReadFromRecords
    >>> with anyrecord.create("train.array_record", shards=2, overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(10))
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     records = pipeline | ReadFromRecords("train-*.array_record") | beam.Map(int)
    ...     _ = records | beam.CombineGlobally(sum) | beam.Map(print)
    45

    `file_pattern` is what `anyrecord.open` takes by name: a path, a list of paths, a glob, a folder, `name@16`,
    `file[1000:2000]`, or a URL. Workers read URLs by themselves, with the credentials that they find in their
    environment or in `storage=`; Beam's own file systems are not used.

    - `coder`: decodes each record, for example `beam.coders.StrUtf8Coder()`. By default, records stay `bytes`.
    - `with_position=True`: gives `(file, index, record)` instead of the record. The index is the number of the record
      in the file.
    - `validate=False`: do not look for the files before the pipeline runs, for example because only workers can. By
      default, a pattern that matches no file raises FileNotFoundError here.
    - `desired_bundle_size`: about how many bytes of a file one worker reads at first. Runners divide what is left of a
      file again while it is read.
    - `options`: keywords of `anyrecord.open`: `format`, `checksums`, `table`, `io`, `limits`, `cache_bytes`, `threads`,
      `on_error`, `max_errors`, `storage`, `cache` and `cache_folder_bytes`. The default is `threads=0`, because the
      runner already uses the cores. With `on_error=`, each worker counts `max_errors` for each file that it has open.

    Counters of the pipeline, in the namespace `anyrecord`: `records_read`, `bytes_read` (of records) and
    `records_damaged` (left out or replaced, with `on_error=`).
    """

    def __init__(
        self,
        file_pattern: StrPath | Iterable[StrPath] | ValueProvider,
        *,
        coder: Coder | None = None,
        with_position: bool = False,
        validate: bool = True,
        desired_bundle_size: SupportsIndex = _BUNDLE_BYTES,
        **options: Any,
    ) -> None:
        super().__init__()
        self._reading = reading_of("ReadFromRecords", coder, with_position, desired_bundle_size, options)
        if isinstance(file_pattern, str | os.PathLike | ValueProvider):
            self._pattern: Any = file_pattern
        elif isinstance(file_pattern, bytes) or not isinstance(file_pattern, Iterable):
            raise TypeError(f"file_pattern must be a path or an iterable of paths, not {type(file_pattern).__name__}")
        else:
            self._pattern = sorted(file_pattern) if isinstance(file_pattern, set | frozenset) else list(file_pattern)
        if validate and not isinstance(file_pattern, ValueProvider):
            # An object that is named exactly is not looked up before its size is asked for.
            with_sizes(expand(self._pattern, self._reading.options), self._reading.options)

    def expand(self, pbegin: Any) -> Any:
        patterns = pbegin.pipeline | "Pattern" >> beam.Create([_Pattern(self._pattern)])
        find = FindFiles(self._reading.options, EmptyMatchTreatment.DISALLOW)
        return _read(patterns | "FindFiles" >> beam.ParDo(find), self._reading)

    def display_data(self) -> dict[str, Any]:
        return {"file_pattern": DisplayDataItem(_shown(self._pattern), label="File Pattern")}


class ReadAllFromRecords(beam.PTransform):
    """Reads the record files that a PCollection names.

    >>> import anyrecord, apache_beam as beam
    >>> from anyrecord.beam import ReadAllFromRecords
    >>> with anyrecord.create("train.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two"])
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     names = pipeline | beam.Create(["train.ffr"])
    ...     _ = names | ReadAllFromRecords(with_position=True) | beam.Map(print)
    ('train.ffr', 0, b'one')
    ('train.ffr', 1, b'two')

    Each element is a pattern as for `ReadFromRecords`, or what Beam's `fileio.MatchFiles` and `fileio.ReadMatches`
    give. The keywords are those of `ReadFromRecords`. There is one more: with `empty_match_treatment="DISALLOW"`, a
    glob that matches no file is an error. By default it stands for no records. A missing file that is named exactly is
    always an error, and so is a missing shard.
    """

    def __init__(
        self,
        *,
        coder: Coder | None = None,
        with_position: bool = False,
        empty_match_treatment: str = EmptyMatchTreatment.ALLOW_IF_WILDCARD,
        desired_bundle_size: SupportsIndex = _BUNDLE_BYTES,
        **options: Any,
    ) -> None:
        super().__init__()
        self._reading = reading_of("ReadAllFromRecords", coder, with_position, desired_bundle_size, options)
        if empty_match_treatment not in ("ALLOW_IF_WILDCARD", "DISALLOW"):
            raise ValueError(
                f"empty_match_treatment={empty_match_treatment!r} is not valid: it must be 'ALLOW_IF_WILDCARD' or "
                "'DISALLOW', because the name of one file must exist"
            )
        self._empty_match = empty_match_treatment

    def expand(self, pcoll: Any) -> Any:
        find = FindFiles(self._reading.options, self._empty_match)
        return _read(pcoll | "FindFiles" >> beam.ParDo(find), self._reading)


def _read(files: Any, reading: Reading) -> Any:
    """The records of a PCollection of files."""
    kind = reading.coder.to_type_hint()
    read = beam.ParDo(ReadRanges(reading)).with_output_types(Tuple[str, int, kind] if reading.with_position else kind)
    return files | "Reshuffle" >> beam.Reshuffle() | "ReadRanges" >> read


def reading_of(
    function: str, coder: Any, with_position: bool, desired_bundle_size: SupportsIndex, options: dict[str, Any]
) -> Reading:
    """Checks the keywords of a transform."""
    for keyword in options:
        if keyword not in _OPEN_OPTIONS:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {keyword!r}; "
                f"the options of open are {', '.join(_OPEN_OPTIONS)}"
            )
    coder = BytesCoder() if coder is None else coder
    if not isinstance(coder, Coder):
        raise TypeError(f"coder= takes a coder of Beam, such as StrUtf8Coder(), not {type(coder).__name__}")
    return Reading(
        options=open_options(**{"threads": 0, **options}),
        owner=uuid4().hex,
        coder=coder,
        with_position=bool(with_position),
        desired_bytes=whole_number("desired_bundle_size", desired_bundle_size, 1, MOST_COUNT),
    )


class _Pattern:
    """A pattern as an element. Beam would take a list apart, and a path object for a value that it has to encode."""

    def __init__(self, pattern: Any) -> None:
        self.pattern = pattern


class FindFiles(beam.DoFn):
    """Finds the files that match a pattern."""

    def __init__(self, options: OpenOptions, empty_match: str) -> None:
        self._options = options
        self._empty_match = empty_match

    def process(self, element):  # type: ignore[no-untyped-def]
        # Without annotations: Beam would take them for the types of collections.
        return self._find(element.pattern if isinstance(element, _Pattern) else element)

    def _find(self, pattern: Any) -> Iterator[FileRange]:
        if isinstance(pattern, ValueProvider):
            pattern = pattern.get()
        if isinstance(pattern, ReadableFile):
            pattern = pattern.metadata
        if isinstance(pattern, FileMetadata):  # it exists, and its name is no pattern
            yield FileRange(pattern.path, is_local=not is_url(pattern.path))
            return
        try:
            yield from expand(pattern, self._options)
        except FileNotFoundError as error:
            may_be_empty = self._empty_match == EmptyMatchTreatment.ALLOW_IF_WILDCARD
            if not (may_be_empty and error.strerror == NO_MATCH):
                raise


def _shown(pattern: Any) -> str:
    if isinstance(pattern, str | os.PathLike):
        return shown(os.fspath(pattern))
    if isinstance(pattern, ValueProvider):
        return str(pattern)
    names = [shown(os.fspath(name)) for name in pattern]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
