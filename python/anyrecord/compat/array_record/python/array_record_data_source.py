"""`ArrayRecordDataSource`: random access to the records of one or many files, as Grain and TFDS use it.

>>> from anyrecord.compat.array_record.python import array_record_data_source, array_record_module
>>> for shard in range(2):
...     writer = array_record_module.ArrayRecordWriter(f"doc-{shard}.array_record", "group_size:1")
...     for i in range(100):
...         writer.write(b"%d of shard %d" % (i, shard))
...     writer.close()
>>> ds = array_record_data_source.ArrayRecordDataSource(["doc-0.array_record", "doc-1.array_record"])
>>> len(ds), ds[150], ds[[10, 100]], ds.__getitems__([199, 0])
(200, b'50 of shard 1', [b'10 of shard 0', b'0 of shard 1'], [b'99 of shard 1', b'0 of shard 0'])
"""

from __future__ import annotations

import hashlib
import operator
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, SupportsIndex, TypeAlias, overload, runtime_checkable

from anyrecord.compat._types import name_of, shown, split_query
from anyrecord.compat.array_record import _flags
from anyrecord.compat.array_record._failures import FAILURES, KeyRangeError, KeyTypeError, failure, failures
from anyrecord.compat.array_record._files import Instruction, open_all, open_one
from anyrecord.compat.array_record._options import ReaderOptions
from anyrecord.compat.array_record._options import reader_options as parse_reader_options
from anyrecord.compat.array_record._sources import Readable, open_source, opening
from anyrecord.compat.array_record.python import array_record_module as array_record_module  # the original has it here

__all__ = ["ArrayRecordDataSource", "ArrayRecordDataSourcePaths", "FileInstruction", "PathLikeOrFileInstruction"]


