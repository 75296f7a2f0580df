"""`Packed`: many records in one block of memory, without a Python object for each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from anyrecord import _core

if TYPE_CHECKING:
    import numpy
    import numpy.typing
    import pyarrow

    from anyrecord.torch import PackedTensors

__all__ = ["Packed"]


class Packed(_core.Packed):
    """Many records, one after the other in one block of memory. `Records.read_packed` returns it.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> packed = anyrecord.open("doc.ffr").read_packed([2, 0])
    >>> packed
    <anyrecord.Packed: 2 records, 8 bytes>
    >>> data, offsets = packed
    >>> bytes(data), list(offsets)
    (b'threeone', [0, 5, 8])
    >>> bytes(packed.record(-1)), packed.tolist()
    (b'one', [b'three', b'one'])

    A `Packed` is itself a buffer of these bytes. All views keep the memory alive, also after the records are closed.
    Views are writable: the memory belongs to this batch alone.
    """

    __slots__ = ("__weakref__", "_array")

    # `data`, `num_records`, `record`, `tolist` and the protocols are in the extension type.

    _array: array[int]

    if TYPE_CHECKING:  # type checkers do not see the buffer protocol of extension types

        def __buffer__(self, flags: int, /) -> memoryview: ...

    @property
    def offsets(self) -> array[int]:
        """Where each record begins in `data`, and the end: one more number than records."""
        try:
            return self._array
        except AttributeError:
            offsets = array("q")
            offsets.frombytes(self._offsets())
            self._array = offsets
            return offsets

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, self.offsets))

    def numpy(self) -> tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.int64]]:
        """Returns `data` as a uint8 array and `offsets` as an int64 array, without a copy."""
        try:
            import numpy
        except ImportError as error:
            raise ImportError("Packed.numpy needs numpy: pip install numpy") from error
        return numpy.asarray(self.data), numpy.asarray(self.offsets)

    def torch(self, pin_memory: bool = False) -> PackedTensors:
        """Returns `data` as a uint8 tensor and `offsets` as an int64 tensor.

        They share the memory of this batch. With `pin_memory=True` they are copies in page-locked memory, from which
        copies to a GPU are faster.
        """
        from anyrecord.torch import PackedTensors

        return PackedTensors._of(self, pin_memory)

    def arrow(self) -> pyarrow.Array:
        """Returns the records as an Arrow array, without a copy.

        Its type is `binary`, or `large_binary` if there are more than 2 GiB. Arrow arrays are immutable: do not write
        to `data` any more. Other Arrow libraries (polars, DuckDB, nanoarrow) take a `Packed` directly.
        """
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError("Arrow arrays need pyarrow: pip install 'anyrecord[arrow]'") from error
        return pyarrow.array(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (type(self), bytes(self), self._offsets())

    def __repr__(self) -> str:
        plural = "" if self.num_records == 1 else "s"
        return f"<anyrecord.Packed: {self.num_records} record{plural}, {self.data.nbytes} bytes>"


def _copied(cls: type[Packed], data: bytes, offsets: bytes) -> Packed:
    return cls(_core.PackedContents.copied(data, memoryview(offsets).cast("q")))
