"""Our own stores and the loop that needs no package, timed on a few records."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import anyrecord
import pytest

from benches import curve
from benches.device import aligned
from benches.instructions import total
from benches.ours import Anyrecord, ours
from benches.peers import MmapSlice
from benches.results import Run
from benches.store import READS, WRITES
from benches.timing import enough, measure
from benches.workloads import WORKLOADS


@pytest.fixture
def own_garbage() -> Iterator[None]:
    """The garbage collector runs before each figure. It need not look at what all earlier tests have left."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("own_garbage")
def test_every_way_of_every_format_gets_a_figure(tmp_path: Path) -> None:
    records = WORKLOADS[0].make(200)
    stores = [MmapSlice("mmap slice", "raw"), *ours()]
    figures = measure(stores, records, tmp_path, 1, 0.001)
    assert set(figures["mmap slice"]) == {"write", *READS, "size"}
    for store in ours():
        written = set(WRITES) if isinstance(store, Anyrecord) and store.checksums is True else set()
        assert set(figures[store.name]) == {*written, *READS, "size"}
        assert all(figure > 0 for figure in figures[store.name].values())


def test_the_curve_has_our_figures_and_those_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "present", lambda stores: stores[:2])
    monkeypatch.setattr(curve, "SECONDS", 0.001)
    found = curve.measure(Run(tmp_path, rounds=1), 300)
    assert {way: set(row) for way, row in found.items()} == {way: {"anyrecord", "mmap slice"} for way in curve.WAYS}


def test_once_is_an_option_of_its_own(tmp_path: Path) -> None:
    # If any value that is true meant True, rows that say "once" would show figures of reads that are all checked.
    with anyrecord.create(tmp_path / "a.ffr") as out:
        out.write(b"a")
    with pytest.raises((TypeError, ValueError)):
        anyrecord.open(tmp_path / "a.ffr", checksums="nonsense")  # type: ignore[arg-type]


def test_a_wrong_record_is_no_figure(tmp_path: Path) -> None:
    class Wrong(MmapSlice):
        def one(self, index: int) -> bytes:
            return b"wrong"

    with pytest.raises(SystemExit, match="mmap slice returned a wrong record 0"):
        measure([Wrong("mmap slice", "raw")], WORKLOADS[0].make(1000), tmp_path, 1, 0.001)


def test_a_slow_store_reads_fewer_records() -> None:
    def slow(key: int) -> None:
        for _ in range(20_000):
            pass

    assert len(enough(slow, list(range(10_000)), 0.01)) < 1000
    assert len(enough(lambda key: None, list(range(100)), 10)) == 100


def test_blocks_and_counts() -> None:
    assert aligned(4096, 8192) == (4096, 8192)
    assert aligned(1, 2) == (0, 4096)
    assert total("version: 1\nevents: Ir\nsummary: 7\ntotals: 12345\n") == 12345
