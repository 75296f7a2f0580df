"""Batches in pinned memory and on a GPU. Copies run on a stream of their own, beside reading and training.

```text
 reading threads   read into pinned memory A │ read into B │ read into A again, after its copy │ ...
 copy stream                                 │ copy A      │ copy B                            │ ...
 training stream                                           │ waits for copy A, trains on it    │ ...
```
"""

from __future__ import annotations

import threading
import warnings
from array import array
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from anyrecord.torch._collate import Form, check_equal_sizes, pinned
from anyrecord.torch._filling import read_into
from anyrecord.torch._making import Plan, collated
from anyrecord.torch._nested import map_tensors
from anyrecord.torch._packed import PackedTensors
from anyrecord.torch._pipeline import NOTHING, Maker, Tasks

__all__ = ["Copied", "CopyStream", "Cuda", "DeviceMaker", "can_pin", "checked_device"]

_FIRST_BYTES = 1 << 20


def checked_device(device: Any) -> Any:
    """The GPU, or None for the CPU. Raises RuntimeError if there is no such GPU."""
    if device is None:
        return None
    found = torch.device(device)
    if found.type == "cpu":
        return None
    if found.type != "cuda":
        raise ValueError(f"device={str(device)!r} is not valid: it must be 'cuda', 'cuda:N' or 'cpu'")
    if not torch.cuda.is_available():
        raise RuntimeError(f"device={str(device)!r} needs a GPU, and PyTorch finds none; use device=None")
    index = torch.cuda.current_device() if found.index is None else found.index
    if index >= torch.cuda.device_count():
        raise RuntimeError(f"device={str(device)!r} is not there: PyTorch finds {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)


def can_pin(pin_memory: bool) -> bool:
    """Whether to pin memory. Without a GPU there is no reason to, and PyTorch cannot."""
    if pin_memory and not torch.cuda.is_available():
        warnings.warn("pin_memory=True has no effect: PyTorch finds no GPU", RuntimeWarning, stacklevel=3)
        return False
    return bool(pin_memory)


class Cuda:
    """What is used of `torch.cuda`."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def use_stream(self) -> None:
        """Lets all following operations of this thread run on the stream of the copies."""
        torch.cuda.set_stream(self.stream)

    def empty(self, size: int) -> Any:
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def pinned(self, size: int) -> Any:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def to_device(self, tensor: Any) -> Any:
        return tensor.to(self.device, non_blocking=True)

    def record(self) -> Any:
        """An event after all copies so far. A thread that waits for it sleeps."""
        event = torch.cuda.Event(blocking=True)
        event.record(self.stream)
        return event

    def let_consumer_wait(self, event: Any, tensors: list[Any]) -> None:
        """The consumer's stream waits for the event. The tensors are not freed before that stream has used them."""
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(stream)


class Copied(NamedTuple):
    """A batch whose copy to the device was started."""

    value: Any
    event: Any
    """The end of the copy."""
    tensors: list[Any]
    """The memory on the device."""


class CopyStream:
    """Starts copies of batches to a device, and lets the consumer wait for them."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda

    def copy(self, value: Any) -> Copied:
        """Starts the copy of all tensors in a batch. Other objects stay what they are."""
        self.cuda.use_stream()
        tensors: list[Any] = []

        def to_device(tensor: Any) -> Any:
            copy = self.cuda.to_device(tensor)
            tensors.append(copy)
            return copy

        # PyTorch does not use the pinned memory again before the copy has ended.
        copied = map_tensors(pinned(value), to_device)
        return Copied(copied, self.cuda.record(), tensors)

    def deliver(self, copied: Copied) -> Any:
        """The batch, for the stream that is current in the consumer's thread."""
        self.cuda.let_consumer_wait(copied.event, copied.tensors)
        return copied.value


class _Pinned:
    """Pinned memory: room for records, and after them for their offsets."""

    def __init__(self, cuda: Cuda, size: int, reserve: int) -> None:
        self.tensor = cuda.pinned(size + reserve)
        self._bytes = self.tensor.numpy()
        self.buffer = self._bytes[:size]
        self.event: Any = None

    def wait(self) -> None:
        """Waits for the end of the last copy from this memory."""
        if self.event is not None:
            self.event.synchronize()

    def write(self, at: int, offsets: array[int]) -> int:
        """Writes the offsets behind the records. Returns the end."""
        end = at + 8 * len(offsets)
        self._bytes[at:end] = memoryview(offsets).cast("B")
        return end


class DeviceMaker(Maker):
    """Makes tensors on a device of records that are not decoded: one read and one copy for each batch."""

    def __init__(self, plan: Plan, form: Form, cuda: Cuda, threads: int) -> None:
        self._plan, self._form, self._cuda = plan, form, cuda
        # Offsets of all records and of the end, at a multiple of 8 bytes.
        self._reserve = 8 * (plan.batch_size + 2)
        self._free: SimpleQueue[_Pinned] = SimpleQueue()
        # While each thread reads into one, copies are made from the others.
        for _ in range(threads + 2):
            self._free.put(self._pinned(_FIRST_BYTES))

    def _pinned(self, size: int) -> _Pinned:
        return _Pinned(self._cuda, size, self._reserve)

    def run(self, tasks: Tasks, lock: threading.Lock, index: int) -> None:
        self._cuda.use_stream()
        super().run(tasks, lock, index)

    def make(self, number: int, piece: int, of: int) -> Any:
        memory = self._free.get()
        try:
            memory.wait()
            memory, offsets = read_into(self._plan.records, self._plan.positions(number), memory, self._pinned)
            return collated(lambda offsets: self._copy(memory, offsets), offsets, self._plan, number)
        finally:
            self._free.put(memory)

    def _copy(self, memory: _Pinned, offsets: array[int]) -> Any:
        count, size = len(offsets) - 1, offsets[-1]
        if not count:
            return NOTHING
        if self._form == "tensors":
            record_bytes = check_equal_sizes(offsets)
            block = self._cuda.empty(size)
            block.copy_(memory.tensor[:size], non_blocking=True)
            value = block.view(count, record_bytes)
        else:
            at = -(-size // 8) * 8
            end = memory.write(at, offsets)
            block = self._cuda.empty(end)
            block.copy_(memory.tensor[:end], non_blocking=True)
            value = PackedTensors(block[:size], block[at:].view(torch.int64))
        memory.event = self._cuda.record()
        return Copied(value, memory.event, [block])
