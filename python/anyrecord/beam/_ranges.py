"""`RecordRange`: the records of a file that one worker reads, and the tracker that divides it while it is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker

__all__ = ["RangeTracker", "RecordRange"]

_NEAR = 8
"""A cut is near if the way to it is at most this part of what is left."""


class RecordRange(OffsetRange):
    """Record numbers from `start` up to `stop`, which is not included.

    >>> RecordRange(0, 100, 5000, [32, 64]).split_at(50)
    (RecordRange(0, 50, 2500.0, (32,)), RecordRange(50, 100, 2500.0, (64,)))
    """

    def __init__(self, start: int, stop: int, bytes: float, cuts: Sequence[int] = ()) -> None:
        super().__init__(start, stop)
        self.bytes = bytes
        """About how many bytes of the file these records take. Runners balance their work by it."""
        self.cuts = tuple(cut for cut in cuts if start < cut < stop)
        """Records that begin a chunk. A range that ends in the middle of a chunk has it decoded twice."""

    def split_at(self, split_pos: int) -> tuple[RecordRange, RecordRange]:
        share = (split_pos - self.start) / max(1, self.stop - self.start)
        first = RecordRange(self.start, split_pos, self.bytes * share, self.cuts)
        return first, RecordRange(split_pos, self.stop, self.bytes - first.bytes, self.cuts)

    def __repr__(self) -> str:
        return f"RecordRange({self.start}, {self.stop}, {self.bytes!r}, {self.cuts})"


class RangeTracker(OffsetRestrictionTracker):
    """Divides what is left of a range, between two chunks if that is near."""

    _range: RecordRange

    def try_split(self, fraction_of_remainder: float) -> Any:
        cuts = self._range.cuts
        if not cuts or fraction_of_remainder <= 0 or self._checkpointed:
            return super().try_split(fraction_of_remainder)
        at = self._range.start - 1 if self._last_claim_attempt is None else self._last_claim_attempt
        left = self._range.stop - at
        wanted = at + max(1, int(left * fraction_of_remainder))
        if wanted >= self._range.stop:
            return None
        place = bisect_left(cuts, wanted)
        near = [cut for cut in cuts[max(0, place - 1) : place + 1] if cut > at and abs(cut - wanted) * _NEAR <= left]
        split = min(near, key=lambda cut: abs(cut - wanted), default=wanted)
        self._range, rest = self._range.split_at(split)
        return self._range, rest
