"""Fixtures of the hostile suite."""

from __future__ import annotations

import pytest
from conformance.formats import CASES, Case


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """Each format in each of its ways."""
    found: Case = request.param
    return found
