"""What every suite shares."""

from __future__ import annotations

import pytest
from conformance.formats import FORMATS


@pytest.fixture(params=[format.suffix for format in FORMATS])
def suffix(request: pytest.FixtureRequest) -> str:
    """Each format, by the suffix that chooses it: what is promised of files is promised of all formats."""
    found: str = request.param
    return found
