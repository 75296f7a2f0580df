"""Several sequences as one: `concat` puts one after the other, `mix` interleaves them by weight."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, lcm
from numbers import Rational
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeVar, overload

from anyrecord import _core
from anyrecord._dataclasses import replace
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number, whole_number
from anyrecord._options import OpenOptions
from anyrecord._records import Records

__all__ = ["concat", "mix"]

T = TypeVar("T")


@overload
def concat(sources: Iterable[Records]) -> Records: ...
@overload
def concat(sources: Iterable[MappedRecords[T]]) -> MappedRecords[T]: ...
def concat(sources: Iterable[Records] | Iterable[MappedRecords[T]]) -> Records | MappedRecords[T]:
    """Joins sequences, one after the other, into one.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> records = anyrecord.open("doc.ffr")
    >>> list(anyrecord.concat([records[1:], records]))
    [b'two', b'three', b'one', b'two', b'three']

    A batch from the result is still one batched read. The result can be pickled.
    """
    records, functions = _same_kind(list(sources), "concat")
    parts = [part._source for part in records]
    return _mapped(type(records[0])(_core.concat(parts, _options_of(parts))), functions)


@overload
def mix(
    sources: Iterable[Records],
    weights: Iterable[SupportsFloat],
    *,
    seed: SupportsIndex = 0,
    until: Literal["first", "all"] = "first",
    length: SupportsIndex | None = None,
) -> Records: ...
@overload
def mix(
    sources: Iterable[MappedRecords[T]],
    weights: Iterable[SupportsFloat],
    *,
    seed: SupportsIndex = 0,
    until: Literal["first", "all"] = "first",
    length: SupportsIndex | None = None,
) -> MappedRecords[T]: ...
def mix(
    sources: Iterable[Records] | Iterable[MappedRecords[T]],
    weights: Iterable[SupportsFloat],
    *,
    seed: SupportsIndex = 0,
    until: Literal["first", "all"] = "first",
    length: SupportsIndex | None = None,
) -> Records | MappedRecords[T]:
    """Interleaves several sequences by weight. The shares are exact at any position.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(1000))
    >>> records = anyrecord.open("doc.ffr")
    >>> small, large = records[:100], records[100:]
    >>> mixed = anyrecord.mix([small, large], [0.25, 0.75], seed=1)
    >>> len(mixed), sum(int(record) < 100 for record in mixed[:40])
    (403, 10)

    Each source keeps its own order; shuffle a source first if you want its records shuffled. `seed` decides at which
    positions the records of a source come. The result has random access and takes no memory, like any view.

    - `until="first"`: the mixture ends before the first source would run out. No record comes twice.
    - `until="all"`: the mixture ends when every source was delivered completely. Sources that run out
      earlier begin again, in the same order.
    - `length`: the mixture has that many records. Sources begin again as needed.
    """
    if until not in ("first", "all"):
        raise ValueError(f"until={until!r} is not valid: it must be 'first' or 'all'")
    seed = whole_number("seed", seed)
    length = optional_number("length", length, 0, MOST_COUNT)
    records, functions = _same_kind(list(sources), "mix")
    whole = _whole_weights(list(weights))
    if len(whole) != len(records):
        need = "1 source needs 1 weight" if len(records) == 1 else f"{len(records)} sources need {len(records)} weights"
        raise ValueError(f"{need}, not {len(whole)}")
    parts = [part._source for part in records]
    mixed = _core.mix(parts, _options_of(parts), whole, seed, until, length)
    return _mapped(type(records[0])(mixed), functions)


def _same_kind(sources: list[Any], verb: str) -> tuple[list[Records], tuple[Any, ...]]:
    """The records of each source, and the `map` functions, which must be the same on all of them."""
    if not sources:
        raise ValueError(f"{verb} got no sources; pass at least one")
    for source in sources:
        if not isinstance(source, Records | MappedRecords):
            raise TypeError(f"{verb} takes Records or MappedRecords, not {type(source).__name__}")
    functions = [source._functions if isinstance(source, MappedRecords) else () for source in sources]
    if any(mapped != functions[0] for mapped in functions):
        raise ValueError(f"the sources are mapped with different functions; {verb} the records first, then call map")
    records = [source._records if isinstance(source, MappedRecords) else source for source in sources]
    # The files are known already, so it does not matter where their paths began.
    options = [replace(part._source.options, format=None, root=None) for part in records]
    if any(other != options[0] for other in options):
        raise ValueError(f"the sources were opened with different options; open all of them with the same to {verb}")
    return records, functions[0]


def _options_of(sources: list[_core.Source]) -> OpenOptions:
    """The options of sources that were opened with the same. Their stores count by themselves and are added up."""
    options = sources[0].options
    if options.store is None:
        return options
    stores = [part.options.store for part in sources if part.options.store is not None]
    return replace(options, store=options.store.together(stores))


def _mapped(records: Records, functions: tuple[Any, ...]) -> Records | MappedRecords[Any]:
    return MappedRecords(records, *functions) if functions else records


def _whole_weights(weights: list[SupportsFloat]) -> list[int]:
    """Weights as small whole numbers in the same proportions. 0.1 is one tenth, not the nearest binary fraction."""
    from fractions import Fraction  # imported here because the import is slow and few programs call `mix`

    try:
        exact = [Fraction(w) if isinstance(w, Rational) else Fraction(repr(float(w))) for w in weights]
    except (TypeError, ValueError):
        raise ValueError(f"weights={weights!r} is not valid: all weights must be positive numbers") from None
    if any(weight <= 0 for weight in exact):
        raise ValueError(
            f"weights={weights!r} is not valid: all weights must be positive numbers; "
            "to get no records of a source, leave the source out"
        )
    common = lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * common) for weight in exact]
    divisor = gcd(*whole)
    whole = [weight // divisor for weight in whole]
    if sum(whole) >= 1 << 63:
        raise ValueError(f"weights={weights!r} is not valid: the weights differ too much or have too many digits")
    return whole
