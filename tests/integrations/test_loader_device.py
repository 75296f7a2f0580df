"""Pinned memory and copies to a device. A stand-in for CUDA records what happens and when copies end."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Records
from children import forked

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


def test_objects_with_a_method_pin_themselves_as_for_a_data_loader() -> None:
    from anyrecord.torch._collate import pinned

    class Graph:
        is_pinned = False

        def pin_memory(self) -> Graph:
            self.is_pinned = True
            return self

    batch = pinned({"graphs": [Graph(), Graph()], "class": Graph, "name": "a", "number": 1})
    assert [graph.is_pinned for graph in batch["graphs"]] == [True, True]
    assert (batch["class"], batch["name"], batch["number"]) == (Graph, "a", 1)


# With a stand-in


class Event:
    """A place in the stream of copies. Until somebody waits for it, the copies before it may not have been made."""

    def __init__(self, device: Device) -> None:
        self._device, self._place = device, len(device.copies)

    def query(self) -> bool:
        return self._device.made >= self._place

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
        self.stream = "training"
        self.waits: list[tuple[str, Event]] = []

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

    def consumer(self) -> str:
        return self.stream

    def let_wait(self, event: Event, tensors: list[Any]) -> None:
        event.synchronize()
        self.waits.append((self.stream, event))


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
    assert len(device.pinned_sizes) < N // 7, "not one for each batch"
    assert [stream for stream, _ in device.waits] == ["training"] * len(device.copies), "once for each copy"
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


# Small batches are read and copied together


MANY = 3000


def ragged(number: int) -> bytes:
    return b"%d" % number * (number % 5)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Records:
    path = tmp_path_factory.mktemp("many") / "ragged.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(map(ragged, range(MANY)))
    return anyrecord.open(path)


def contents(batch: Any) -> list[bytes]:
    data, places = bytes(batch.data.tolist()), batch.offsets.tolist()
    assert places[0] == 0
    assert places[-1] == len(data)
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_small_batches_are_copied_together(many: Records, device: Device, threads: int, batch_size: int) -> None:
    with nothing_left_behind():
        batches = list(loader(many, batch_size, shuffle=True, collate="packed", device="cuda", threads=threads))
    got = [contents(batch) for batch in batches]
    expected = [list(batch) for batch in loader(many, batch_size, shuffle=True)]
    assert got == expected
    # The number of batches in a copy begins with one and doubles, up to 64.
    assert len(device.copies) < len(got) / (2 if len(got) < 100 else 8) + 1
    assert all(batch.data.storage_offset() % 16 == 0 for batch in batches), (
        "so that other types can be made of the bytes"
    )


def test_each_stream_of_the_consumer_waits_for_the_copy(many: Records, device: Device) -> None:
    batches = iter(loader(many, 5, collate="packed", device="cuda", threads=1))
    got, same_copy = contents(next(batches)), 0
    while same_copy < 2:  # one, two, or at least four batches are copied together
        copies = len(device.waits)
        got += contents(next(batches))
        same_copy = same_copy + 1 if len(device.waits) == copies else 0
    device.stream = "another"
    got += contents(next(batches))
    got += contents(next(batches))
    assert got == list(many[: len(got)])
    (first, event), (second, same) = device.waits[copies - 1 : copies + 1]
    assert (first, second) == ("training", "another")
    assert same is event


@pytest.mark.parametrize("where", [1, 5, 700, 2345, MANY - 2])
def test_batches_before_a_damaged_record_are_delivered(tmp_path: Path, device: Device, where: int) -> None:
    path = tmp_path / "a.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"<%d>" % i for i in range(MANY))
    data = bytearray(path.read_bytes())
    data[data.rindex(b"<%d>" % where) + 1] ^= 1
    path.write_bytes(data)
    batches, got = loader(path, 4, collate="packed", device="cuda"), list[bytes]()
    with nothing_left_behind(), pytest.raises(anyrecord.RecordError, match=f"record {where}\\b"):
        got.extend(record for batch in batches for record in contents(batch))
    assert got == [b"<%d>" % i for i in range(where // 4 * 4)]


def test_batches_before_one_of_unequal_records_are_delivered(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "a.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"%04d" % i + b"!" * (i == 1234) for i in range(MANY))
    batches, got = loader(path, 5, collate="tensors", device="cuda"), list[bytes]()
    with pytest.raises(ValueError, match="records of 4 and 5 bytes") as caught:
        got.extend(bytes(row) for batch in batches for row in batch.tolist())
    assert "in collate on the batch that begins with record 1230" in caught.value.__notes__[0]
    assert got == [b"%04d" % i for i in range(1230)]


@pytest.mark.parametrize("before", [0, 1, 5])
def test_an_error_of_a_copy_is_raised_after_the_batches_before_it(many: Records, device: Device, before: int) -> None:
    allocate, count = device.empty, itertools.count()

    def empty(size: int) -> Any:
        if next(count) >= before:
            raise MemoryError("no memory on the device")
        return allocate(size)

    device.empty = empty  # type: ignore[method-assign]
    batches, got = loader(many, 7, collate="packed", device="cuda", threads=1), list[bytes]()
    with nothing_left_behind(), pytest.raises(MemoryError, match="on the device"):
        got.extend(record for batch in batches for record in contents(batch))
    assert got == list(many[: len(got)])
    assert (len(got) > 0) == (before > 0)


@pytest.mark.parametrize("taken", [1, 2, 40])
def test_a_loop_over_batches_of_a_device_may_end_early(many: Records, device: Device, taken: int) -> None:
    with nothing_left_behind():
        batches = iter(loader(many, 2, collate="packed", device="cuda"))
        for _ in range(taken):
            next(batches)
        del batches


def test_the_garbage_collector_may_run_in_the_copying_thread(many: Records, device: Device) -> None:
    """What it collects may be an iterator whose threads wait for a copy."""

    def load() -> int:
        begun, go_on, empty = threading.Event(), threading.Event(), device.empty

        def wait(samples: list[bytes]) -> list[bytes]:
            if samples[0]:  # not the first batch
                begun.set()
                go_on.wait()
            return samples

        def collect(size: int) -> Any:
            gc.collect()
            go_on.set()
            return empty(size)

        it: Any = iter(loader(many, 7, collate=wait, threads=1))
        next(it)
        begun.wait()
        it.is_in_a_cycle = it
        del it
        device.empty = collect  # type: ignore[method-assign]
        return sum(len(contents(batch)) for batch in loader(many, 7, collate="packed", device="cuda"))

    assert forked(load) == MANY


def test_two_iterators_share_pinned_memory(many: Records, device: Device) -> None:
    both = loader(many, 7, collate="packed", device="cuda", threads=1)
    for one, other in zip(both, both, strict=True):
        assert contents(one) == contents(other)
    assert len(device.pinned_sizes) == 3


def test_a_loader_can_be_pickled_after_it_was_used(many: Records, device: Device) -> None:
    used = loader(many, 7, shuffle=True, collate="packed", device="cuda")
    batches = iter(used)
    first = contents(next(batches))
    copy = pickle.loads(pickle.dumps(used))
    assert copy.state_dict() == used.state_dict()
    assert contents(next(iter(copy))) == first, "an epoch that was not resumed begins again"


def test_a_resume_does_not_depend_on_what_was_copied_together(many: Records, device: Device) -> None:
    for taken in (1, 2, 63, 200):
        first = loader(many, 6, shuffle=True, collate="packed", device="cuda")
        batches = iter(first)
        got = [contents(next(batches)) for _ in range(taken)]
        batches.close()
        second = loader(many, 9, shuffle=True, collate="packed", device="cuda", threads=2)
        second.load_state_dict(first.state_dict())
        rest = [contents(batch) for batch in second]
        expected = [record for batch in loader(many, 6, shuffle=True) for record in batch]
        assert [record for batch in got + rest for record in batch] == expected


@pytest.mark.parametrize("prefetch", [1, 3, 4, 8, 50, 1000])
def test_no_more_is_made_ahead_than_prefetch_says(prefetch: int) -> None:
    from anyrecord.torch._pipeline import END, Maker, Pipeline

    made: list[int] = []

    class Numbers(Maker):
        most_together = 64

        def make_group(self, number: int, count: int, piece: int, of: int) -> list[bytes]:
            made.extend(range(number, number + count))
            return [b"%d" % i for i in range(number, number + count)]

        def split(self, group: list[bytes]) -> list[bytes]:
            return group

    pipeline = Pipeline(Numbers(), 2000, 3, prefetch)
    for delivered in itertools.count():
        value = pipeline.take()
        assert len(made) <= delivered + 1 + prefetch
        if value is END:
            break
        assert value == b"%d" % delivered
    assert sorted(made) == list(range(2000))
    pipeline.close()
