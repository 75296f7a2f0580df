"""`Dataset`, `concat` and `IterableDataset` under PyTorch's loaders, with real worker processes."""

from __future__ import annotations

import pickle
import re
import warnings
from ast import literal_eval
from collections import Counter
from itertools import chain, islice, pairwise, product, zip_longest
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Records
from children import python

from .loading import N, numbers, order, tensor, write_numbers

pytestmark = [
    pytest.mark.framework,
    # More workers than this machine has cores is the point, not a mistake.
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # There is no GPU.
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
    # torchdata's own use of torch.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("datasets") / "numbers.ffr")


def dataset(*arguments: Any, **keywords: Any) -> Any:
    from anyrecord.torch import Dataset

    return Dataset(*arguments, **keywords)


def iterable(*arguments: Any, **keywords: Any) -> Any:
    from anyrecord.torch import IterableDataset

    return IterableDataset(*arguments, **keywords)


def records_of(batch: Any) -> list[bytes]:
    data, places = bytes(batch.data.numpy()), batch.offsets.tolist()
    return [data[begin:end] for begin, end in pairwise(places)]


def load(source: Any, workers: int = 0, start: str = "fork", **keywords: Any) -> Any:
    from torch.utils.data import DataLoader

    if workers:
        keywords |= {"num_workers": workers, "multiprocessing_context": start}
    return DataLoader(source, **keywords)


# A plain DataLoader


class Both:
    """The same records as packed batches and as lists, so that workers that are slow to start deliver both."""

    def __init__(self, path: Path) -> None:
        self.packed, self.plain = dataset(path, packed=True), anyrecord.open(path)

    def __len__(self) -> int:
        return N

    def __getitems__(self, indices: list[int]) -> tuple[Any, list[bytes]]:
        return self.packed.__getitems__(indices), self.plain.__getitems__(indices)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_a_data_loader_delivers_every_record_in_every_setting(path: Path, workers: int, start: str) -> None:
    import multiprocessing

    from anyrecord.torch import packed_batch

    multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", "anyrecord.torch"])
    for persistent, pin_memory in product((True, False), repeat=2):
        if (start, workers) == ("spawn", 4) and persistent != pin_memory:
            continue  # each of these processes takes more than a second to start
        keywords = {"persistent_workers": persistent, "pin_memory": pin_memory}
        batches = load(Both(path), workers, start, batch_size=16, collate_fn=packed_batch, **keywords)
        for _ in range(2 if persistent or start != "spawn" else 1):
            packed, plain = zip(*batches, strict=True)
            assert numbers(map(records_of, packed)) == numbers(plain) == list(range(N))


def test_a_data_loader_without_workers_delivers_every_record(path: Path) -> None:
    from anyrecord.torch import packed_batch

    for pin_memory in (False, True):
        batches = load(dataset(path, packed=True), batch_size=16, collate_fn=packed_batch, pin_memory=pin_memory)
        assert numbers(map(records_of, batches)) == list(range(N))
        assert numbers(load(dataset(path), batch_size=16, collate_fn=list, pin_memory=pin_memory)) == list(range(N))


def test_records_and_datasets_work_without_persistent_workers(path: Path) -> None:
    for source in (anyrecord.open(path), anyrecord.open(path).map(int), dataset(path, decode=int)):
        batches = load(source, 2, batch_size=16, collate_fn=list)
        assert [numbers(batches) for _ in range(2)] == [list(range(N))] * 2
    collated = load(dataset(path, decode=int), 2, batch_size=50)
    assert [batch.tolist() for batch in collated] == [list(range(i, i + 50)) for i in range(0, N, 50)]


def test_packed_batches_of_workers_are_in_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.utils.data
    from anyrecord.torch import packed_batch

    contents = [bytes([i]) * (i * 7000) for i in range(40)]  # grows past the first size, and begins with nothing
    with anyrecord.create(tmp_path / "a.ffr", durable=False) as out:
        out.write_many(contents)
    for workers in (0, 2):
        batches = load(dataset(tmp_path / "a.ffr", packed=True), workers, batch_size=9, collate_fn=packed_batch)
        got = list(batches)
        assert all(batch.data.is_shared() and batch.offsets.is_shared() for batch in got) == (workers > 0)
        assert [record for batch in got for record in records_of(batch)] == contents
    # Read into it, not moved there when the batch is sent.
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: object())
    batch = dataset(tmp_path / "a.ffr", packed=True).__getitems__([3, 20])
    assert batch.data.is_shared()
    assert records_of(batch) == [contents[3], contents[20]]