@runtime_checkable
class FileInstruction(Protocol):
    """A range of the records of a file: `take` records after the first `skip`. TFDS has objects like this."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


PathLikeOrFileInstruction: TypeAlias = str | os.PathLike[str] | FileInstruction
ArrayRecordDataSourcePaths: TypeAlias = PathLikeOrFileInstruction | Sequence[PathLikeOrFileInstruction]

_PATHS = (str, os.PathLike, FileInstruction)
_READ_INSTRUCTION = re.compile(r"(.*)\[(\d+):(\d+)\]", re.DOTALL)


class ArrayRecordDataSource:
    """The records of ArrayRecord files, by number, in the order of the files.

    `paths` is a path, a path with a range (`"train.array_record[100:200]"`), an object like TFDS's `FileInstruction`,
    or a sequence of those. If all are plain paths, the files are opened now to count their records. Else the files are
    opened when a record is first read; only plain paths among them are opened now to count their records.

    `reader_pool_size` is accepted and has no effect: reads share one pool of threads. Of the `reader_options`,
    `max_parallelism` and `readahead_buffer_size` bound the requests and the bytes in flight if the files are URLs.
    """

    _records: Any  # a Readable. None before the files are opened: then the fast read fails, and the slow one opens them
    # A pickle includes these attributes, so a copy can read without opening the files again to count their records.

    def __init__(
        self,
        paths: ArrayRecordDataSourcePaths,
        reader_options: Mapping[str, object] | str | None = None,
        reader_pool_size: int | None = None,
    ) -> None:
        instructions = [_instruction(path) for path in _as_sequence(paths)]
        self._reader_options_string = _option_string(reader_options)
        self._options = parse_reader_options(self._reader_options_string)
        self._paths = [instruction.filename for instruction in instructions]
        self._records = None
        with failures():
            if all(instruction.end is None for instruction in instructions):
                self._records = open_all(instructions, self._options)
                self._num_records = len(self._records)
            else:
                instructions = [_counted(instruction, self._options) for instruction in instructions]
                self._num_records = sum((end or 0) - start for _, start, end in instructions)
        self._read_instructions = instructions

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._records = None  # not closed: another thread may be in the middle of a read

    def __len__(self) -> int:
        return self._num_records

    @overload
    def __getitem__(self, record_key: SupportsIndex) -> bytes: ...
    @overload
    def __getitem__(self, record_key: Collection[SupportsIndex]) -> list[bytes]: ...
    def __getitem__(self, record_key: Any) -> Any:
        """Returns the record with this number. For a list of numbers, returns a list of records."""
        # Fast path: frameworks call this for each record, with an int that is in range.
        try:
            if record_key >= 0:
                return self._records[record_key]
        except FAILURES as error:
            raise failure(error) from error
        except (IndexError, TypeError, ValueError):
            pass
        return self._unusual(record_key)

    def __getitems__(self, record_keys: Collection[SupportsIndex]) -> list[bytes]:
        """Returns the records with these numbers, in that order, with one batched read."""
        if not len(record_keys):
            return []
        smallest: Any = record_keys.min() if hasattr(record_keys, "min") else min(record_keys)  # type: ignore[type-var]
        if smallest < 0:
            raise self._out_of_range(smallest)
        try:
            return self._open().__getitems__(record_keys)
        except FAILURES as error:
            raise failure(error) from error
        except IndexError:
            raise self._out_of_range(max(record_keys)) from None  # type: ignore[type-var]
        except TypeError as error:
            raise KeyTypeError(str(error)) from None

    def _getitems(self, record_keys: Collection[SupportsIndex]) -> list[bytes]:
        return self.__getitems__(record_keys)  # the name that Grain looks for

    def __iter__(self) -> Iterator[bytes]:
        if type(self).__getitem__ is not ArrayRecordDataSource.__getitem__:
            # A subclass overrides `__getitem__`, for example to decode each record.
            yield from map(self.__getitem__, range(self._num_records))
        elif self._num_records:
            with failures():
                yield from self._open()

    def _unusual(self, key: Any) -> bytes | list[bytes]:
        """The slow path: the first read, and every key that is not an int in range."""
        try:
            index = operator.index(key)
        except TypeError:
            if (isinstance(key, Sequence) and not isinstance(key, str | bytes)) or getattr(key, "ndim", 0) == 1:
                return self.__getitems__(key)
            text = f"a record key must be an integer or a list of integers, not {type(key).__name__}"
            raise KeyTypeError(text) from None
        if not 0 <= index < self._num_records:
            raise self._out_of_range(index)
        with failures():
            return self._open()[index]

    def _open(self) -> Readable:
        records: Readable | None = self._records
        if records is None:
            with opening(), failures():
                records = self._records
                if records is None:
                    records = open_source(self._read_instructions, self._options, self._num_records)
                    self._records = records
        return records

    def _out_of_range(self, key: object) -> KeyRangeError:
        return KeyRangeError(f"Record key should be in [0, num_records): found {key}, num_records is {len(self)}")

    def __repr__(self) -> str:
        # Grain compares the repr when it restores a checkpoint, so it must be the same in every process.
        digest = hashlib.sha1(usedforsecurity=False)
        for path in self._paths:
            digest.update(path.encode(errors="surrogateescape"))
        return f"ArrayRecordDataSource(hash_of_paths={digest.hexdigest()})"


def _as_sequence(paths: Any) -> Sequence[Any]:
    if isinstance(paths, _PATHS):
        return [paths]
    if not isinstance(paths, Sequence):
        raise ValueError(
            "Unsupported path format was used. Path format must be a Sequence, String, pathlib.Path or FileInstruction."
        )
    if not paths:
        raise ValueError("Paths sequence can not be of 0 length")
    if not all(isinstance(path, _PATHS) for path in paths):
        raise ValueError("All elements in a path sequence must be of type: String, pathlib.Path, or FileInstruction.")
    return paths


def _instruction(path: PathLikeOrFileInstruction) -> Instruction:
    if isinstance(path, FileInstruction):
        found = Instruction(name_of(path.filename), path.skip, path.skip + path.take)
    else:
        name = name_of(path)
        front, query = split_query(name)  # the range of a signed URL is before or after its signature
        if match := _READ_INSTRUCTION.fullmatch(front):
            found = Instruction(match[1] + query, int(match[2]), int(match[3]))
        elif match := _READ_INSTRUCTION.fullmatch(name):
            found = Instruction(match[1], int(match[2]), int(match[3]))
        else:
            found = Instruction(name)
    if found.end is not None and not 0 <= found.start <= found.end:
        raise ValueError(f"{shown(found.filename)}[{found.start}:{found.end}] is not a valid range of records")
    return found


def _counted(instruction: Instruction, options: ReaderOptions) -> Instruction:
    if instruction.end is not None:
        return instruction
    return instruction._replace(end=len(open_one(instruction.filename, options)))


def _option_string(options: Mapping[str, object] | str | None) -> str:
    if options is None or isinstance(options, str):
        return options or ""
    return ",".join(f"{key}:{value}" for key, value in options.items())


def imported_as_original() -> None:
    """Called when this module was imported as `array_record.python.array_record_data_source`."""
    _flags.define()
