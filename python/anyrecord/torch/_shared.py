"""Memory that a parent and its worker processes share, and answers whose tensors are in such memory.

The memory is an anonymous file, whose descriptor one process sends to the other. It has no name, so nothing is left
behind however the processes end, and the size of /dev/shm does not limit it. Systems without anonymous files send the
bytes through the connection.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler, recv_handle, send_handle
from typing import Any

import torch

__all__ = ["Answer", "Received", "SharedMemory", "can_share", "receive_memory"]

_ALIGNMENT = 64


def can_share() -> bool:
    """Whether this system has anonymous files whose descriptors can be sent."""
    return hasattr(os, "memfd_create")


class SharedMemory:
    """Memory that can be sent to another process once. If it cannot, its contents can be sent."""

    def __init__(self, size: int) -> None:
        self._descriptor: int | None = None
        if not can_share():
            self.memory = memoryview(bytearray(size))
            return
        self._descriptor = os.memfd_create("anyrecord-loader", os.MFD_CLOEXEC)
        try:
            os.truncate(self._descriptor, size)
            self.memory = memoryview(mmap.mmap(self._descriptor, size))
        except BaseException:
            self._close_descriptor()
            raise

    @property
    def is_sent(self) -> bool:
        return self._descriptor is None

    def send(self, connection: Any, pid: int) -> None:
        assert self._descriptor is not None
        send_handle(connection, self._descriptor, pid)
        _block(connection)
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        """Frees the memory, unless somebody has a view of it. Then it is freed with the last view."""
        self._close_descriptor()
        with suppress(BufferError):
            self.memory.release()


def _block(connection: Connection) -> None:
    """Sending a descriptor makes the connection non-blocking if the program has called `socket.setdefaulttimeout`."""
    os.set_blocking(connection.fileno(), True)


def receive_memory(connection: Connection, size: int) -> memoryview:
    """Maps the memory that the other process sends."""
    descriptor = recv_handle(connection)
    _block(connection)
    try:
        return memoryview(mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)


class _Pickler(ForkingPickler):
    """Leaves the bytes of tensors out of the pickle, as those of numpy arrays are."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.device.type != "cpu":
            return NotImplemented
        if value.requires_grad or value.is_quantized or value.is_nested:
            return NotImplemented
        # PyTorch marks a conjugated or negated tensor and leaves its bytes as they were.
        flat = value.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        return _tensor, (pickle.PickleBuffer(flat.numpy()), value.dtype, value.shape)


def _tensor(data: Any, dtype: Any, shape: Any) -> Any:
    if not len(data):  # `frombuffer` refuses an empty buffer
        return torch.empty(shape, dtype=dtype)
    # Bytes that came in the pickle itself are read-only.
    return torch.frombuffer(bytearray(data) if isinstance(data, bytes) else data, dtype=dtype).reshape(shape)


class Answer:
    """A value that is sent to another process. The bytes of its tensors and arrays are one piece of shared memory."""

    def __init__(self, value: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        self._pickle = io.BytesIO()
        _Pickler(self._pickle, 5, True, buffers.append if can_share() else None).dump(value)
        pieces = [buffer.raw() for buffer in buffers]
        self._places: list[tuple[int, int]] = []
        self._size = 0
        for piece in pieces:
            self._places.append((self._size, self._size + piece.nbytes))
            self._size += -(-piece.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._shared = SharedMemory(self._size) if self._size else None
        if self._shared is not None:
            whole = torch.frombuffer(self._shared.memory, dtype=torch.uint8)
            for piece, (begin, end) in zip(pieces, self._places, strict=True):
                if piece.nbytes:
                    whole[begin:end] = torch.frombuffer(piece, dtype=torch.uint8)

    def send(self, connection: Connection, pid: int) -> None:
        connection.send((self._size, self._places))
        if self._shared is not None:
            self._shared.send(connection, pid)
            self._shared.close()
        connection.send_bytes(self._pickle.getbuffer())


class Received:
    """An answer of another process."""

    def __init__(self, connection: Connection) -> None:
        size, self._places = connection.recv()
        self._memory = receive_memory(connection, size) if size else memoryview(b"")
        self._pickle = connection.recv_bytes()

    def load(self) -> Any:
        """The value. The memory of its tensors and arrays is freed with the last of them."""
        return pickle.loads(self._pickle, buffers=[self._memory[begin:end] for begin, end in self._places])
