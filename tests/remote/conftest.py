"""Fixtures of the tests that read objects. Each server is started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyrecord import Records
from conformance.formats import FIRST_CASES, Case
from conformance.storages import CUTS, RECORDS, Stored

from . import places
from .files import bytes_of
from .places import Place


def file_of(case: Case, records: tuple[bytes, ...]) -> bytes:
    """The bytes of a file."""
    return bytes_of(case.format.name, records, **case.options)


@dataclass(frozen=True)
class StoredRemotely(Stored):
    """`RECORDS` in one place, in one object or in several."""

    where: Place | None = None

    @property
    def is_of_paths(self) -> bool:
        assert self.where
        return self.where.can_pickle

    @property
    def io(self) -> dict[str, Any]:
        assert self.where
        return {"storage": self.where.storage}

    @contextmanager
    def source(self) -> Iterator[Any]:
        assert self.where
        if self.storage == "one":
            yield self.where.path(f"{self.case}/one{self.case.suffix}")
        elif self.where.can_list:
            yield self.where.path(f"{self.case}/part-[0-9]{self.case.suffix}")
        else:
            yield [self.where.path(f"{self.case}/part-{i}{self.case.suffix}") for i in range(len(CUTS) - 1)]


@pytest.fixture(scope="session")
def start_place() -> Iterator[Any]:
    """Starts a place by its name, if it does not run yet."""
    with ExitStack() as stack:
        running: dict[str, Place] = {}

        def start(name: str) -> Place:
            if name not in running:
                running[name] = stack.enter_context(places.start(name))
            return running[name]

        yield start


@pytest.fixture(params=places.PARAMS)
def place(request: pytest.FixtureRequest, start_place: Any) -> Place:
    """Each place."""
    found: Place = start_place(request.param)
    return found


@pytest.fixture(scope="session", params=places.PARAMS)
def filled(request: pytest.FixtureRequest, start_place: Any) -> Place:
    """Each place, with the records in all formats."""
    place: Place = start_place(request.param)
    for case in FIRST_CASES:
        place.put(f"{case}/one{case.suffix}", file_of(case, RECORDS))
        for i in range(len(CUTS) - 1):
            place.put(f"{case}/part-{i}{case.suffix}", file_of(case, RECORDS[CUTS[i] : CUTS[i + 1]]))
    return place


@pytest.fixture(
    scope="session", params=[(c, s) for c in FIRST_CASES for s in ("one", "many")], ids=lambda c: f"{c[0]}-{c[1]}"
)
def stored(request: pytest.FixtureRequest, filled: Place) -> Stored:
    """The records in each place, in each format, in one object and in several."""
    case, storage = request.param
    if storage == "one":
        files = [f"{case}/one{case.suffix}"]
        counts: tuple[int, ...] = (len(RECORDS),)
    else:
        files = [f"{case}/part-{i}{case.suffix}" for i in range(len(CUTS) - 1)]
        counts = tuple(CUTS[i + 1] - CUTS[i] for i in range(len(CUTS) - 1))
    shown = tuple(filled.shown(file) for file in files)
    return StoredRemotely(case, storage, shown, counts, Path(), filled)


@pytest.fixture
def records(stored: Stored) -> Iterator[Records]:
    """Those records, opened for one test."""
    with stored.opened() as records:
        yield records
