"""Batches in pinned memory and on a GPU. Copies run on a stream of their own, beside reading and training.

```text
 reading threads   │ read into pinned memory A │ read into B   │ read into A again, after its copy
 copying thread    │                           │ starts copy A │ starts copy B
 copy stream       │                           │ copy A        │ copy B
 training stream   │                           │               │ waits for copy A, trains on it
```

One thread starts all copies. If each reading thread did, they would wait for each other in CUDA and for the lock of the
interpreter, longer than it takes to read a batch.
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
from anyrecord.torch._pipeline import NOTHING, Maker

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
        self.ring = _Ring(cuda)

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

    def deliver(self, copied: Copied | _Copy) -> Any:
        """The batch, for the stream that is current in the consumer's thread."""
        if isinstance(copied, _Copy):
            copied = copied.result()
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


class _Ring:
    """Pinned memory that reading threads take turns to use. It lasts as long as the loader: pinning is slow."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._free: SimpleQueue[_Pinned] = SimpleQueue()
        self.take, self.give_back = self._free.get, self._free.put
        self._count = 0

    def provide(self, count: int, reserve: int) -> None:
        """Makes sure that there are at least so many."""
        while self._count < count:
            self.give_back(_Pinned(self._cuda, _FIRST_BYTES, reserve))
            self._count += 1


class DeviceMaker(Maker):
    """Makes tensors on a device of records that are not decoded: one read and one copy for each batch."""

    def __init__(self, plan: Plan, form: Form, copies: CopyStream, threads: int) -> None:
        self._plan, self._form, self._cuda, self._ring = plan, form, copies.cuda, copies.ring
        # Offsets of all records and of the end, at a multiple of 8 bytes.
        self._reserve = 8 * (plan.batch_size + 2)
        # While each thread reads into one, copies are made from the others.
        self._ring.provide(threads + 2, self._reserve)
        self._copies: SimpleQueue[_Copy | None] = SimpleQueue()
        arguments = (self._cuda, self._ring, self._copies, form)
        self._thread = threading.Thread(target=_start_copies, args=arguments, name="anyrecord-loader-copy", daemon=True)
        self._thread.start()

    def _pinned(self, size: int) -> _Pinned:
        return _Pinned(self._cuda, size, self._reserve)

    def make(self, number: int, piece: int, of: int) -> Any:
        memory = self._ring.take()
        try:
            memory.wait()
            memory, offsets = read_into(self._plan.records, self._plan.positions(number), memory, self._pinned)
            if len(offsets) > 1:
                if self._form == "tensors":
                    collated(check_equal_sizes, offsets, self._plan, number)
                copy = _Copy(memory, offsets)
                self._copies.put(copy)
                return copy
        except BaseException:
            self._ring.give_back(memory)
            raise
        self._ring.give_back(memory)
        return NOTHING

    def close(self) -> None:
        self._copies.put(None)
        # The garbage collector may call this in the thread itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _start_copies(cuda: Cuda, ring: _Ring, copies: SimpleQueue[_Copy | None], form: Form) -> None:
    """What the copying thread does. It must not refer to the maker, which ends it when nothing refers to that."""
    cuda.use_stream()
    while (copy := copies.get()) is not None:
        copy.start(cuda, ring, form)
        del copy


class _Copy:
    """A batch in pinned memory, and then the copy to the device or the error of starting it."""

    __slots__ = ("_copied", "_error", "_memory", "_offsets", "_started", "nbytes")

    def __init__(self, memory: _Pinned, offsets: array[int]) -> None:
        self._memory: _Pinned | None = memory
        self._offsets = offsets
        self.nbytes = offsets[-1]
        self._copied: Copied | None = None
        self._error: BaseException | None = None
        self._started = threading.Lock()
        self._started.acquire()

    def start(self, cuda: Cuda, ring: _Ring, form: Form) -> None:
        memory, self._memory = self._memory, None
        assert memory is not None
        try:
            self._copied = _copy(cuda, memory, self._offsets, form)
        except BaseException as error:
            self._error = error
        finally:
            ring.give_back(memory)
            self._started.release()

    def result(self) -> Copied:
        """Waits until the copy is started."""
        with self._started:
            if self._error is not None:
                raise self._error
            assert self._copied is not None
            return self._copied


def _copy(cuda: Cuda, memory: _Pinned, offsets: array[int], form: Form) -> Copied:
    count, size = len(offsets) - 1, offsets[-1]
    if form == "tensors":
        block = cuda.empty(size)
        block.copy_(memory.tensor[:size], non_blocking=True)
        value = block.view(count, size // count)
    else:
        at = -(-size // 8) * 8
        end = memory.write(at, offsets)
        block = cuda.empty(end)
        block.copy_(memory.tensor[:end], non_blocking=True)
        value = PackedTensors(block[:size], block[at:].view(torch.int64))
    memory.event = cuda.record()
    return Copied(value, memory.event, [block])
