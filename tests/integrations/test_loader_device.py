"""Pinned memory and copies to a device. A stand-in for CUDA records what happens and when copies end."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Records

from .loading import N, nothing_left_behind, numbers, pair, write_numbers

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return anyrecord.open(write_numbers(tmp_path_factory.mktemp("loader") / "numbers.ffr"))


def loader(*arguments: Any, **keywords: Any) -> Any:
    from anyrecord.torch import Loader

    return Loader(*arguments, **keywords)


# Without a GPU


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_pinning_warns_and_has_no_effect(records: Records) -> None:
    with pytest.warns(RuntimeWarning, match="pin_memory=True has no effect: PyTorch finds no GPU") as caught:
        batches = loader(records, 16, pin_memory=True, collate="packed")
    assert caught[0].filename == __file__
    assert not next(iter(batches)).data.is_pinned()


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_a_device_is_refused(records: Records) -> None:
    for device in ("cuda", "cuda:1"):
        with pytest.raises(RuntimeError, match=f"device='{device}' needs a GPU, and PyTorch finds none"):
            loader(records, 16, device=device)
    assert numbers(loader(records, 16, device="cpu")) == list(range(N))


# With a stand-in


class Event:
    """A place in the stream of copies. Until somebody waits for it, the copies before it may not have been made."""

    def __init__(self, device: Device) -> None:
        self._device, self._place = device, len(device.copies)

    def synchronize(self) -> None:
        device = self._device
        with device.lock:
            while device.made < self._place:
                device.copies[device.made]()
                device.made += 1


class Device:
    """Stands in for `Cuda`: a copy is made as late as CUDA may make it, when its event is waited for."""

    def __init__(self, device: object) -> None:
        self.device, self.lock = device, threading.RLock()
        self.copies: list[Any] = []
        self.made = 0
        self.streams: set[str] = set()
        self.pinned_sizes: list[int] = []
        self.recorded = 0

    def use_stream(self) -> None:
        self.streams.add(threading.current_thread().name)

    def empty(self, size: int) -> Any:
        import torch

        device = self

        class OnDevice(torch.Tensor):  # type: ignore[misc]  # torch has no types here
            def copy_(self, source: Any, non_blocking: bool = False) -> Any:
                assert non_blocking
                target = self
                device.copies.append(lambda: torch.Tensor.copy_(target, source))
                return self

        return torch.zeros(size, dtype=torch.uint8).as_subclass(OnDevice)

    def pinned(self, size: int) -> Any:
        import torch

        self.pinned_sizes.append(size)
        return torch.empty(size, dtype=torch.uint8)

    def to_device(self, tensor: Any) -> Any:
        assert threading.current_thread().name in self.streams, "on the stream of the copies"
        return tensor.clone()

    def record(self) -> Event:
        with self.lock:
            return Event(self)

    def let_consumer_wait(self, event: Event, tensors: list[Any]) -> None:
        event.synchronize()
        self.recorded += len(tensors)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    from anyrecord.torch import _collate, _device, _loader

    made = Device("cuda:0")
    monkeypatch.setattr(_loader, "Cuda", lambda device: made)
    monkeypatch.setattr(_loader, "checked_device", lambda device: device)
    monkeypatch.setattr(_device, "pinned", lambda value: value)
    monkeypatch.setattr(_collate, "pinned", lambda value: value)
    return made


@pytest.mark.parametrize("threads", [None, 0, 1])
def test_records_are_copied_from_pinned_memory_that_is_used_again(
    records: Records, device: Device, threads: int | None
) -> None:
    got: list[bytes] = []
    with nothing_left_behind():
        for batch in loader(records, 7, collate="packed", device="cuda", threads=threads):
            places = batch.offsets.tolist()
            data = bytes(batch.data.tolist())
            got += [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert got == list(records)
    assert device.recorded == -(-N // 7), "one block for each batch, recorded for the consumer's stream"
    assert len(device.pinned_sizes) < N // 7, "not one for each batch"
    assert device.streams
    assert all("anyrecord-loader" in name for name in device.streams), "never the consumer's own stream"


def test_all_forms_arrive_on_the_device(records: Records, device: Device) -> None:
    equal = [batch.tolist() for batch in loader(records[10:100], 40, collate="tensors", device="cuda")]
    assert [bytes(row) for batch in equal for row in batch] == list(records[10:100])
    ragged = next(iter(loader(records[8:], 3, collate="jagged", device="cuda")))
    assert [bytes(row.tolist()) for row in ragged.unbind()] == [b"8", b"9", b"10"]
    samples = next(iter(loader(records, 3, decode=pair, collate="tensors", device="cuda")))
    assert (samples["number"].tolist(), samples["name"]) == ([0, 1, 2], ["0", "1", "2"])
    assert next(iter(loader(records, 3, device="cuda"))) == [b"0", b"1", b"2"], "bytes stay what they are"
    with pytest.raises(ValueError, match="records of 1 and 2 bytes") as caught:
        list(loader(records, 40, collate="tensors", device="cuda"))
    assert "in collate on the batch that begins with record 0" in caught.value.__notes__[0]


def test_pinned_memory_grows_with_the_records(tmp_path: Path, device: Device) -> None:
    sizes = [10, 3_000_000, 0, 20, 5_000_000, 1, 2_000_000]
    with anyrecord.create(tmp_path / "a.ffr", durable=False) as out:
        out.write_many(bytes([i]) * size for i, size in enumerate(sizes))
    batches = loader(tmp_path / "a.ffr", 1, collate="packed", device="cuda", threads=1)
    for i, batch in enumerate(batches):
        assert batch.offsets.tolist() == [0, sizes[i]]
        assert bytes(batch.data.tolist()) == bytes([i]) * sizes[i]


def test_damaged_records_are_left_out_on_the_device(tmp_path: Path, device: Device) -> None:
    data = bytearray(write_numbers(tmp_path / "a.ffr").read_bytes())
    data[data.rindex(b"100101102") + 5] ^= 1  # record 101
    (tmp_path / "a.ffr").write_bytes(data)
    records = anyrecord.open(tmp_path / "a.ffr", on_error="skip")
    with pytest.warns(anyrecord.DamageWarning):
        batches = list(loader(records, 1, collate="packed", device="cuda"))
    assert [int(bytes(batch.data.tolist())) for batch in batches] == [i for i in range(N) if i != 101]
