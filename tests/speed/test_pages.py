"""The figures of README.md and docs/ are those of the committed results."""

from __future__ import annotations

from turns import turn

from benches.pages import PLACE, ROOT, TABLES, filled, pages, paths, source_of_docs
from benches.results import Results, load


def test_every_page_has_the_figures_of_the_committed_results() -> None:
    source = source_of_docs()
    for page, text in pages(load(source), source).items():
        with turn(str(page)):
            written = page.read_text(encoding="utf-8")
            assert text == written, f"run python -m benches.plot {source.relative_to(ROOT)}"


def test_every_table_has_a_place() -> None:
    places = [found["name"] for page in paths(ROOT) for found in PLACE.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(places) == sorted(TABLES)


def test_a_table_without_figures_stays_and_others_are_replaced() -> None:
    old = "a\n<!-- figures: cache -->\nold\n<!-- end of figures -->\nz"
    results = Results({})
    assert filled(old, results) == old
    results.add("cache", {"4 KB": {"ffrecord: single": {"local": 1.0, "cache": 2.0}}})
    table = "|  | 4 KB |\n|---|---:|\n| ffrecord: single | 50% |"
    assert filled(old, results) == f"a\n<!-- figures: cache -->\n\n{table}\n\n<!-- end of figures -->\nz"
