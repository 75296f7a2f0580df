"""How many times faster, against whom, and whether that was the goal."""

from __future__ import annotations

import pytest

from benches import elsewhere, goals, ratios
from benches.dropins import dropins
from benches.ours import ours
from benches.peers import peers
from benches.ratios import COMPARISONS, FASTEST, Figures
from benches.store import READS, WRITES
from benches.stores import outcomes
from benches.workloads import WORKLOADS

NAMES = {store.name for store in [*ours(), *peers(), *dropins()]}


def test_faster_is_more_mb_a_second_and_fewer_microseconds() -> None:
    assert ratios.ratio("write", 300, 100) == 3
    assert ratios.ratio("single", 0.5, 2) == 4
    assert ratios.better("durable", 1, 2) == 2
    assert ratios.better("in order", 1, 2) == 1


def test_the_fastest_store_is_found_for_each_cell() -> None:
    figures: Figures = {
        "bagz raw": {"single": 1.0, "batch": 5.0, "write": 100, "size": 1.1},
        "lmdb": {"single": 2.0, "batch": 3.0, "write": 300, "size": 1.5},
        "mmap slice": {"single": 0.1, "batch": 0.1, "write": 900},
        "anyrecord ffrecord": {"single": 0.1},
    }
    assert ratios.fastest(figures) == {"single": 1.0, "batch": 3.0, "write": 300}


def test_ratios_are_of_the_ways_that_both_have() -> None:
    figures: Figures = {
        "anyrecord tfrecord": {"write": 200, "write_many": 400, "durable": 50, "single": 1, "in order": 0.5, "size": 1},
        "tfrecord": {"write": 100, "in order": 2.0, "size": 1},
    }
    found = ratios.ratios(figures, "anyrecord tfrecord", "tfrecord", "120 B")
    assert found == {"write": 2, "write_many": 4, "durable": 0.5, "in order": 4}
    assert ratios.ratios({}, "anyrecord tfrecord", "tfrecord", "120 B") == {}


def test_figures_from_elsewhere_are_scaled_by_the_loop_that_ran_in_both_places() -> None:
    here = {way: 2 * figure for way, figure in elsewhere.THERE["4 KB"].items()}
    assert elsewhere.scaled("ffrecord", "4 KB", here) == pytest.approx(
        {"single": 6.6, "batch": 5.8, "in order": 5.4, "write": 773}
    )
    assert elsewhere.scaled("ffrecord", "4 KB", {}) == {"write": 773}
    assert elsewhere.scaled("ffrecord", "5 KB", here) == {}
    assert elsewhere.scaled("recordio Go none", "1 MB", here) == {}


def test_every_name_in_a_comparison_or_a_goal_is_somebodys() -> None:
    known = NAMES | set(elsewhere.LIBRARIES) | {FASTEST}
    pairs = {(comparison.ours, against) for comparison in COMPARISONS for against in comparison.against}
    for pair in pairs:
        assert set(pair) <= known, pair
    assert set(ratios.STORES) <= NAMES
    for pair, ways in goals.GOALS.items():
        assert pair in pairs, pair
        assert set(ways) <= {*READS, *WRITES}


def test_every_size_has_a_goal_and_figures_from_elsewhere() -> None:
    sizes = [workload.name for workload in WORKLOADS]
    assert list(goals.COLUMN) == sizes == list(elsewhere.THERE) == list(elsewhere.LIBRARIES["ffrecord"].figures)
    for library in elsewhere.LIBRARIES.values():
        assert set(library.figures) <= set(sizes)


def test_a_goal_is_looked_up_by_size() -> None:
    pair = ("anyrecord array g256 zstd", "array_record g256 zstd")
    assert [goals.goal(*pair, "batch", workload.name) for workload in WORKLOADS] == [3, 1.2, 1.2, None, None, None]
    assert goals.goal(*pair, "all", "4 KB") is None
    assert goals.goal(*pair, "batch", "5 KB") is None
    assert goals.goal("anyrecord tfrecord", "tfrecord", "write", "4 KB") is None


def test_goals_that_are_reached_and_missed_are_counted() -> None:
    def figures(speed: float) -> Figures:
        return {"anyrecord array g1 none": {"single": speed}, "array_record g1 none": {"single": 6.0}}

    what = "anyrecord array g1 none, against array_record g1 none, single, 120 B"
    (reached,) = outcomes({"figures": {"120 B": figures(1.0)}})
    assert (reached.is_reached, str(reached)) == (True, f"reached  {what}: 6.00x, goal at least 6.00x")
    (missed,) = outcomes({"figures": {"120 B": figures(2.0)}})
    assert (missed.is_reached, str(missed)) == (False, f"missed   {what}: 3.00x, goal at least 6.00x")
