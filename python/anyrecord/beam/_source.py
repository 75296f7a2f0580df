"""`RecordSource`: reads one file, divided by record numbers. `ReadRanges`: the same as a splittable DoFn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.io.iobase import BoundedSource, SourceBundle
from apache_beam.io.range_trackers import OffsetRangeTracker
from apache_beam.metrics import Metrics
from apache_beam.transforms.core import RestrictionProvider

from anyrecord._calls import add_note
from anyrecord._dataclasses import dataclass
from anyrecord._locations import shown
from anyrecord._numbers import MOST_COUNT
from anyrecord._options import OpenOptions
from anyrecord._paths import FileRange
from anyrecord.beam._opened import OpenedFile, forget, opened
from anyrecord.beam._ranges import RangeTracker, RecordRange
from anyrecord.beam._sink import NAMESPACE

__all__ = ["ReadRanges", "Reading", "RecordSource"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a transform reads its files."""

    options: OpenOptions
    owner: str
    """Different for each transform."""
    coder: Any
    with_position: bool
    desired_bytes: int

    def open(self, file: FileRange) -> OpenedFile:
        return opened(file, self.options, self.owner)


class RecordSource(BoundedSource):
    """The records of one file. Positions are record numbers, sizes are bytes."""

    def __init__(self, file: FileRange, reading: Reading) -> None:
        self.file = file
        self._reading = reading

    def estimate_size(self) -> int:
        file = self._open()
        return int(file.weight(file.start, file.stop))

    def get_range_tracker(self, start_position: int | None, stop_position: int | None) -> OffsetRangeTracker:
        file = self._open()
        start = file.start if start_position is None else start_position
        return OffsetRangeTracker(start, file.stop if stop_position is None else stop_position)

    def split(
        self, desired_bundle_size: float, start_position: int | None = None, stop_position: int | None = None
    ) -> Iterator[SourceBundle]:
        """Bundles of about so many bytes."""
        file = self._open()
        start = file.start if start_position is None else start_position
        stop = file.stop if stop_position is None else stop_position
        size = max(1, desired_bundle_size) if file.is_divided else MOST_COUNT
        for first, last in file.ranges(start, stop, size):
            yield SourceBundle(file.weight(first, last), self, first, last)

    def read(self, range_tracker: OffsetRangeTracker) -> Iterator[Any]:
        start = range_tracker.start_position()
        return self.read_claimed(start, range_tracker.stop_position, range_tracker.try_claim)

    def read_claimed(self, at: int, stop: Callable[[], int], try_claim: Callable[[int], bool]) -> Iterator[Any]:
        """Reads records until one cannot be claimed. `stop` is asked again for each batch, because it can shrink."""
        reading, decode = self._reading, self._decoder()
        path, with_position, counts = shown(self.file.path), reading.with_position, _Counts()
        file, reads_on = self._open(), reading.options.reads_on
        try:
            while at < (end := stop()):
                for record in self._batch(file, at, end):
                    if not try_claim(at):
                        return
                    if reads_on and file.is_damaged(at):
                        counts.damaged += 1
                    if record is not None:
                        counts.records += 1
                        counts.bytes += len(record)
                        value = record if decode is None else decode(record, path, at)
                        yield (path, at, value) if with_position else value
                    at += 1
                counts.report()
            try_claim(at)  # tells the tracker that the end was reached
        finally:
            counts.report()

    def _batch(self, file: OpenedFile, start: int, stop: int) -> list[bytes | None]:
        try:
            return file.batch(start, stop)
        except BaseException:
            forget(self.file, self._reading.owner)
            raise

    def _decoder(self) -> Callable[[bytes, str, int], Any] | None:
        coder = self._reading.coder
        if type(coder) is BytesCoder:
            return None

        def decode(record: bytes, path: str, index: int) -> Any:
            try:
                return coder.decode(record)
            except Exception as error:
                add_note(error, f"while the coder {type(coder).__name__} decoded record {index} of {path}")
                raise

        return decode

    def default_output_coder(self) -> Any:
        return self._reading.coder

    def is_bounded(self) -> bool:
        return True

    def _open(self) -> OpenedFile:
        return self._reading.open(self.file)


class ReadRanges(beam.DoFn, RestrictionProvider):
    """Reads files that are given as `FileRange`. What is left of a file is divided again while it is read."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def process(self, file, tracker=beam.DoFn.RestrictionParam()):  # type: ignore[no-untyped-def]  # noqa: B008
        # Without annotations: Beam would take them for the types of collections.
        source, start = RecordSource(file, self._reading), tracker.current_restriction().start
        return source.read_claimed(start, lambda: tracker.current_restriction().stop, tracker.try_claim)

    # Beam asks these of a restriction provider.

    def initial_restriction(self, element: FileRange) -> RecordRange:
        file = self._reading.open(element)
        return RecordRange(file.start, file.stop, file.weight(file.start, file.stop))

    def split(self, element: FileRange, restriction: RecordRange) -> Iterator[RecordRange]:
        source, file = RecordSource(element, self._reading), self._reading.open(element)
        for part in source.split(self._reading.desired_bytes, restriction.start, restriction.stop):
            start, stop = part.start_position, part.stop_position
            yield RecordRange(start, stop, part.weight, file.cuts(start, stop))

    def create_tracker(self, restriction: RecordRange) -> RangeTracker:
        return RangeTracker(restriction)

    def restriction_size(self, element: FileRange, restriction: RecordRange) -> float:
        return restriction.bytes


class _Counts:
    """What was read since the last report. A counter of Beam takes longer than a small record."""

    def __init__(self) -> None:
        self.records = self.bytes = self.damaged = 0

    def report(self) -> None:
        counts = {"records_read": self.records, "bytes_read": self.bytes, "records_damaged": self.damaged}
        for name, count in counts.items():
            if count:
                Metrics.counter(NAMESPACE, name).inc(count)
        self.records = self.bytes = self.damaged = 0