def test_one_large_batch_does_not_make_all_later_ones_take_as_much_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.utils.data

    contents = [b"", b"1" * 8_000_000, *(b"%d" % i for i in range(20)), b"", b"2" * 6_000, b"3"]
    with anyrecord.create(tmp_path / "a.ffr", durable=False) as out:
        out.write_many(contents)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: object())
    source = dataset(tmp_path / "a.ffr", packed=True)
    batches = [source.__getitems__([i]) for i in range(len(contents))]
    assert [records_of(batch) for batch in batches] == [[record] for record in contents]
    assert batches[1].data.untyped_storage().nbytes() >= 8_000_000
    assert batches[21].data.untyped_storage().nbytes() <= 4096, "PyTorch clears all of it"


def test_a_distributed_sampler_divides_a_dataset(path: Path) -> None:
    from torch.utils.data.distributed import DistributedSampler

    source = dataset(path, decode=int)
    seen: Counter[int] = Counter()
    for rank in range(3):
        drawn_from: Any = DistributedSampler(source, num_replicas=3, rank=rank, seed=1)
        seen.update(numbers(load(source, batch_size=8, sampler=drawn_from, collate_fn=list)))
    assert seen == Counter(range(N))


def test_a_dataset_is_a_sequence_that_can_be_pickled(path: Path) -> None:
    source = dataset(path, decode=int, cache_bytes=0)
    for each in (source, pickle.loads(pickle.dumps(source))):
        assert len(each) == N
        assert (each[3], each[-1], each.__getitems__([5, -2])) == (3, N - 1, [5, N - 2])
        with pytest.raises(IndexError, match=f"sample {N} is out of range: the dataset has {N}"):
            each[N]
    assert dataset(path, packed=True)[10].tolist() == list(b"10")
    assert next(iter(load(dataset(path, packed=True), batch_size=None))).tolist() == list(b"0")


def test_an_error_of_decode_in_a_worker_names_the_record(path: Path) -> None:
    from .loading import fails_at_100

    with pytest.raises(KeyError, match=f"in the function on record 100 of {path}"):
        list(load(dataset(path, decode=fails_at_100), 1, batch_size=16))


# Concatenation


class Counting(Records):
    """Records that count batched reads."""

    reads = 0

    def __getitems__(self, indices: Any) -> list[bytes]:
        type(self).reads += 1
        return super().__getitems__(indices)


def test_concatenated_datasets_still_read_in_batches(path: Path) -> None:
    from anyrecord.torch import concat
    from torch.utils.data import ConcatDataset

    opened = Counting(anyrecord.open(path)._source)
    for parts, reads in (
        ([dataset(opened[:50]), dataset(opened[50:])], 1),
        ([dataset(opened[:50], decode=int), dataset(opened[50:], decode=int)], 1),
        ([dataset(opened[:50]), dataset(opened[50:], decode=int)], 2),
    ):
        Counting.reads = 0
        joined = concat(parts)
        assert numbers([joined.__getitems__([149, 0, 49, 50, -1])]) == [149, 0, 49, 50, 149]
        assert Counting.reads == reads
        assert numbers([[joined[i] for i in range(N)]]) == list(range(N))
    assert not hasattr(ConcatDataset([opened]), "__getitems__"), "then it would be as good"


def test_datasets_are_joined_by_a_plus_and_stay_what_they_are(path: Path) -> None:
    from anyrecord.torch import Dataset, concat

    joined = dataset(path, decode=int) + dataset(path, decode=int) + dataset(path, decode=str)
    assert isinstance(joined, Dataset)
    assert len(pickle.loads(pickle.dumps(joined))) == 3 * N
    assert joined.__getitems__([0, 2 * N - 1, 2 * N]) == [0, N - 1, "b'0'"]
    with pytest.raises(ValueError, match="some of the datasets have packed=True"):
        concat([dataset(path, packed=True), dataset(path)])
    with pytest.raises(ValueError, match="concat got no datasets"):
        concat([])
    with pytest.raises(TypeError, match=r"concat takes anyrecord\.torch\.Dataset, not Records"):
        concat([anyrecord.open(path)])  # type: ignore[arg-type]


