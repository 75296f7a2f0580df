"""The short form of every check: nothing goes wrong, and enough is tried."""

from __future__ import annotations

import pytest

from checks.__main__ import CHECKS, run
from checks.figures import Figure

NEED_FRAMEWORKS = {"loader_kills", "shard_kills"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.framework] * (name in NEED_FRAMEWORKS)) for name in CHECKS]
)
def test_the_check_finds_no_violation(name: str) -> None:
    for figure in run(name, short=True):
        assert figure.ok, f"{figure}"


def test_a_check_that_tried_too_little_is_not_sound() -> None:
    assert Figure("reads", tried=5).ok
    assert not Figure("reads", tried=5, at_least=6).ok
    assert not Figure("reads", tried=5, violations=["record 3 was wrong"]).ok
