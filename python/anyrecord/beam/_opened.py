"""Files that are open in this worker process, and where to divide them."""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate

from anyrecord._options import OpenOptions
from anyrecord._paths import FileRange
from anyrecord._records import Records, open_range

__all__ = ["OpenedFile", "forget", "opened"]

_MOST_OPEN = 16
"""Files that stay open after they were read, for the next range of the same file."""
_MOST_SIZES = 1 << 20
"""Of files with more records, the sizes of records are not looked at; all count the same."""
_RECORD_BYTES = 32
"""What a record takes in addition to its own bytes: an empty one is work, too."""
_BATCH_BYTES = 1 << 20
_MOST_CHUNK_BYTES = 64 << 20
"""Chunks up to this size are read whole, so that they are decoded once however many threads share a cache."""
_MOST_BATCH = 4096
_CUTS = 64

_files: OrderedDict[tuple[object, ...], OpenedFile] = OrderedDict()
_lock = threading.Lock()


def opened(file: FileRange, options: OpenOptions, owner: str) -> OpenedFile:
    """The open file. If the same transform has opened it before, it is open already.

    `owner` is different for each transform, because a later pipeline may find another file of the same name.
    """
    key = _key(file, owner)
    with _lock:
        found = _files.get(key)
        if found is not None:
            _files.move_to_end(key)
            return found
    made = OpenedFile(file, open_range(file, options))  # without the lock: opening can take long
    with _lock:
        found = _files.setdefault(key, made)
        while len(_files) > _MOST_OPEN:
            _files.popitem(last=False)  # those who still read it keep it open
    return found


def forget(file: FileRange, owner: str) -> None:
    """Opens the file anew next time. After an error, the file may have been replaced."""
    with _lock:
        for key in [key for key in _files if key[:2] == (owner, file.path)]:
            del _files[key]


def _key(file: FileRange, owner: str) -> tuple[object, ...]:
    identity: tuple[int, ...] = ()
    if file.is_local:
        about = os.stat(file.path)
        identity = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
    return (owner, file.path, file.start, file.stop, *identity)


class OpenedFile:
    """One open file, or a part of one. Records are named by their numbers in the file."""

    def __init__(self, file: FileRange, records: Records) -> None:
        self.records = records
        self.start = file.start
        self.stop = file.start + len(records)
        about = records._source.descriptions()[0]
        self._has_chunks = about[2] < len(records)
        self._mean = max(1, records._mean_bytes())
        self.is_divided = not (
            # Each worker that opens such a file reads all of it.
            (about[0] == "tfrecord" and about[6] in ("gzip", "zlib"))
            or dict(records._source.stats())["searched_files"] > 0
        )
        """Whether the file is divided before it is read. While it is read, it is divided if the runner asks for it."""
        self._ends: array[int] | None = None

    def weight(self, start: int, stop: int) -> float:
        """About how many bytes of the file some records take."""
        ends, all_bytes = self._weights(), self._mean * len(self.records)
        if ends is None:
            return self._mean * (stop - start)
        first, last = start - self.start, stop - self.start
        return all_bytes * (ends[last] - ends[first]) / max(1, ends[-1])

    def ranges(self, start: int, stop: int, desired_bytes: float) -> Iterator[tuple[int, int]]:
        """Divides records into ranges of about the same size. They end where chunks end, if that is possible."""
        while start < stop:
            end = self._after(start, desired_bytes)
            if end < stop:
                end = self._chunk_start(end)
                if end <= start:
                    end = self.next_chunk(start)
            if end >= stop or self.weight(end, stop) < desired_bytes / 4:
                end = stop
            yield start, end
            start = end

    def cuts(self, start: int, stop: int) -> list[int]:
        """Some records of a range that begin a chunk. None if every record has its own."""
        if not self._has_chunks:
            return []
        wanted = {start + number * (stop - start) // _CUTS for number in range(1, _CUTS)}
        return sorted({cut for at in wanted if start < (cut := self._chunk_start(at)) < stop})

    def batch(self, start: int, stop: int) -> list[bytes | None]:
        """Reads some records from `start` on. None for damaged records that are left out."""
        end = start + min(_MOST_BATCH, max(1, _BATCH_BYTES // self._mean))
        if self._has_chunks and (chunk_end := self.next_chunk(start)) > end:
            end = min(chunk_end, start + max(1, _MOST_CHUNK_BYTES // self._mean))
        first = self.start
        return self.records._getitems(range(start - first, min(end, stop) - first))

    def is_damaged(self, index: int) -> bool:
        """Whether a record was found to be damaged."""
        return self.records._is_damaged(index - self.start)

    def next_chunk(self, index: int) -> int:
        """The first record of the next chunk."""
        if not self._has_chunks:
            return index + 1
        chunk, step = self._chunk(index), 1
        low = index  # in this chunk
        while low + step < self.stop and self._chunk(low + step) == chunk:
            low += step
            step *= 2
        high = min(low + step, self.stop)  # behind this chunk
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._chunk(middle) == chunk else (low, middle)
        return high

    def _chunk(self, index: int) -> int:
        return self.records._locate(index - self.start)[1]

    def _chunk_start(self, index: int) -> int:
        return index - self.records._locate(index - self.start)[2]

    def _after(self, start: int, wanted: float) -> int:
        """The first record that is at least so many bytes behind `start`."""
        ends, first = self._weights(), start - self.start
        if ends is None:
            return start + max(1, int(wanted / self._mean))
        share = wanted * max(1, ends[-1]) / (self._mean * len(self.records))
        return self.start + max(first + 1, bisect_left(ends, ends[first] + share))

    def _weights(self) -> array[int] | None:
        """The bytes of all records before each record, and of all. None if all count the same."""
        if self._ends is None and 0 < len(self.records) <= _MOST_SIZES:
            sizes = self.records.sizes()
            if sizes is not None:
                self._ends = array("Q", accumulate((size + _RECORD_BYTES for size in sizes), initial=0))
        return self._ends
