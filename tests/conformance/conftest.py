"""Fixtures of the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyrecord import Records

from conformance.formats import CASES, FIRST_CASES, Case
from conformance.storages import STORAGES, Stored, store

COMBINATIONS = [
    *((case, storage) for case in FIRST_CASES for storage in STORAGES),
    *((case, STORAGES[0]) for case in CASES if case not in FIRST_CASES),
]


@pytest.fixture(scope="session", params=COMBINATIONS, ids=lambda both: f"{both[0]}-{both[1]}")
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """The same records in every format and every storage; written once, only ever read."""
    case, storage = request.param
    return store(case, storage, tmp_path_factory.mktemp("stored"))


@pytest.fixture
def records(stored: Stored) -> Iterator[Records]:
    """Those records, opened for one test."""
    with stored.opened() as records:
        yield records


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """Each format in each of its ways, for what has nothing to do with the storage."""
    found: Case = request.param
    return found