def test_packed_datasets_with_other_options_are_one_read_each(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.utils.data
    from anyrecord.torch import concat

    reads: list[list[int]] = []

    class Packing(Records):
        def read_packed(self, indices: Any) -> anyrecord.Packed:
            reads.append(list(indices))
            return super().read_packed(indices)

        def __getitems__(self, indices: Any) -> list[bytes]:
            raise AssertionError("an object for each record")

    opened = [Packing(anyrecord.open(path, cache_bytes=size)._source) for size in (0, 1 << 20)]
    packed = concat([dataset(records, packed=True) for records in opened])
    assert len(packed._parts) == 2
    for in_worker in (False, True):
        if in_worker:
            monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: object())
        reads.clear()
        batch = packed.__getitems__([N + 3, 20, -1, 0, N + 100])
        assert records_of(batch) == [b"3", b"20", b"149", b"0", b"100"]
        assert reads == [[3, N - 1, 100], [20, 0]]
        assert batch.data.is_shared() == batch.offsets.is_shared() == in_worker
        assert (batch.data.dtype, batch.offsets.dtype) == (torch.uint8, torch.int64)
        for indices in ([], [3, 2], [N + 7]):
            assert records_of(packed.__getitems__(indices)) == [b"%d" % (i % N) for i in indices]


def test_packed_datasets_of_empty_records_are_joined(tmp_path: Path) -> None:
    from anyrecord.torch import concat

    with anyrecord.create(tmp_path / "a.ffr", durable=False) as out:
        out.write_many([b"", b""])
    packed = concat([dataset(tmp_path / "a.ffr", packed=True, cache_bytes=size) for size in (0, 1 << 20)])
    assert records_of(packed.__getitems__([0, 3, 2])) == [b"", b"", b""]


def test_damaged_records_are_left_out_of_packed_concatenated_datasets(tmp_path: Path) -> None:
    from anyrecord.torch import concat

    data = bytearray(write_numbers(tmp_path / "a.ffr").read_bytes())
    data[data.rindex(b"100101102") + 5] ^= 1  # record 101
    (tmp_path / "a.ffr").write_bytes(data)
    keywords: list[dict[str, Any]] = [{"on_error": "skip"}, {"on_error": "replace"}]
    packed = concat([dataset(tmp_path / "a.ffr", packed=True, **each) for each in keywords])
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", anyrecord.DamageWarning)
            batch = packed.__getitems__([N + 101, 101, 5, N + 7, 102])
        assert records_of(batch) == [b"102", b"5", b"7", b"102"]


def test_damaged_records_are_left_out_of_concatenated_datasets(tmp_path: Path) -> None:
    data = bytearray(write_numbers(tmp_path / "a.ffr").read_bytes())
    data[data.rindex(b"100101102") + 5] ^= 1  # record 101
    (tmp_path / "a.ffr").write_bytes(data)

    def nothing(record: bytes) -> None:
        return None

    parts = [dataset(tmp_path / "a.ffr", decode=decode, on_error="skip") for decode in (nothing, int)]
    joined = parts[0] + parts[1]
    with pytest.warns(anyrecord.DamageWarning):
        got = joined.__getitems__([N + 102, 101, 5, N + 101, 100])
    assert got == [102, None, None], "a sample may be None"


# Iterable datasets


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("world", [1, 3])
def test_an_iterable_dataset_delivers_each_record_once_for_any_ranks_and_workers(
    path: Path, workers: int, world: int
) -> None:
    from anyrecord.torch import packed_batch

    for epoch in (0, 1):
        by_ranks: list[list[list[int]]] = []
        for rank in range(world):
            keywords: Any = {"shuffle": True, "seed": 1, "tail": "uneven", "rank": rank, "world": world}
            single = iterable(path, decode=int, **keywords)
            lists = iterable(path, batch_size=7, **keywords)
            packed = iterable(path, batch_size=7, packed=True, **keywords)
            kinds = (
                load(single, workers, batch_size=None),
                load(lists, workers, batch_size=None),
                load(packed, workers, batch_size=None, collate_fn=packed_batch),
            )
            for each in (single, lists, packed):
                each.set_epoch(epoch)
            samples, batches, packs = map(list, kinds)
            assert len(samples) == len(single)
            assert len(batches) == len(packs) == len(lists)
            by_ranks.append([samples, numbers(batches), numbers(map(records_of, packs))])
        for ranks in zip(*by_ranks, strict=True):
            in_turn = [x for x in chain.from_iterable(zip_longest(*ranks)) if x is not None]
            assert in_turn == order(N, epoch=epoch), "in order, as without workers"


