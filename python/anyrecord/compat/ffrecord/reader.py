"""`FileReader`: reads the samples of one or many files as numpy arrays."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

import anyrecord
from anyrecord.compat._types import StrPath, exact, files_in, is_url, name_of, shown, split_query
from anyrecord.compat.ffrecord.table import Table, check_tables, read_table
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["FileReader", "checkFsAlign"]

Sample: TypeAlias = NDArray[np.uint8]


class FileReader:
    """Reads the samples of a file, of all `.ffr` files in a folder, or of a list of files, as one sequence.

    >>> from anyrecord.compat.ffrecord import FileReader, FileWriter
    >>> with FileWriter("doc.ffr", 2) as writer:
    ...     writer.write_one(b"one")
    ...     writer.write_one(b"two")
    >>> with FileReader("doc.ffr") as reader:
    ...     reader.read_one(1), reader.get_offsets(0)
    (array([116, 119, 111], dtype=uint8), array([36, 39, 42]))

    With `check_data=False` no checksum is verified. You can pickle a reader, and use it in forked children and from
    many threads at once.
    """

    def __init__(self, fname: StrPath | list[StrPath] | tuple[StrPath, ...], check_data: bool = True) -> None:
        self._fnames = _file_names(fname)
        self._check_data = bool(check_data)
        try:
            paths = [exact(name) for name in self._fnames]
            self._records = anyrecord.open(paths, format="ffrecord", checksums=self._check_data)
        except anyrecord.RecordError as error:
            raise runtime_error(_line_for_open(error), error) from error
        except OSError as error:
            line = f"'fd > 0' failed. Failed to open file {error.filename}: {error.strerror}"
            raise runtime_error(line, error) from error
        self._read_array = self._records._read_array
        self._n = len(self._records)

    @property
    def n(self) -> int:
        """How many samples there are."""
        return self._n

    @property
    def fnames(self) -> list[str]:
        """The files, in order."""
        return list(self._fnames)

    @property
    def check_data(self) -> bool:
        """Whether checksums are verified."""
        return self._check_data

    def read_one(self, index: SupportsIndex) -> Sample:
        """Returns a sample as a new array of bytes."""
        try:
            # The quick path: an int that is in range. None if it is anything else.
            array: Sample | None = self._read_array(index)
            if array is None:
                self._refuse_closed()
                array = self._read_array(self._position(index))
        except (anyrecord.RecordError, OSError) as error:
            raise self._read_error(error) from error
        assert array is not None
        return array

    def read(self, indices: Iterable[SupportsIndex]) -> list[Sample]:
        """Returns many samples in the order of `indices`, with one batched read. Each is a new array of bytes."""
        arrays = self._read(indices)
        if arrays is None:
            self._refuse_closed()
            if isinstance(indices, str | bytes | bytearray | dict) or not isinstance(indices, Iterable):
                raise TypeError(f"read takes a list of indices, not {type(indices).__name__}")
            arrays = self._read([self._position(index) for index in indices])
        assert arrays is not None
        return arrays

    def validate(self) -> None:
        """Verifies the checksums of the tables of all files."""
        check_tables(self._fnames)

    def get_offsets(self, file_index: SupportsIndex) -> NDArray[np.int64]:
        """Returns the offset of each sample in a file, then the size of the file."""
        return self._table(file_index).offsets

    def get_checksums(self, file_index: SupportsIndex) -> NDArray[np.uint32]:
        """Returns the CRC-32 of each sample in a file."""
        return self._table(file_index).checksums

    def close(self) -> None:
        """Closes the files. A second call does nothing."""
        self._records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._fnames, self._check_data)

    def __repr__(self) -> str:
        return f"<FileReader: {self._n} samples in {len(self._fnames)} files, check_data={self._check_data}>"

    def _table(self, file_index: SupportsIndex) -> Table:
        index = operator.index(file_index)
        if not 0 <= index < len(self._fnames):
            raise IndexError(f"there is no file {index}: there are {len(self._fnames)} files")
        return read_table(self._fnames[index], check=False)

    def _read(self, indices: object) -> list[Sample] | None:
        """Many samples. None if the indices are not ints in range, but something to convert or to refuse."""
        try:
            return self._records._read_arrays(indices)
        except (anyrecord.RecordError, OSError) as error:
            raise self._read_error(error) from error

    def _position(self, index: SupportsIndex) -> int:
        position = operator.index(index)
        if 0 <= position < self._n:
            return position
        if position >= 1 << 63:
            raise TypeError(f"{position} is too large for an index")
        if position < 0:
            raise RuntimeError(f"'index >= 0' failed. index < 0 ({position} < 0)")
        raise RuntimeError(f"'index < n' failed. index >= number of samples ({position} >= {self._n})")

    def _refuse_closed(self) -> None:
        if self._records.closed:
            raise _closed_error()

    def _read_error(self, error: Exception) -> Exception:
        if self._records.closed:
            return _closed_error()
        if isinstance(error, anyrecord.ChecksumError):
            return runtime_error(f"'checksum2 == checksum' failed. Sample {error.record}: checksum mismached!", error)
        record = getattr(error, "record", None)
        return runtime_error(f"'res == len_i' failed. Sample {'?' if record is None else record}: not read", error)


def checkFsAlign(fd: int) -> bool:
    """Whether the file system of an open file needs aligned reads. Only the file system of the original does."""
    if not isinstance(fd, int):
        raise TypeError(f"a file descriptor is an int, not {type(fd).__name__}")
    try:
        from fcntl import ioctl

        answer = bytearray(4)
        ioctl(fd, 0x80046664, answer)
    except (ImportError, OSError, ValueError, OverflowError):
        return False
    return int.from_bytes(answer, "little") == 1


def _closed_error() -> Exception:
    return runtime_error("", anyrecord.ClosedError("'!is_closed' failed. FileReader has been closed."))


def _file_names(fname: Any) -> list[str]:
    if isinstance(fname, list | tuple):
        names = [_name(path) for path in fname]
    elif is_url(name := _name(fname)) and not _has_suffix(name):
        names = _names_in_url(name)
    elif os.path.isdir(name):
        names = sorted(str(path) for path in Path(name).glob("*.ffr"))
        if not names:
            few = [os.path.join(name, inside) for inside in sorted(os.listdir(name))[:16]]
            raise AssertionError(f"At least one .ffr file as input{_of_another_format(few)}")
    else:
        names = [name]
    if not names:
        raise AssertionError("At least one .ffr file as input")
    for name in names:
        if is_url(name):
            if not _has_suffix(name):
                raise AssertionError(f"{shown(name)} does not end with .ffr")
            continue  # opening it is the check
        if not os.path.exists(name):
            raise AssertionError(f"{name} does not exist")
        if not os.path.isfile(name):
            raise AssertionError(f"{name} is not a file")
        if not _has_suffix(name):
            raise AssertionError(f"{name} does not end with .ffr{_of_another_format([name])}")
    return names


def _has_suffix(name: str) -> bool:
    return os.path.splitext(split_query(name)[0])[1] == ".ffr"  # a signed URL ends in a query


def _names_in_url(folder: str) -> list[str]:
    try:
        return files_in(folder, "*.ffr")
    except FileNotFoundError as error:
        raise AssertionError(f"At least one .ffr file as input\n{error}") from error
    except OSError as error:
        line = f"'fd > 0' failed. Failed to open file {error.filename}: {error.strerror}"
        raise runtime_error(line, error) from error


def _of_another_format(paths: list[str]) -> str:
    """A second line for an error about paths. It names the format of the first file that is not FFRecord."""
    for path in filter(os.path.isfile, paths):
        try:
            anyrecord.open(path, format="ffrecord", checksums=False).close()
        except anyrecord.FormatError as error:
            if error.expected == "ffrecord":
                return f"\n{error}"
        except (anyrecord.RecordError, OSError):
            pass  # the second line is optional
    return ""


def _name(path: Any) -> str:
    if isinstance(path, str | os.PathLike):
        name = name_of(path)
        if isinstance(name, str):
            return name
    raise TypeError("fname must be str, os.PathLike, list or tuple")


def _line_for_open(error: anyrecord.RecordError) -> str:
    """The original's error message for a file that cannot be opened."""
    if not isinstance(error, anyrecord.ChecksumError):
        return ""
    if error.record is None:
        return f"'checksum == checksum_meta' failed. {error.path}: checksum of metadata mismached!"
    return f"'checksum2 == checksum' failed. Sample {error.record}: checksum mismached!"
