"""Writes the figures of saved results into README.md and docs/.

A page has `<!-- figures: NAME -->` and `<!-- end of figures -->` around each table that is made here. docs/speed.md
also has a heading; everything below it is made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from benches import choices, plot, report
from benches.results import Results, load

ROOT = Path(__file__).parents[1]
TABLES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "times_faster": ("stores", report.short_summary),
    "codecs": ("codecs", choices.codecs),
    "groups": ("stores", choices.groups),
    "formats": ("stores", choices.formats),
    "warm": ("order", choices.warm),
    "blocks": ("order", choices.blocks),
    "cold": ("cold", choices.cold),
    "remote": ("remote", report.remote_summary),
    "cache": ("cache", report.cache_summary),
    "upload": ("upload", report.upload_summary),
}
"""For each name: the benchmark that has the figures, and what makes the table."""
PLACE = re.compile(r"(<!-- figures: (?P<name>\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
FIGURES = "## Figures\n"
"""Everything after this heading in docs/speed.md is made here."""
SOURCE = re.compile(r"from `(benches/results/[^`]+)`")
"""How docs/speed.md names the results that it was made from."""


def filled(page: str, results: Results) -> str:
    """The page, with the tables at their places. A table stays as it is if the results have no figures for it.

    >>> filled("<!-- figures: codecs -->\\nold\\n<!-- end of figures -->", Results({}))
    '<!-- figures: codecs -->\\nold\\n<!-- end of figures -->'
    """

    def table(found: re.Match[str]) -> str:
        section, make = TABLES[found["name"]]
        return f"{found[1]}\n{make(results)}\n\n{found[3]}" if results.found(section) else found[0]

    return PLACE.sub(table, page)


def pages(results: Results, source: Path, root: Path = ROOT) -> dict[Path, str]:
    """Every page that has figures, as it should be. `source`: the file of the results."""
    images = [root / "docs" / "images" / f"{name}.svg" for name in plot.PICTURES if results.found(name)]
    made = {page: filled(page.read_text(encoding="utf-8"), results) for page in paths(root)}
    speed = root / "docs" / "speed.md"
    before = made[speed].partition(FIGURES)[0]
    made[speed] = f"{before}{FIGURES}\n{report.figures(results, images, f'benches/results/{source.name}')}"
    return made


def paths(root: Path) -> list[Path]:
    """The pages that have places for figures."""
    known = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [page for page in known if PLACE.search(page.read_text(encoding="utf-8")) or page.name == "speed.md"]


def source_of_docs(root: Path = ROOT) -> Path:
    """The results that the figures in docs/ were made from."""
    found = SOURCE.search((root / "docs" / "speed.md").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit("docs/speed.md does not say from which results its figures were made")
    return root / found[1]


def write(source: Path, root: Path = ROOT) -> None:
    """Writes all pages and pictures from a file of results."""
    results = load(source)
    images = root / "docs" / "images"
    drawn = list(plot.draw(results, images))
    made = pages(results, source, root)
    for page, text in made.items():
        page.write_text(text, encoding="utf-8")
    names = ", ".join(str(path.relative_to(root)) for path in [*made, *drawn])
    print(f"wrote {names}")
