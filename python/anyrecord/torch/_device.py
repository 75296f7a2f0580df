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
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch

from anyrecord.torch._collate import Form, check_equal_sizes, pinned
from anyrecord.torch._filling import read_into, rounded
from anyrecord.torch._making import Plan, collated
from anyrecord.torch._nested import map_tensors
from anyrecord.torch._packed import PackedTensors
from anyrecord.torch._pipeline import NOTHING, TOGETHER_BYTES, Failed, LoaderThread, Maker, attempt

__all__ = ["Copied", "CopyStream", "Cuda", "DeviceMaker", "can_pin", "checked_device"]

_FIRST_BYTES = 1 << 20
_MOST_TOGETHER = 64
"""More batches than this are not read together, however small they are."""
_ALIGNMENT = 16
"""The records of a batch begin at a multiple of this many bytes, so that tensors of other types can be made of them."""


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
        self._consumer: tuple[int, Any] = (-1, None)

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

    def consumer(self) -> int:
        """The number of the stream that is current in this thread."""
        return _number_of_stream(self.device.index)

    def let_wait(self, event: Any, tensors: list[Any]) -> None:
        """The stream that is current in this thread waits for the event. The tensors are not freed before that stream
        has used them."""
        number, stream = self._consumer
        if number != (current := self.consumer()):
            stream = torch.cuda.current_stream(self.device)
            self._consumer = (current, stream)
        stream.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(stream)


def _number(index: int) -> int:
    return int(torch.cuda.current_stream(index).cuda_stream)


_number_of_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _number)
"""What PyTorch's own generated code calls. To make an object for a stream takes longer than the rest of a small
batch."""


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

    def deliver(self, copied: Copied | _Part) -> Any:
        """The batch, for the stream that is current in the consumer's thread."""
        if isinstance(copied, _Part):
            return copied.deliver(self.cuda)
        self.cuda.let_wait(copied.event, copied.tensors)
        return copied.value


class _Pinned:
    """Pinned memory: room for records, and after them for their offsets."""

    def __init__(self, cuda: Cuda, size: int) -> None:
        self.tensor = cuda.pinned(size)
        self._bytes = self.tensor.numpy()
        self.buffer = self._bytes
        self.event: Any = None

    def wait(self) -> None:
        """Waits for the end of the last copy from this memory."""
        # To wait lets other threads have the interpreter's lock, and it takes long to get it back.
        if self.event is not None and not self.event.query():
            self.event.synchronize()

    def reserve(self, size: int) -> None:
        """Leaves that many bytes of the memory for offsets."""
        self.buffer = self._bytes[: max(0, len(self._bytes) - size)]

    def write(self, at: int, offsets: array[int], batches: Sequence[range]) -> int:
        """Writes the offsets of each batch behind the records, as numbers of 64 bits. Returns the end."""
        numbers = np.frombuffer(offsets, np.int64)
        for batch in batches:
            end = at + 8 * (len(batch) + 1)
            begin = numbers[batch.start]
            np.subtract(numbers[batch.start : batch.stop + 1], begin, out=self._bytes[at:end].view(np.int64))
            at = end
        return at


