"""Iterators say where they are, and another one continues there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Records
from hypothesis import given, settings
from hypothesis import strategies as st

VIEWS: dict[str, Callable[[Records], Records]] = {
    "plain": lambda records: records,
    "shuffled": lambda records: records.shuffle(42, 3),
    "shard": lambda records: records.shuffle(42, 3).shard(1, of=3),
    "blocks": lambda records: records.shuffle(42, 3, window=4, block=16)[7:],
    "mixed": lambda records: anyrecord.mix([records[:300].shuffle(1), records[300:]], [1, 2], seed=3),
}


@pytest.mark.parametrize("name", VIEWS)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_before_and_after_are_the_whole(numbers_path: Path, name: str, data: st.DataObject) -> None:
    view = VIEWS[name](anyrecord.open(numbers_path))
    expected = list(view)
    got, it, left = [], iter(view), len(expected)
    # Interrupted several times, each time in another process as far as anybody can tell.
    for _ in range(data.draw(st.integers(0, 4))):
        steps = data.draw(st.integers(0, left))
        got += [next(it) for _ in range(steps)]
        left -= steps
        state = json.loads(json.dumps(it.state_dict()))
        assert state["position"] == len(got)
        it = VIEWS[name](anyrecord.open(numbers_path)).resume(state)
        assert it.__length_hint__() == left
    assert got + list(it) == expected


@settings(deadline=None, max_examples=40)
@given(data=st.data(), drop_last=st.booleans())
def test_batches_of_any_size_continue_batches_of_another(
    numbers_path: Path, data: st.DataObject, drop_last: bool
) -> None:
    view = anyrecord.open(numbers_path).shuffle(1)
    expected = list(view)
    size, next_size = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300))
    batches = iter(view.batches(size))
    got: list[bytes] = []
    for _ in range(data.draw(st.integers(0, len(view) // size))):
        got += next(batches)
    state = batches.state_dict()
    assert state["position"] == len(got)
    left = view.batches(next_size, drop_last=drop_last, resume=state)
    after = list(left)
    assert len(left) == len(after)
    assert list(left) == after, "any number of times"
    assert all(len(batch) == next_size for batch in after[:-1])
    rest = [record for batch in after for record in batch]
    whole = expected[len(got) :]
    assert rest == (whole[: len(whole) // next_size * next_size] if drop_last else whole)
    # The same state is good for a plain iterator, and the other way round.
    assert list(view.resume(state)) == whole
    assert next(iter(view.batches(5, resume=view.resume(state).state_dict())), []) == whole[:5]


def test_the_state_is_the_position_whatever_was_read_ahead(numbers: Records) -> None:
    view = numbers.shuffle(3)
    it = iter(view)
    for position in range(500):
        assert it.state_dict()["position"] == position
        next(it)
    assert set(it.state_dict()) == {"position", "length", "fingerprint"}
    assert all(isinstance(value, int) and value < 2**53 for value in it.state_dict().values())
    rest = list(it)
    assert it.state_dict()["position"] == len(view)
    assert list(view.resume(it.state_dict())) == []
    assert len(rest) == 500


def test_mapped_records_and_their_batches_resume(numbers: Records) -> None:
    mapped = numbers.shuffle(3).map(int)
    expected = list(mapped)
    it = iter(mapped)
    got = [next(it) for _ in range(10)]
    assert got + list(mapped.resume(it.state_dict())) == expected
    batches = iter(mapped.batches(16))
    got = next(batches) + next(batches)
    assert got + [x for batch in mapped.batches(64, resume=batches.state_dict()) for x in batch] == expected
    assert got + list(mapped.resume(batches.state_dict())) == expected


def test_the_state_of_another_view_is_refused(numbers: Records, numbers_path: Path, tmp_path: Path) -> None:
    view = numbers.shuffle(42, 3).shard(0, of=2)
    state = iter(view).state_dict()
    others = [
        numbers.shuffle(42, 3).shard(1, of=2),
        numbers.shuffle(42, 4).shard(0, of=2),
        numbers.shuffle(43, 3).shard(0, of=2),
        numbers.shuffle(42, 3)[:500],
        numbers[:500],
    ]
    for other in others:
        with pytest.raises(ValueError, match="another view"):
            other.resume(state)
        with pytest.raises(ValueError, match="another view"):
            other.batches(2, resume=state)
        for iterator in (iter(other), iter(other.map(int)), iter(other.batches(2))):
            with pytest.raises(ValueError, match="another view"):
                iterator.load_state_dict(state)
            assert iterator.state_dict()["position"] == 0
    with pytest.raises(ValueError, match="that view has 500 records, this one has 1000"):
        numbers.resume(state)
    # Another file with as many records is another view; the same file in another folder is not.
    copy, moved = tmp_path / "other.ffr", tmp_path / numbers_path.name
    copy.write_bytes(numbers_path.read_bytes())
    moved.write_bytes(numbers_path.read_bytes())
    with pytest.raises(ValueError, match="another view"):
        anyrecord.open(copy).shuffle(42, 3).shard(0, of=2).resume(state)
    assert list(anyrecord.open(moved).shuffle(42, 3).shard(0, of=2).resume(state)) == list(view)


@pytest.mark.parametrize("state", [{}, None, 5, [], {"position": 1}, "position"])
def test_what_is_no_state_is_refused(numbers: Records, state: Any) -> None:
    with pytest.raises(ValueError, match="not the state of an iterator"):
        numbers.resume(state)
    for iterator in (iter(numbers), iter(numbers.map(int)), iter(numbers.batches(2))):
        with pytest.raises(ValueError, match="not the state of an iterator"):
            iterator.load_state_dict(state)


@pytest.mark.parametrize("position", [-1, 1001, 1.5, "1"])
def test_a_position_outside_is_refused(numbers: Records, position: Any) -> None:
    state = {**iter(numbers).state_dict(), "position": position}
    with pytest.raises(ValueError, match="not the state of an iterator"):
        numbers.resume(state)


@settings(deadline=None, max_examples=40)
@given(data=st.data(), drop_last=st.booleans())
def test_an_iterator_goes_to_any_state_and_on_from_there(
    numbers_path: Path, data: st.DataObject, drop_last: bool
) -> None:
    view = anyrecord.open(numbers_path).shuffle(1)[:300]
    expected = list(view)
    size, positions = data.draw(st.integers(1, 40)), st.integers(0, len(view))
    plain, mapped, batches = iter(view), iter(view.map(int)), iter(view.batches(size, drop_last=drop_last))
    for position in data.draw(st.lists(positions, min_size=1, max_size=4)):
        state = {**plain.state_dict(), "position": position}
        for iterator in (plain, mapped, batches):
            iterator.load_state_dict(state)
            assert iterator.state_dict() == state
        rest = expected[position:]
        steps = data.draw(st.integers(0, len(rest)))
        assert [next(plain) for _ in range(steps)] == rest[:steps]
        assert [next(mapped) for _ in range(steps)] == [int(record) for record in rest[:steps]]
        assert plain.state_dict() == mapped.state_dict() == {**state, "position": position + steps}
        assert plain.__length_hint__() == mapped.__length_hint__() == len(rest) - steps
        in_batches = [rest[at : at + size] for at in range(0, len(rest), size)]
        if drop_last and in_batches and len(in_batches[-1]) < size:
            in_batches.pop()
        assert batches.__length_hint__() == len(in_batches)
        assert list(batches) == in_batches


def test_a_batch_that_cannot_be_read_is_not_behind_us(numbers_path: Path) -> None:
    damaged = bytearray(numbers_path.read_bytes())
    records = anyrecord.open(bytes(damaged))
    at = damaged.index(b"499500501")
    damaged[at] ^= 1
    records = anyrecord.open(bytes(damaged))
    batches = iter(records.batches(100))
    for _ in range(4):
        next(batches)
    for _ in range(2):
        with pytest.raises(anyrecord.ChecksumError):
            next(batches)
        assert batches.state_dict()["position"] == 400


class Interrupted:
    """A file that is interrupted from the keyboard once, in the middle of a read."""

    def __init__(self, path: Path) -> None:
        self.file, self.armed = path.open("rb"), False
        self.seek, self.tell, self.name = self.file.seek, self.file.tell, "interrupted"

    def seekable(self) -> bool:
        return True

    def _maybe(self) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def read(self, size: int = -1) -> bytes:
        self._maybe()
        return self.file.read(size)

    def readinto(self, buffer: Any) -> int:
        self._maybe()
        return self.file.readinto(buffer)


def test_an_interrupt_loses_nothing(numbers_path: Path) -> None:
    file = Interrupted(numbers_path)
    it = iter(anyrecord.open(file))  # type: ignore[arg-type]
    got = [next(it) for _ in range(8)]
    file.armed = True
    with pytest.raises(KeyboardInterrupt):
        got.extend(it)  # what was read ahead comes first
    assert it.state_dict()["position"] == len(got) < 1000
    got += list(it)
    assert [int(record) for record in got] == list(range(1000))
    file.file.close()
