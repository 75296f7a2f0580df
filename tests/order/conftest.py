"""Records that say their own number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyrecord
import pytest

N = 1000


@pytest.fixture(scope="package")
def numbers_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("order") / "numbers.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"%d" % i for i in range(N))
    return path


@pytest.fixture
def numbers(numbers_path: Path) -> Iterator[anyrecord.Records]:
    with anyrecord.open(numbers_path) as records:
        yield records
