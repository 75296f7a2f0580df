"""`anyrecord.torch.Loader`: which batches it delivers, in which order and form, and what its state says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import chain, islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .loading import N, fails_to_collate, numbers, order, pair, tensor, write_numbers

pytestmark = pytest.mark.framework

State = dict[str, int]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("loader") / "numbers.ffr")


@pytest.fixture(params=[{}, {"decode": int}, {"collate": len}, {"collate": "packed"}], ids=str)
def kind(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Each way to make batches, where the loader's threads share PyTorch's threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def records(path: Path) -> Records:
    return anyrecord.open(path)


def loader(*arguments: Any, **keywords: Any) -> Any:
    from anyrecord.torch import Loader

    return Loader(*arguments, **keywords)


def in_turn(ranks: list[list[int]]) -> list[int]:
    return [x for x in chain.from_iterable(zip_longest(*ranks)) if x is not None]


# Order


@pytest.mark.parametrize("tail", ["pad", "drop", "uneven"])
@pytest.mark.parametrize("keywords", [{}, {"window": 4, "block": 7}, {"shuffle": False}])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_the_order_is_that_of_the_sampler(records: Records, tail: Any, keywords: Any, threads: int) -> None:
    from anyrecord.torch import ElasticSampler

    keywords = {"shuffle": True, "seed": 5, "tail": tail, **keywords}
    for rank, world, decode in ((0, 1, None), (0, 1, int), (0, 4, int), (3, 4, None)):
        drawn_from = ElasticSampler(records, rank=rank, world=world, **keywords)
        batches = loader(records, 16, rank=rank, world=world, decode=decode, threads=threads, **keywords)
        for _ in range(2):
            got = list(batches)
            assert len(batches) == len(got)
            assert [len(batch) for batch in got[:-1]] == [16] * (len(got) - 1)
            assert numbers(got) == list(drawn_from)
            assert batches.state_dict() == drawn_from.state_dict()


def test_a_shuffled_view_comes_in_its_order(records: Records, path: Path) -> None:
    assert numbers(loader(records.shuffle(7), 16)) == order(N, 7)
    assert numbers(loader(records.shuffle(7).shard(1, of=3), 16)) == order(N, 7)[1::3]
    assert numbers(loader([path, path], 16)) == [*range(N), *range(N)]
    assert numbers(loader(records, 16)) == list(range(N))


def test_mapped_records_bring_their_functions(records: Records) -> None:
    assert list(loader(records.map(int), 100)) == [list(range(100)), list(range(100, N))]
    assert list(loader(records.map(int), 100, decode=str))[1][:2] == ["100", "101"]


def test_the_last_batch_is_left_out_on_request(records: Records) -> None:
    batches = loader(records, 16, drop_last=True)
    assert len(batches) == N // 16
    assert numbers(batches) == list(range(N // 16 * 16))
    assert batches.state_dict()["position"] == N


def test_no_records_are_no_batches(records: Records, kind: dict[str, Any]) -> None:
    for few, keywords in (
        (0, {"shuffle": True}),
        (5, {"drop_last": True}),
        (2, {"rank": 2, "world": 3, "tail": "uneven"}),
    ):
        batches = loader(records[:few], 16, **keywords, **kind)
        assert len(batches) == 0
        assert list(batches) == []


def test_a_resume_at_the_end_of_an_epoch_has_no_batches_and_leads_to_the_next(
    records: Records, kind: dict[str, Any]
) -> None:
    batches = loader(records, 16, shuffle=True, seed=1, **kind)
    assert len(list(batches)) == 10
    resumed = loader(records, 16, shuffle=True, seed=1, **kind)
    resumed.load_state_dict(batches.state_dict())
    assert list(resumed) == []
    assert len(list(resumed)) == 10
    assert resumed.state_dict() == {**batches.state_dict(), "epoch": 1}


def test_rank_and_world_come_from_the_process_group(records: Records) -> None:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    batches = loader(records, 16, shuffle=True, seed=1)
    dist.init_process_group("fake", rank=2, world_size=5, store=FakeStore())
    try:
        assert numbers(batches) == order(N)[2::5]
    finally:
        dist.destroy_process_group()
    assert numbers(batches) == order(N, epoch=1)


@pytest.mark.parametrize("prefetch", [None, 1, 3])
def test_no_more_is_decoded_ahead_than_prefetch_says(records: Records, prefetch: int | None) -> None:
    decoded: list[bytes] = []
    batches = iter(loader(records, 10, decode=lambda record: decoded.append(record), threads=2, prefetch=prefetch))
    for delivered in range(1, 6):
        next(batches)
        # With two threads, at most four batches ahead.
        assert len(decoded) <= 10 * (delivered + (prefetch or 4))
    batches.close()


def test_batches_of_all_kinds_of_samples_are_measured(records: Records) -> None:
    """Otherwise, their number in memory would not be limited by their size."""
    import dataclasses
    from collections import OrderedDict

    import torch

    @dataclasses.dataclass
    class Sample:
        image: torch.Tensor
        name: str = ""

    image = torch.zeros(1_000_000, dtype=torch.uint8)
    samples: list[Any] = [
        image,
        Sample(image),
        {"image": [image]},
        OrderedDict(image=image),
        (image, 1),
        image.numpy(),
        bytes(1_000_000),
        bytearray(1_000_000),
    ]
    for sample in samples:
        batches = iter(loader(records, 50, decode=lambda _, sample=sample: sample, threads=64))
        next(batches)
        assert batches._pipeline._largest == pytest.approx(50_000_000, rel=0.01), type(sample)
        assert len(batches._pipeline._ordered) <= 5
        batches.close()


@pytest.mark.parametrize(("threads", "expected"), [(1, 6), (2, 3), (4, 1), (16, 1), (0, 6)])
def test_threads_share_the_threads_of_operations(records: Records, threads: int, expected: int) -> None:
    import torch

    def in_new_thread() -> list[int]:
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        return found

    before = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        for _ in range(2):
            found = set(chain(*loader(records, 10, decode=lambda _: torch.get_num_threads(), threads=threads)))
            assert found == {expected}
            assert torch.get_num_threads() == 6, "of this thread"
            assert in_new_thread() == [6]
        assert set(loader(records, 10, collate=lambda _: torch.get_num_threads(), threads=threads)) == {expected}
    finally:
        torch.set_num_threads(before)


# State


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n=st.integers(1, N))
def test_every_record_comes_once_however_often_it_is_interrupted(path: Path, data: st.DataObject, n: int) -> None:
    """Segments of other ranks, threads, batch sizes and kinds of loader, each of which continues the one before."""
    from anyrecord.torch import ElasticLoader, ElasticSampler
    from torch.utils.data import DataLoader

    kinds = st.sampled_from(["loader", "loader", "elastic"])
    segment = st.tuples(kinds, st.integers(1, 3), st.integers(0, 3), st.integers(1, 20), st.integers(0, 4))
    segments = [*data.draw(st.lists(segment, max_size=3)), (*data.draw(segment)[:-1], 1 + n)]
    delivered: list[int] = []
    state: State | None = None
    for kind, world, threads, size, steps in segments:
        got, states = [], set()
        for rank in range(world):
            records = anyrecord.open(path)[:n]
            keywords: Any = {"seed": 1, "tail": "uneven", "rank": rank, "world": world}
            batches: Any
            if kind == "loader":
                batches = loader(records, size, shuffle=True, threads=threads, **keywords)
            else:
                drawn_from = ElasticSampler(records, **keywords)
                batches = ElasticLoader(DataLoader(records, size, sampler=drawn_from, collate_fn=list))
            if state is not None:
                batches.load_state_dict(state)
            it = iter(batches)
            got.append(numbers(islice(it, steps)))
            states.add(json.dumps(batches.state_dict(), sort_keys=True))
            it.close()
        delivered += in_turn(got)
        assert len(states) == 1, "every rank says the same"
        state = json.loads(states.pop())
        assert state is not None
        assert state["position"] == len(delivered)
    assert delivered == order(n)


def test_the_state_after_each_batch_leads_to_the_next_one(records: Records) -> None:
    from anyrecord.torch import ElasticSampler

    batches = loader(records, 16, shuffle=True, seed=1, decode=int, threads=3)
    seen: list[int] = []
    for batch in batches:
        seen += batch
        state = batches.state_dict()
        resumed = loader(records, 7, shuffle=True, seed=1)
        resumed.load_state_dict(state)
        drawn_from = ElasticSampler(records, seed=1)
        drawn_from.load_state_dict(state)
        rest = order(N)[len(seen) :]
        assert len(resumed) == -(-N // 7), "of a whole epoch, as before"
        assert numbers(resumed) == rest == list(drawn_from)
    drawn_from = ElasticSampler(records, seed=1)
    it = iter(drawn_from)
    assert [next(it) for _ in range(33)] == order(N)[:33]
    batches.load_state_dict(drawn_from.state_dict())
    assert [x for batch in batches for x in batch] == order(N)[33:]


def test_the_loop_that_everybody_writes_resumes_wherever_it_was_stopped(path: Path) -> None:
    records = anyrecord.open(path)[:20]

    def train(state: State | None, steps: int) -> tuple[list[int], State]:
        batches = loader(records, 8, shuffle=True, seed=1)
        if state is not None:
            batches.load_state_dict(state)
        seen: list[int] = []
        for epoch in range(batches.sampler.epoch, 3):
            batches.set_epoch(epoch)
            for batch in batches:
                seen += numbers([batch])
                steps -= 1
                if steps == 0:
                    return seen, batches.state_dict()
        return seen, batches.state_dict()

    whole = [x for epoch in range(3) for x in order(20, epoch=epoch)]
    assert train(None, 1000)[0] == whole
    for stop in range(1, 9):
        before, state = train(None, stop)
        assert before + train(state, 1000)[0] == whole, f"stopped after {stop} steps"


def test_the_state_follows_the_newest_iterator(records: Records) -> None:
    batches = loader(records, 16)
    older = iter(batches)
    next(older)
    newer = iter(batches)
    assert batches.state_dict()["position"] == 0
    assert numbers([next(older)]) == list(range(16, 32))
    assert batches.state_dict()["position"] == 0
    next(newer)
    assert batches.state_dict()["position"] == 16
    assert numbers(older) == list(range(32, N))


def test_the_epoch_can_be_chosen_after_the_iterator_was_made(records: Records) -> None:
    """Trainers do that, also after they have loaded a state at the end of an epoch."""
    batches = loader(records, 16, shuffle=True, seed=1)
    list(batches)
    resumed = loader(records, 16, shuffle=True, seed=1)
    resumed.load_state_dict(batches.state_dict())
    it = iter(resumed)
    resumed.set_epoch(1)
    assert numbers(it) == order(N, epoch=1)
    again = loader(records, 16, shuffle=True, seed=1)
    it = iter(again)
    again.load_state_dict({**batches.state_dict(), "position": 32})
    assert numbers(it) == order(N)[32:]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("size", [50, 16])
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_is_over_when_its_last_batch_was_delivered(
    records: Records, threads: int, size: int, drop_last: bool
) -> None:
    """Whether or not anybody asks for one more."""
    batches = loader(records, size, shuffle=True, seed=1, threads=threads, drop_last=drop_last)
    for epoch in range(3):
        got = [batch for _, batch in zip(range(len(batches)), batches, strict=False)]
        assert numbers(got) == order(N, epoch=epoch)[: len(batches) * size]
        assert batches.state_dict()["epoch"] == epoch
        resumed = loader(records, size, shuffle=True, seed=1, drop_last=drop_last)
        resumed.load_state_dict(batches.state_dict())
        assert list(resumed) == []
    batches.set_epoch(2)
    assert numbers(batches) == order(N, epoch=2)[: len(batches) * size], "asked for again"


def test_a_rank_with_fewer_records_goes_on_to_the_next_epoch_with_the_others(records: Records) -> None:
    for rank in range(3):
        batches = loader(records[:20], 6, shuffle=True, seed=1, tail="uneven", rank=rank, world=3)
        for epoch in range(2):
            got = [batch for _, batch in zip(range(len(batches)), batches, strict=False)]
            assert numbers(got) == order(20, epoch=epoch)[rank::3]


def test_the_end_that_one_thread_has_seen_is_kept(records: Records) -> None:
    from anyrecord.torch._pipeline import END

    class Ended:
        """A pipeline that another thread takes the end from, and closes, while this thread looks at it."""

        def take(self) -> object:
            return END

        @property
        def is_closed(self) -> bool:
            it._taken.ended = True
            return True

        def close(self) -> None:
            pass

        abandon = close

    it: Any = iter(loader(records, 16))
    it._pipeline = Ended()
    assert list(it) == []
    assert it._taken.ended


# Forms


def test_equal_records_become_one_tensor(records: Records) -> None:
    import torch

    got = list(loader(records[10:100], 40, collate="tensors"))
    assert [tuple(batch.shape) for batch in got] == [(40, 2), (40, 2), (10, 2)]
    assert bytes(torch.cat(got).flatten().tolist()) == b"".join(records[10:100])
    with pytest.raises(
        ValueError, match=r"records of 1 and 2 bytes; use collate='packed' or collate='jagged'"
    ) as caught:
        list(loader(records, 40, collate="tensors"))
    assert "in collate on the batch that begins with record 0 of" in caught.value.__notes__[0]


def test_packed_batches_hold_the_records_and_where_they_begin(records: Records) -> None:
    from anyrecord.torch import PackedTensors

    for threads in (0, 2):
        position = 0
        for batch in loader(records, 40, collate="packed", threads=threads):
            assert type(batch) is PackedTensors
            places = batch.offsets.tolist()
            for begin, end in pairwise(places):
                assert bytes(batch.data[begin:end].tolist()) == records[position]
                position += 1
        assert position == N


def test_ragged_records_become_jagged_tensors(records: Records) -> None:
    raw = next(iter(loader(records[8:], 3, collate="jagged")))
    assert raw.is_nested
    assert [bytes(row.tolist()) for row in raw.unbind()] == [b"8", b"9", b"10"]
    decoded = next(iter(loader(records[8:], 3, collate="jagged", decode=tensor)))
    assert [row.tolist() for row in decoded.unbind()] == [[8, 8, 8], [9], [10, 10]]


def test_jagged_tensors_keep_the_type_of_the_samples(records: Records) -> None:
    import numpy as np
    import torch

    def some(record: bytes) -> list[int]:
        return [int(record)] * (int(record) % 3)

    for decode, dtype in (
        (some, torch.int64),  # PyTorch takes an empty list for floats
        (lambda record: np.array(some(record), dtype=np.int16), torch.int16),
        (lambda record: [[x, x] for x in some(record)], torch.int64),
        (lambda record: bytes(some(record)), torch.uint8),
    ):
        batch = next(iter(loader(records, 6, collate="jagged", decode=decode)))
        assert batch.dtype == dtype
        assert [len(row) for row in batch.unbind()] == [0, 1, 2, 0, 1, 2]
    wrong: list[tuple[Any, str]] = [(int, "a single number"), (bytes.decode, "str"), (lambda _: {}, "dict")]
    for refused, found in wrong:
        with pytest.raises(TypeError, match=f"lists of numbers or bytes, not {found}") as caught:
            list(loader(records, 6, collate="jagged", decode=refused))
        assert "in collate on the batch that begins with record 0 of" in caught.value.__notes__[0]


def test_samples_are_collated_as_by_a_data_loader_or_by_a_function(records: Records) -> None:
    from torch.utils.data import DataLoader

    ours, theirs = (
        next(iter(loader(records, 4, decode=pair, collate="tensors"))),
        next(iter(DataLoader(records.map(pair), batch_size=4))),
    )
    assert ours["number"].tolist() == theirs["number"].tolist() == [0, 1, 2, 3]
    assert ours["name"] == theirs["name"]
    assert list(loader(records[:100], 40, decode=int, collate=fails_to_collate)) == [780, 2380, 1790]
    assert next(iter(loader(records, 4, collate=len))) == 4


@pytest.mark.parametrize("kind", ["list", "packed"])
def test_damaged_records_are_left_out_or_replaced(tmp_path: Path, kind: str) -> None:
    data = bytearray(write_numbers(tmp_path / "whole.ffr").read_bytes())
    data[data.rindex(b"100101102") + 5] ^= 1  # record 101
    data[data.rindex(b"139140141") + 5] ^= 1  # record 140
    (tmp_path / "damaged.ffr").write_bytes(data)
    for on_error, expected in (("skip", {101: None, 140: None}), ("replace", {101: 102, 140: 141})):
        opened = anyrecord.open(tmp_path / "damaged.ffr", on_error=on_error)  # type: ignore[arg-type]
        with pytest.warns(anyrecord.DamageWarning):
            batches = list(loader(opened, 1, collate="packed") if kind == "packed" else loader(opened, 1, decode=bytes))
        got = [int(bytes(batch.data.tolist()) if kind == "packed" else batch[0]) for batch in batches]
        assert got == [x for i in range(N) if (x := expected.get(i, i)) is not None]
    with pytest.raises(anyrecord.ChecksumError, match=r"damaged.ffr .*\(record 101\)"):
        list(loader(tmp_path / "damaged.ffr", 16, decode=int))


# What is refused


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"batch_size": 0}, ValueError, "batch_size=0 is not valid"),
    ({"threads": -1}, ValueError, "threads=-1 is not valid"),
    ({"prefetch": 0}, ValueError, "prefetch=0 is not valid"),
    ({"processes": -1}, ValueError, "processes=-1 is not valid"),
    ({"decode": "int"}, TypeError, "decode= takes a function, not str"),
    ({"collate": "tensor"}, ValueError, "collate='tensor' is not valid: it must be 'tensors', 'packed', 'jagged'"),
    ({"collate": 7}, TypeError, "collate= takes 'tensors', 'packed', 'jagged' or a function, not int"),
    ({"collate": "packed", "decode": int}, ValueError, "cannot be used with decode="),
    ({"window": 4}, ValueError, "window= and block= need shuffle=True"),
    ({"tail": "none"}, ValueError, "tail='none' is not valid"),
    ({"rank": 1}, ValueError, "rank= and world= go together"),
    ({"context": "fork"}, ValueError, "context= needs processes="),
    ({"processes": 1}, ValueError, "processes= needs decode= or a collate= function"),
    ({"processes": 1, "threads": 1, "decode": int}, ValueError, "threads= and processes= exclude each other"),
    ({"processes": 1, "context": "magic", "decode": int}, ValueError, "context='magic' is not valid"),
    ({"processes": 1, "decode": lambda record: record}, TypeError, "functions that can be pickled"),
    ({"device": "mps"}, ValueError, "device='mps' is not valid: it must be 'cuda', 'cuda:N' or 'cpu'"),
    ({"colour": "red"}, TypeError, "unexpected keyword argument 'colour'"),
]


@pytest.mark.parametrize(("keywords", "error", "message"), WRONG)
def test_wrong_arguments_are_refused_at_once(
    records: Records, keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        loader(records, **{"batch_size": 4, **keywords})


def test_a_dataset_is_refused_with_what_to_pass_instead(path: Path) -> None:
    from anyrecord.torch import Dataset

    with pytest.raises(TypeError, match=r"Loader takes records or a path, not a dataset \(Dataset\); pass it the path"):
        loader(Dataset(path), 4)


def test_a_state_of_other_data_is_refused(records: Records) -> None:
    batches = loader(records, 16, shuffle=True, seed=1)
    for other in (loader(records[1:], 16, shuffle=True, seed=1), loader(records, 16, shuffle=True, seed=2)):
        with pytest.raises(ValueError, match="the state is from another"):
            batches.load_state_dict(other.state_dict())
