"""States that no iterator or sampler saved: each is refused with ValueError or TypeError, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord.sampling import ElasticLoader, ElasticSampler

from order.conftest import N


class Raises:
    """A value that looks like a number or a mapping, and is neither."""

    def __index__(self) -> int:
        raise TypeError("no number")

    def __getitem__(self, key: object) -> object:
        raise KeyError(key)


def tower(levels: int) -> list[Any]:
    """Lists in each other, deeper than Python's stack."""
    whole: list[Any] = []
    for _ in range(levels):
        whole = [whole]
    return whole


VALUES: list[Any] = [
    *(-1, 0, 1, N, N + 1, 2**53, 2**63, 2**64, -(2**63), 10**5000, -(10**5000)),
    *(None, True, False, 0.0, 1.0, 1.5, float("nan"), float("inf"), 1j, "", "1", "position", b"", b"1"),
    *(np.int64(1), np.int64(-1), np.uint64(2**64 - 1), np.float64(1), np.bool_(True), np.array(1), np.array([1])),
    *(np.array(True), np.array([True]), np.array([]), np.array(["1"]), np.array([None]), np.datetime64(1, "s")),
    *(np.zeros(2, [("position", "i8")]), np.zeros((), [("length", "i8")]), memoryview(b"1")),
    *(Raises(), tower(5000), object(), int, list, ..., range(3), {1}, [], {}),
]


def targets(view: anyrecord.Records) -> Iterator[tuple[dict[str, int], Callable[[Any], object], Callable[[], object]]]:
    """Of each that has a state: a right state, the call that loads one, and the call that returns the current one."""
    for iterator in (iter(view), iter(view.map(int)), iter(view.batches(3))):
        yield iterator.state_dict(), iterator.load_state_dict, iterator.state_dict
    state = iter(view).state_dict()
    yield state, view.resume, lambda: None
    yield state, view.map(int).resume, lambda: None
    yield state, lambda state: view.batches(3, resume={} if state is None else state), lambda: None
    for data in (view, 10):
        sampler = ElasticSampler(data, seed=3, rank=0, world=2)
        yield sampler.state_dict(), sampler.load_state_dict, sampler.state_dict
        loader: ElasticLoader[Any] = ElasticLoader([], sampler=sampler, batch_size=2)
        yield loader.state_dict(), loader.load_state_dict, loader.state_dict


def outcome(load: Callable[[Any], object], state: object) -> str:
    """The message with which a state is refused, or nothing. Every other exception fails the test."""
    try:
        load(state)
    except (ValueError, TypeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_wrong_value_in_a_state_is_refused_and_changes_nothing(numbers: anyrecord.Records, number: int) -> None:
    value = VALUES[number]
    for right, load, current in targets(numbers.shuffle(1)):
        for key in right:
            load(right)
            message = outcome(load, {**right, key: value})
            if message:
                assert "state" in message or "epoch" in message
                assert current() in (right, None)
            else:  # another position, or an equal number of another type
                assert not isinstance(value, bool | np.bool_ | float)
                assert value == right[key] or key in ("position", "epoch")


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_what_is_no_state_at_all_is_refused(numbers: anyrecord.Records, number: int) -> None:
    for right, load, current in targets(numbers):
        assert "not the state of" in outcome(load, VALUES[number])
        assert "not the state of" in outcome(load, [VALUES[number]])
        assert "not the state of" in outcome(load, {"position": VALUES[number]})
        for missing in right:
            assert "not the state of" in outcome(load, {key: right[key] for key in right if key != missing})
        assert current() in (right, None)
