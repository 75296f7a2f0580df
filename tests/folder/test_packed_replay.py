"""Every stored input of the fuzzer of packed listings is a listing or is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import anyrecord

FUZZ = Path(__file__).parents[2] / "fuzz"


def rules() -> Any:
    spec = importlib.util.spec_from_file_location("listing_rules", FUZZ / "listing_rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_input_of_the_corpus_is_a_listing_or_refused() -> None:
    check = rules().check
    with anyrecord.open(FUZZ / "corpus" / "listing.ffr") as inputs:
        assert len(inputs) > 0
        for number, data in enumerate(inputs):
            try:
                check(data)
            except BaseException as error:
                error.add_note(f"the input is record {number} of fuzz/corpus/listing.ffr")
                raise


def test_every_regression_is_a_listing_or_refused() -> None:
    check = rules().check
    for path in sorted((FUZZ / "regressions" / "listing").glob("*")):
        check(path.read_bytes())