class _Ring:
    """Pinned memory that reading threads take turns to use. It lasts as long as the loader: pinning is slow."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._free: SimpleQueue[_Pinned] = SimpleQueue()
        self.take, self.give_back = self._free.get, self._free.put
        self._count = 0

    def provide(self, count: int) -> None:
        """Makes sure that there are at least so many."""
        while self._count < count:
            self.give_back(_Pinned(self._cuda, _FIRST_BYTES))
            self._count += 1


class DeviceMaker(Maker):
    """Makes tensors on a device of records that are not decoded. One read and one copy make several batches if they are
    small: starting a copy takes longer than reading a megabyte."""

    def __init__(self, plan: Plan, form: Form, copies: CopyStream, threads: int) -> None:
        self._plan, self._form, self._cuda, self._ring = plan, form, copies.cuda, copies.ring
        # If damaged records are left out, only a read of one batch tells which records are of that batch.
        self.most_together = 1 if plan.records._leaves_out else _MOST_TOGETHER
        # While each thread reads into one, copies are made from the others.
        self._ring.provide(threads + 2)
        self._copies: SimpleQueue[_Copy | None] = SimpleQueue()
        self._thread = LoaderThread(_start_copies, "copy", (self._cuda, self._ring, self._copies))
        self._thread.start()

    def make_group(self, number: int, count: int, piece: int, of: int) -> Any:
        if count == 1:
            return self._copied(number, 1)
        copy = attempt(self._copied, number, count)
        if type(copy) is not Failed:
            return copy
        # The batches before the one that cannot be made are still delivered.
        return [attempt(self._copied, one, 1) for one in range(number, number + count)]

    def split(self, group: Any) -> Iterable[Any]:
        copies = group if isinstance(group, list) else [group]
        return chain.from_iterable(copy.parts() if isinstance(copy, _Copy) else [copy] for copy in copies)

    def _copied(self, number: int, count: int) -> Any:
        """Reads batches. They are copied to the device when the copying thread comes to it."""
        positions = self._plan.positions(number, count)
        # The offsets begin at a multiple of 8 bytes.
        reserve = 8 * (len(positions) + count + 1) if self._form != "tensors" else 0
        memory = self._ring.take()
        try:
            memory.wait()
            memory.reserve(reserve)
            memory, offsets = read_into(self._plan.records, positions, memory, partial(self._larger, count, reserve))
            if len(offsets) > 1:
                batches = self._batches(number, offsets)
                end = memory.write(_after(offsets[-1]), offsets, batches) if reserve else offsets[-1]
                copy = _Copy(memory, end, offsets, self._form, batches)
                self._copies.put(copy)
                return copy
        except BaseException:
            self._ring.give_back(memory)
            raise
        self._ring.give_back(memory)
        return NOTHING

    def _batches(self, number: int, offsets: array[int]) -> list[range]:
        """The numbers of the records of each batch, among those that were read."""
        records, size = len(offsets) - 1, self._plan.batch_size
        batches = [range(begin, min(begin + size, records)) for begin in range(0, records, size)]
        if self._form == "tensors":
            numbers = np.frombuffer(offsets, np.int64)
            for i, batch in enumerate(batches):
                collated(check_equal_sizes, numbers[batch.start : batch.stop + 1], self._plan, number + i)
        return batches

    def _larger(self, count: int, reserve: int, size: int) -> _Pinned:
        """Memory for `count` batches of that size together, and for more if more will be read together."""
        more = min(TOGETHER_BYTES, size // count * min(self._plan.count, self.most_together))
        memory = _Pinned(self._cuda, rounded(max(size, more)) + reserve)
        memory.reserve(reserve)
        return memory

    def close(self) -> None:
        self._copies.put(None)
        self._thread.join()


def _start_copies(cuda: Cuda, ring: _Ring, copies: SimpleQueue[_Copy | None]) -> None:
    """What the copying thread does. It must not refer to the maker, which ends it when nothing refers to that."""
    cuda.use_stream()
    while (copy := copies.get()) is not None:
        copy.start(cuda, ring)
        del copy


class _Copy:
    """Batches in pinned memory, and then the copy to the device or the error of starting it."""

    __slots__ = (
        "_batches",
        "_block",
        "_end",
        "_error",
        "_event",
        "_form",
        "_memory",
        "_offsets",
        "_started",
        "_stream",
        "_values",
        "nbytes",
    )

    def __init__(self, memory: _Pinned, end: int, offsets: array[int], form: Form, batches: list[range]) -> None:
        self._memory: _Pinned | None = memory
        self._end, self._offsets, self._form, self._batches = end, offsets, form, batches
        self.nbytes = offsets[-1]
        self._block: Any = None
        self._event: Any = None
        self._stream: int | None = None
        self._values: list[tuple[Any, Any]] | None = None
        self._error: BaseException | None = None
        self._started = threading.Lock()
        self._started.acquire()

    def start(self, cuda: Cuda, ring: _Ring) -> None:
        memory, self._memory = self._memory, None
        assert memory is not None
        try:
            self._block = cuda.empty(self._end)
            self._block.copy_(memory.tensor.narrow(0, 0, self._end), non_blocking=True)
            self._event = memory.event = cuda.record()
        except BaseException as error:
            self._error = error
        finally:
            ring.give_back(memory)
            self._started.release()

    def parts(self) -> list[_Part]:
        """The batches."""
        return [_Part(self, number) for number in range(len(self._batches))]

    def batch(self, number: int, cuda: Cuda) -> Any:
        """One of the batches, for the stream that is current in the consumer's thread."""
        if self._values is None:
            self._values = self._opened()
        stream = cuda.consumer()
        if stream != self._stream:  # most consumers have one stream
            cuda.let_wait(self._event, [self._block])
            self._stream = stream
        data, offsets = self._values[number]
        if data.storage_offset() % _ALIGNMENT:
            data = data.clone()
        if offsets is not None:
            return PackedTensors(data, offsets)
        count = len(self._batches[number])
        return data.view(count, len(data) // count)

    def _opened(self) -> list[tuple[Any, Any]]:
        """The data and the offsets of each batch. Waits until the copy is started."""
        with self._started:
            if self._error is not None:
                raise self._take_error()
        ends = [0, *(self._offsets[batch.stop] for batch in self._batches)]
        sizes = [end - begin for begin, end in pairwise(ends)]
        if self._form == "tensors":
            return [(data, None) for data in self._block.split_with_sizes(sizes)]
        after = _after(self.nbytes)
        *data, _, numbers = self._block.split_with_sizes([*sizes, after - self.nbytes, self._end - after])
        offsets = numbers.view(torch.int64).split_with_sizes([len(batch) + 1 for batch in self._batches])
        return list(zip(data, offsets, strict=True))

    def _take_error(self) -> BaseException:
        """Returns the error. Its traceback refers to this copy, so the copy must not keep it."""
        error, self._error = self._error, None
        assert error is not None
        return error


class _Part:
    """One of the batches that are copied together."""

    __slots__ = ("_copy", "_number")

    def __init__(self, copy: _Copy, number: int) -> None:
        self._copy, self._number = copy, number

    def deliver(self, cuda: Cuda) -> Any:
        return self._copy.batch(self._number, cuda)


def _after(size: int) -> int:
    """Where offsets of 8 bytes each can begin."""
    return -(-size // 8) * 8
