"""`dataclass`, `field` and `replace`, as in `dataclasses`, for the classes of this package.

Importing `dataclasses` and making our classes with it would be a third of the time of `import anyrecord`. These do only
what we use: frozen classes with slots. `dataclasses.asdict`, `fields` and `replace` work with them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "field", "replace"]

T = TypeVar("T")


class _Field:
    def __init__(self, default: object, repr: bool = True, compare: bool = True) -> None:
        self.default, self.repr, self.compare = default, repr, compare


def _field(*, default: object, repr: bool = True, compare: bool = True) -> Any:
    """A field with a default that may be left out of the `repr`, and of comparisons."""
    return _Field(default, repr, compare)


def _replace(value: T, /, **changes: object) -> T:
    """A copy of `value` with other values in some fields."""
    return type(value)(**{name: getattr(value, name) for name in _names(type(value))} | changes)


def _dataclass(*, frozen: bool, slots: bool) -> Callable[[type[T]], type[T]]:
    """Makes a class whose objects hold the fields that it declares, and cannot be changed."""
    if not (frozen and slots):
        raise TypeError("only frozen classes with slots can be made here")
    return _make


def _make(declared: type[T]) -> type[T]:
    namespace = dict(vars(declared))
    names = tuple(declared.__annotations__)
    fields = {name: _as_field(namespace.pop(name)) for name in names if name in namespace}
    for of_a_class_without_slots in ("__dict__", "__weakref__"):
        namespace.pop(of_a_class_without_slots, None)
    shown = tuple(name for name in names if name not in fields or fields[name].repr)
    compared = tuple(name for name in names if name not in fields or fields[name].compare)

    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __eq__(self: object, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    def __hash__(self: object) -> int:
        return hash(tuple(getattr(self, name) for name in compared))

    for function in (__repr__, __eq__, __hash__, __setattr__, __delattr__, __reduce__, __replace__):
        namespace.setdefault(function.__name__, function)
    namespace |= {"__slots__": names, "__match_args__": names, "_fields_with_defaults": fields}
    namespace |= {name: _Asked() for name in _OF_DATACLASSES}
    namespace["__init__"] = _Init(names, fields)
    return type(declared.__name__, declared.__bases__, namespace)


def _as_field(default: object) -> _Field:
    return default if isinstance(default, _Field) else _Field(default)


class _Init:
    """`__init__`, with the fields as parameters. It is compiled at its first use, because compiling is slow."""

    def __init__(self, names: tuple[str, ...], fields: dict[str, _Field]) -> None:
        self._names, self._fields = names, fields

    def __set_name__(self, made: type, name: str) -> None:
        self._made = made

    def __get__(self, value: object, kind: type) -> Any:
        init = self._made.__init__ = self._compiled(self._made)  # type: ignore[misc]
        return init if value is None else init.__get__(value)

    def _compiled(self, made: type) -> Callable[..., None]:
        names, fields = self._names, self._fields
        parameters = ", ".join(f"{name}=_fields[{name!r}].default" if name in fields else name for name in names)
        # A slot can be set, unlike an attribute of a frozen object.
        slots = {f"_set_{name}": vars(made)[name].__set__ for name in names}
        lines = [f"_set_{name}(self, {name})" for name in names]
        if "__post_init__" in vars(made):
            lines.append("self.__post_init__()")
        body = "\n  ".join(lines)
        text = f"def make(_fields, {', '.join(slots)}):\n def __init__(self, {parameters}):\n  {body}\n return __init__"
        functions: dict[str, Any] = {}
        exec(text, vars(sys.modules[made.__module__]), functions)  # only names of our own fields are in it
        init: Callable[..., None] = functions["make"](fields, **slots)
        init.__annotations__ = {**made.__annotations__, "return": None}
        init.__qualname__ = f"{made.__qualname__}.__init__"
        return init


def _names(kind: type) -> tuple[str, ...]:
    return kind.__match_args__  # type: ignore[attr-defined,no-any-return]


def __setattr__(self: object, name: str, value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change {name!r} of a {type(self).__name__}")


def __delattr__(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete {name!r} of a {type(self).__name__}")


def __reduce__(self: object) -> tuple[type, tuple[object, ...]]:
    return type(self), tuple(getattr(self, name) for name in _names(type(self)))


def __replace__(self: T, /, **changes: object) -> T:
    return _replace(self, **changes)


_OF_DATACLASSES = ("__dataclass_fields__", "__dataclass_params__")


class _Asked:
    """What `dataclasses` looks for in its classes. It is made when it is asked for: then `dataclasses` is imported."""

    def __set_name__(self, made: type, name: str) -> None:
        self._made, self._name = made, name

    def __get__(self, value: object, kind: type) -> object:
        import dataclasses

        made = self._made
        with_defaults: dict[str, _Field] = vars(made)["_fields_with_defaults"]
        fields = [
            (name, made.__annotations__[name], dataclasses.field(**vars(with_defaults[name])))
            if name in with_defaults
            else (name, made.__annotations__[name])
            for name in _names(made)
        ]
        model = dataclasses.make_dataclass(made.__name__, fields, frozen=True)
        for name in _OF_DATACLASSES:
            setattr(made, name, getattr(model, name))
        return getattr(model, self._name)


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    dataclass, field, replace = _dataclass, _field, _replace