@pytest.mark.parametrize(("tail", "sizes"), [("pad", {38}), ("drop", {37}), ("uneven", {37, 38})])
def test_each_rank_has_as_many_samples_as_tail_says(path: Path, tail: Any, sizes: set[int]) -> None:
    ranks = [iterable(path, tail=tail, rank=rank, world=4) for rank in range(4)]
    got = [len(list(load(each, 2, batch_size=None))) for each in ranks]
    assert set(got) == sizes
    assert got == [len(each) for each in ranks]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_persistent_workers_follow_set_epoch_and_the_process_group(path: Path, start: str) -> None:
    """A spawned worker knows nothing of the process group of its parent."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    source = iterable(path, shuffle=True, seed=1, batch_size=8)
    batches = load(source, 2, start, batch_size=None, persistent_workers=True)
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        for epoch in (0, 3, 1):
            source.set_epoch(epoch)
            assert numbers(batches) == order(N, epoch=epoch)[1::2]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("batch_size", [None, 8])
def test_an_iterable_dataset_warns_once_if_an_epoch_comes_again(path: Path, batch_size: int | None) -> None:
    source = iterable(path, decode=int, shuffle=True, batch_size=batch_size)
    next(iter(source))  # not the whole epoch
    first = list(source)
    with pytest.warns(UserWarning, match=r"begins epoch 0 again, in the same order; call set_epoch\(epoch\)") as caught:
        assert list(source) == first
    assert [warning.filename for warning in caught] == [__file__]
    assert list(source) == first, "once"
    for epoch in (0, 0, 1):
        source.set_epoch(epoch)
        assert (list(source) == first) == (epoch == 0), "on purpose"
    in_order = iterable(path, decode=int, batch_size=batch_size)
    assert list(in_order) == list(in_order)


def as_errors(worker: int) -> None:
    """Lets the warnings of a worker process arrive in this one."""
    warnings.simplefilter("error", UserWarning)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_workers_warn_if_an_epoch_comes_again(path: Path, persistent: bool, start: str) -> None:
    """Also if each epoch has processes of its own."""
    source = iterable(path, shuffle=True, seed=1, batch_size=16)
    keywords = {"persistent_workers": persistent, "worker_init_fn": as_errors}
    batches = load(source, 2, start, batch_size=None, **keywords)
    assert numbers(batches) == order(N)
    with pytest.raises(UserWarning, match="begins epoch 0 again, in the same order"):
        list(batches)
    source.set_epoch(1)
    assert numbers(load(source, 2, start, batch_size=None, **keywords)) == order(N, epoch=1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [None, 8])
def test_a_stateful_loader_resumes_an_iterable_dataset(path: Path, workers: int, batch_size: int | None) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        source = iterable(path, decode=int, shuffle=True, seed=1, batch_size=batch_size)
        source.set_epoch(2)
        context = "fork" if workers else None
        return StatefulDataLoader(source, batch_size=None, num_workers=workers, multiprocessing_context=context)

    whole = list(loader())
    for steps in (0, 1, 5, len(whole) - 1):
        first = loader()
        it = iter(first)
        before = list(islice(it, steps))
        state = first.state_dict()
        del it
        second = loader()
        second.load_state_dict(state)
        assert before + list(second) == whole


def test_a_state_of_another_worker_or_of_other_data_is_refused(path: Path) -> None:
    it = iter(iterable(path, shuffle=True))
    next(it)
    state = it.state_dict()
    for other in (iterable(path), iterable(path, shuffle=True, seed=2), iterable(path, shuffle=True, rank=0, world=2)):
        with pytest.raises(ValueError, match="use Loader or ElasticSampler"):
            iter(other).load_state_dict(state)
    with pytest.raises(ValueError, match="not the state of an iterable dataset"):
        it.load_state_dict({**state, "taken": N + 1})


# Lightning


class Seen:
    """The samples that a model was trained on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []


def model(seen: Seen) -> Any:
    import lightning
    import torch

    class Model(lightning.LightningModule):  # type: ignore[misc]  # lightning has no types here
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            seen.batches.append(batch.flatten().tolist())
            return self.layer(batch.float().reshape(-1, 1)).sum() * 0

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Model()


