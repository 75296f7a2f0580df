"""The examples of the migration guide that need PyTorch. The others run as doctests."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from anyrecord.compat.ffrecord import FileWriter

pytestmark = pytest.mark.framework

GUIDE = Path(__file__).parents[4] / "docs" / "compat-ffrecord.md"


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    before, after = (block for block in blocks if ">>>" not in block)
    with FileWriter("train.ffr", 160) as writer:
        for number in range(160):
            writer.write_one(pickle.dumps(number))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(before, names)
    assert len(names["loader"]) == 7
    assert sum(len(batch) for batch in names["loader"]) == 112
    exec(after, names)
    assert sorted(sample for batch in names["loader"] for sample in batch.tolist()) == list(range(160))
