"""The classes that hold values behave as those of `dataclasses`, which takes too long to import."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from typing import Any

import anyrecord
import pytest
from anyrecord import _dataclasses as ours


@ours.dataclass(frozen=True, slots=True)
class Ours:
    """Some fields."""

    number: int
    text: str = "a"
    secret: str | None = ours.field(default=None, repr=False)
    note: int = ours.field(default=0, compare=False)

    @property
    def double(self) -> int:
        return 2 * self.number


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """Some fields."""

    number: int
    text: str = "a"
    secret: str | None = dataclasses.field(default=None, repr=False)
    note: int = dataclasses.field(default=0, compare=False)

    @property
    def double(self) -> int:
        return 2 * self.number


VALUES: list[dict[str, Any]] = [
    {"number": 1},
    {"number": 1, "note": 7},
    {"number": 1, "secret": "key"},
    {"number": 1, "text": "b"},
    {"number": 2},
]


@pytest.mark.parametrize("values", VALUES)
def test_a_value_is_shown_and_taken_apart_alike(values: dict[str, Any]) -> None:
    ours_, theirs = Ours(**values), Theirs(**values)
    assert repr(ours_) == repr(theirs).replace("Theirs", "Ours")
    assert hash(ours_) == hash(theirs)
    assert ours_.double == theirs.double
    assert dataclasses.asdict(ours_) == dataclasses.asdict(theirs)
    assert dataclasses.astuple(ours_) == dataclasses.astuple(theirs)


def test_values_are_equal_alike() -> None:
    pairs = [(one, other) for one in VALUES for other in VALUES]
    assert [Ours(**a) == Ours(**b) for a, b in pairs] == [Theirs(**a) == Theirs(**b) for a, b in pairs]
    assert Ours(1).__eq__(Theirs(1)) is NotImplemented


def test_a_class_has_the_signature_and_the_fields() -> None:
    assert inspect.signature(Ours) == inspect.signature(Theirs)
    assert typing.get_type_hints(Ours.__init__) == typing.get_type_hints(Theirs.__init__)
    assert Ours.__match_args__ == Theirs.__match_args__
    assert dataclasses.is_dataclass(Ours)
    about = [
        [(f.name, f.type, f.default, f.repr, f.compare) for f in dataclasses.fields(kind)] for kind in (Ours, Theirs)
    ]
    assert about[0] == about[1]
    assert not hasattr(Ours(1), "__dict__")


@pytest.mark.parametrize("wrong", [{}, {"number": 1, "other": 2}])
def test_names_of_fields_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="argument"):
        Ours(**wrong)


def test_a_value_cannot_be_changed() -> None:
    value = Ours(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="number"):
        value.number = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="number"):
        del value.number
    with pytest.raises(AttributeError, match="other"):
        value.other = 2  # type: ignore[attr-defined]
    assert value == Ours(1)


def test_copies_are_equal_in_all_fields() -> None:
    value = Ours(1, "b", "key", 7)
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert dataclasses.astuple(other) == (1, "b", "key", 7)


@pytest.mark.parametrize("replace", [ours.replace, dataclasses.replace])
def test_some_fields_can_be_replaced(replace: Any) -> None:
    assert dataclasses.astuple(replace(Ours(1, "b", "key", 7), text="c")) == (1, "c", "key", 7)
    with pytest.raises(TypeError, match="other"):
        replace(Ours(1), other=2)


def test_checks_run_when_a_value_is_made() -> None:
    assert anyrecord.Limits(open_files=3).open_files == 3
    with pytest.raises(ValueError, match="open_files"):
        anyrecord.Limits(open_files=0)
    with pytest.raises(ValueError, match="open_files"):
        dataclasses.replace(anyrecord.Limits(), open_files=0)


def test_other_kinds_of_classes_are_refused() -> None:
    with pytest.raises(TypeError, match="frozen"):
        ours.dataclass(frozen=False, slots=True)


def test_a_subclass_can_be_used_before_the_class() -> None:
    @ours.dataclass(frozen=True, slots=True)
    class Base:
        number: int
        text: str = "a"

    class Sub(Base):
        pass

    assert dataclasses.is_dataclass(Sub)
    value = Sub(1)
    assert (value.number, value.text) == (1, "a")
    assert ours.replace(value, number=2) == Sub(2)
    assert copy.copy(value) == value
    assert dataclasses.asdict(value) == {"number": 1, "text": "a"}
    assert Base(1) == Base(1) != value
