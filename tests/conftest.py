"""What every suite shares."""

from __future__ import annotations

import pytest
from conformance.formats import FORMATS
from hypothesis import settings

# No test depends on the clock: on a busy machine any example may take longer than the usual 200 ms.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(params=[format.suffix for format in FORMATS])
def suffix(request: pytest.FixtureRequest) -> str:
    """Each format, by the suffix that chooses it: what is promised of files is promised of all formats."""
    found: str = request.param
    return found
