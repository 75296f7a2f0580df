"""Whole numbers as arguments: every option of every public function takes the same ones and refuses the same ones."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord import Limits, Permutation, Records
from anyrecord.sampling import ElasticLoader, ElasticSampler
from turns import turn

COUNT = 2**63 - 1
NUMBER = 2**64 - 1
INT32 = 2**31 - 1


class Index:
    """A number that is one by its `__index__` alone."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


@dataclass(frozen=True)
class Option:
    """One numeric argument of one public function."""

    function: str
    name: str
    use: Callable[[Any], object]
    good: int
    """A number that is accepted."""
    least: int
    most: int | None
    optional: bool = False
    """Whether None means that it is left out."""

    def __str__(self) -> str:
        return f"{self.function}-{self.name}"


def records() -> Records:
    with anyrecord.create("numbers.ffr", overwrite=True, durable=False) as out:
        out.write_many(b"%d" % number for number in range(4))
    return anyrecord.open("numbers.ffr")


def created(suffix: str, **keywords: Any) -> None:
    with anyrecord.create(f"new{suffix}", overwrite=True, durable=False, **keywords) as out:
        out.write_many([b"a", b"b"])


def converted(suffix: str, **keywords: Any) -> None:
    anyrecord.convert(records().paths, f"new{suffix}", overwrite=True, durable=False, **keywords)


class Loader(list[int]):
    """As much of a data loader as an `ElasticLoader` looks at."""

    def __init__(self) -> None:
        self.sampler = ElasticSampler(4)


def written(function: str, make: Callable[..., None]) -> list[Option]:
    """What `create` and `convert` share."""

    def option(suffix: str, name: str, good: int, least: int, most: int, **more: Any) -> Option:
        return Option(f"{function}{suffix}", name, lambda v: make(suffix, **{name: v}, **more), good, least, most, True)

    return [
        option(".ffr", "shards", 2, 1, COUNT),
        option(".ffr", "shard_bytes", 2, 1, COUNT),
        option(".ffr", "shard_records", 2, 1, COUNT),
        option(".ffr", "threads", 0, 0, 1024),
        option(".array_record", "level", 3, -131072, 22),
        option(".array_record", "level", 3, 0, 11, codec="brotli"),
        option(".array_record", "window_log", 20, 10, 31),
        option(".array_record", "group_size", 2, 1, INT32),
        option(".array_record", "transpose_bucket_size", 2, 1, NUMBER, transpose=True),
        option(".recordio", "chunk_bytes", 100, 1, 2**31),
        option(".recordio", "level", 3, 0, 9, codec="gzip"),
        option(".tfrecord", "level", 3, 0, 9, codec="zlib"),
    ]


def shuffled(kind: Callable[[Records], Any], function: str) -> list[Option]:
    """What `Records` and `MappedRecords` share."""
    return [
        Option(function, "seed", lambda v: list(kind(records()).shuffle(v)), 3, 0, NUMBER),
        Option(function, "epoch", lambda v: list(kind(records()).shuffle(1, v)), 3, 0, NUMBER),
        Option(function, "window", lambda v: kind(records()).shuffle(1, window=v, block=2), 2, 1, NUMBER, True),
        Option(function, "block", lambda v: kind(records()).shuffle(1, window=2, block=v), 2, 1, NUMBER, True),
        Option(function, "rank", lambda v: list(kind(records()).shard(v, of=3)), 2, 0, 2),
        Option(function, "of", lambda v: list(kind(records()).shard(0, of=v)), 3, 1, NUMBER),
        Option(function, "size", lambda v: list(kind(records()).batches(v)), 3, 1, None),
    ]


def sampler(**keywords: Any) -> list[int]:
    return list(ElasticSampler(keywords.pop("data", 8), **keywords))


def order(**keywords: Any) -> Permutation:
    return Permutation(keywords.pop("length", 8), keywords.pop("seed", 1), **keywords)