@pytest.mark.filterwarnings("ignore")  # of Lightning, about itself
@pytest.mark.parametrize("kind", ["loader", "data loader", "iterable"])
def test_lightning_trains_epochs_and_goes_on_from_a_checkpoint(path: Path, tmp_path: Path, kind: str) -> None:
    import lightning
    from anyrecord.torch import ElasticSampler, Loader
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch.utils.data import default_collate

    in_order = iterable(path, decode=tensor_of_one, shuffle=True, seed=1, batch_size=40)
    page = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    (callback,) = re.findall(r"```python\n(class Epochs.*?)```", page, re.DOTALL)
    exec(callback, names := {"lightning": lightning})

    def batches() -> Any:
        if kind == "loader":
            return Loader(path, 40, decode=tensor_of_one, collate="tensors", shuffle=True, seed=1)
        if kind == "iterable":
            return load(in_order, 2, batch_size=None, collate_fn=default_collate)
        source = dataset(path, decode=tensor_of_one)
        return load(source, batch_size=40, sampler=ElasticSampler(source, seed=1))

    class Stop(lightning.Callback):  # type: ignore[misc]
        def __init__(self, step: int) -> None:
            self.step = step

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == self.step:
                raise InterruptedError

    def train(seen: Seen, stop: int = -1, checkpoint: Path | None = None) -> None:
        saving = ModelCheckpoint(
            tmp_path, filename="a", every_n_train_steps=1, save_top_k=1, enable_version_counter=False
        )
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=2,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            callbacks=[saving, Stop(stop), names["Epochs"](in_order)],
        )
        trainer.fit(model(seen), batches(), ckpt_path=checkpoint)

    whole = [order(N, epoch=epoch)[i : i + 40] for epoch in range(2) for i in range(0, N, 40)]
    seen = Seen()
    train(seen)
    assert seen.batches == whole
    if kind == "loader":  # a DataLoader has no state
        for stop in (2, 4, 5):
            before, after = Seen(), Seen()
            with pytest.raises(InterruptedError):
                train(before, stop)
            assert len(before.batches) == stop
            train(after, checkpoint=tmp_path / "a.ckpt")
            assert before.batches + after.batches == whole, f"stopped after {stop} steps"


def tensor_of_one(record: bytes) -> Any:
    return tensor(record)[:1]


def test_lightning_does_not_divide_the_records_of_a_rank_again(path: Path, tmp_path: Path) -> None:
    script = f"""if True:
        import logging, pathlib, warnings
        warnings.simplefilter("ignore")  # of Lightning, about itself
        import lightning, torch
        from anyrecord.torch import Dataset, ElasticSampler, IterableDataset, Loader
        from torch.utils.data import DataLoader
        logging.getLogger("lightning").setLevel(logging.ERROR)

        class Model(lightning.LightningModule):
            def __init__(self, name):
                super().__init__()
                self.layer, self.name, self.seen = torch.nn.Linear(1, 1), name, []

            def training_step(self, batch, _):
                self.seen += batch.tolist()
                return self.layer(batch.float().reshape(-1, 1)).sum()

            def on_train_end(self):
                pathlib.Path(f"{tmp_path}/{{self.name}}-{{self.global_rank}}").write_text(repr(self.seen))

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        path = {str(path)!r}
        source = Dataset(path, decode=int)
        loaders = {{
            "loader": Loader(path, 25, decode=int, collate="tensors", shuffle=True),
            "sampler": DataLoader(source, batch_size=25, sampler=ElasticSampler(source)),
            "iterable": DataLoader(IterableDataset(path, decode=int), batch_size=25),
            "dataset": DataLoader(source, batch_size=25),
        }}
        for name, batches in loaders.items():
            trainer = lightning.Trainer(
                accelerator="cpu", devices=2, strategy="ddp_fork", max_epochs=1, logger=False,
                enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            )
            trainer.fit(Model(name), batches)
    """
    python(script)
    for name in ("loader", "sampler", "iterable", "dataset"):
        seen = [literal_eval((tmp_path / f"{name}-{rank}").read_text()) for rank in range(2)]
        assert [len(of_rank) for of_rank in seen] == [N // 2] * 2, name
        assert sorted(chain(*seen)) == list(range(N)), name