OPTIONS = [
    Option("Limits", "decoded_chunk_bytes", lambda v: Limits(decoded_chunk_bytes=v), 9, 1, COUNT),
    Option("Limits", "decoded_bytes", lambda v: Limits(decoded_bytes=v), 9, 1, COUNT),
    Option("Limits", "spool_bytes", lambda v: Limits(spool_bytes=v), 9, 1, COUNT),
    Option("Limits", "open_files", lambda v: Limits(open_files=v), 9, 1, 2**20),
    Option("open", "cache_bytes", lambda v: anyrecord.open(records().paths, cache_bytes=v), 9, 0, COUNT),
    Option("open", "threads", lambda v: anyrecord.open(records().paths, threads=v), 0, 0, 1024, True),
    Option("open", "expected_records", lambda v: anyrecord.open("numbers.ffr", expected_records=v), 4, 0, COUNT, True),
    *shuffled(lambda them: them, "Records"),
    *shuffled(lambda them: them.map(len), "MappedRecords"),
    Option("mix", "seed", lambda v: anyrecord.mix([records()], [1], seed=v), 3, 0, NUMBER),
    Option("mix", "length", lambda v: anyrecord.mix([records()], [1], length=v), 3, 0, COUNT, True),
    Option("Permutation", "length", lambda v: order(length=v), 3, 0, 2**63),
    Option("Permutation", "seed", lambda v: order(seed=v), 3, 0, NUMBER),
    Option("Permutation", "epoch", lambda v: order(epoch=v), 3, 0, NUMBER, True),
    Option("Permutation", "window", lambda v: order(window=v, block=2), 3, 1, NUMBER, True),
    Option("Permutation", "block", lambda v: order(window=2, block=v), 3, 1, NUMBER, True),
    Option("Permutation", "cuts", lambda v: order(window=2, block=2, cuts=[v]), 3, 1, NUMBER),
    Option("ElasticSampler", "data", lambda v: sampler(data=v), 3, 0, COUNT),
    Option("ElasticSampler", "seed", lambda v: sampler(seed=v), 3, 0, NUMBER),
    Option("ElasticSampler", "window", lambda v: sampler(window=v, block=2), 3, 1, NUMBER, True),
    Option("ElasticSampler", "block", lambda v: sampler(window=2, block=v), 3, 1, NUMBER, True),
    Option("ElasticSampler", "rank", lambda v: sampler(rank=v, world=3), 2, 0, 2, True),
    Option("ElasticSampler", "world", lambda v: sampler(rank=0, world=v), 2, 1, NUMBER, True),
    Option("ElasticSampler.set_epoch", "epoch", lambda v: ElasticSampler(8).set_epoch(v), 3, 0, NUMBER),
    Option("ElasticLoader", "batch_size", lambda v: ElasticLoader(Loader(), batch_size=v), 3, 1, NUMBER, True),
    Option("create", "num_records", lambda v: created(".ffr", num_records=v), 2, 0, COUNT, True),
    *written("create", created),
    *written("convert", converted),
]

GOES_WITH = {"window", "block", "rank", "world"}
"""Left out alone, these are an error of another kind."""


@pytest.fixture(autouse=True)
def _numbers() -> None:
    records()


KINDS: list[Callable[[int], Any]] = [int, Index, np.int8, np.uint8, np.int32, np.uint64, np.int64, np.array]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_everything_with_an_index_is_accepted(option: Option) -> None:
    for kind in KINDS:
        with turn(kind):
            option.use(kind(option.good))


NO_NUMBERS: list[Any] = [True, False, np.True_, np.array(True), 1.5, 2.0, "4", b"4", None, [4], object()]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_anything_else_is_a_type_error_that_says_what_is_valid(option: Option) -> None:
    for wrong in NO_NUMBERS:
        with turn(wrong):
            if wrong is None and option.optional:
                continue
            if option.function == "ElasticSampler" and option.name == "data" and hasattr(wrong, "__len__"):
                continue  # the records themselves
            with pytest.raises(TypeError) as caught:
                option.use(wrong)
            message = str(caught.value)
            assert message.startswith(f"{option.name}={wrong!r} is not valid: it must be a whole number")
            assert message.endswith(f", not {type(wrong).__name__}")


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_a_number_outside_the_range_is_a_value_error_that_states_the_range(option: Option) -> None:
    above = () if option.most is None else (option.most + 1, 10**30)
    for wrong in (option.least - 1, -(10**30), *above):
        with pytest.raises(ValueError) as caught:
            option.use(wrong)
        said = f"{option.name}={wrong} is not valid: it must be a whole number from {option.least} "
        assert str(caught.value).startswith(said)
        rest = str(caught.value).removeprefix(said)
        assert rest == "up" if option.most is None else eval(rest.removeprefix("to ")) == option.most


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.optional], ids=str)
def test_none_is_as_good_as_nothing(option: Option) -> None:
    if option.name not in GOES_WITH:
        option.use(None)


def test_a_number_without_a_text_of_its_own_is_refused_all_the_same() -> None:
    with pytest.raises(ValueError, match=r"threads=<int> is not valid: it must be a whole number from 0 to 1024"):
        anyrecord.open(b"", threads=10**5000)


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_no_threads_means_the_calling_one_everywhere(threads: int) -> None:
    expected = [b"%d" % number * 100 for number in range(20_000)]
    memory = io.BytesIO()
    with anyrecord.create(memory, format="array_record", threads=threads, durable=False) as out:
        out.write_many(expected)
    with anyrecord.open(memory, threads=threads) as read:
        assert read[range(len(read))] == expected
    with open("source.array_record", "wb") as file:
        file.write(memory.getvalue())
    assert anyrecord.convert("source.array_record", "target.ffr", threads=threads, durable=False).records == 20_000


def test_a_position_of_a_state_may_be_any_integer() -> None:
    read = records()
    iterator = iter(read)
    next(iterator)
    state: Any = {key: np.uint64(value) for key, value in iterator.state_dict().items()}
    assert list(read.resume(state)) == [b"1", b"2", b"3"]
    assert [len(batch) for batch in read.batches(2, resume=state)] == [2, 1]
    taken = ElasticSampler(8, rank=0, world=1)
    pulled = iter(taken)
    first = next(pulled)
    again = ElasticSampler(8, rank=0, world=1)
    numbers: Any = {key: np.uint64(value) for key, value in taken.state_dict().items()}
    again.load_state_dict(numbers)
    assert sorted([first, *again]) == list(range(8))
