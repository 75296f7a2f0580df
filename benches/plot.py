"""Makes the pictures and tables of the documentation from saved results.

python -m benches.plot benches/results/NAME.json              # writes README.md, docs/ and docs/images/*.svg
python -m benches.plot benches/results/NAME.json --pictures FOLDER    # writes only the pictures, such as those of a GPU
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benches.results import LATEST, Results, load

OURS, OTHERS = "#c2410c", ("#1d4ed8", "#0f766e", "#7c3aed", "#64748b", "#a16207")
MARKS = {"single": "o", "batch": "s", "in order": "^"}
SHOWN = (
    "anyrecord ffrecord",
    "anyrecord array g1 none",
    "mmap slice",
    "bagz raw",
    "lmdb",
    "array_record g1 none",
    "array_record g1 none source",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benches.plot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path, default=LATEST)
    parser.add_argument("--pictures", type=Path, help="a folder: write only the pictures, there")
    arguments = parser.parse_args()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
        drawn = draw(load(arguments.results), arguments.pictures)
        print(f"wrote {', '.join(str(path) for path in drawn)}")
    else:
        from benches import pages

        pages.write(arguments.results)


def draw(results: Results, images: Path) -> Iterable[Path]:
    """Draws every picture that the results have figures for."""
    for name, picture in PICTURES.items():
        found = results.found(name)
        if found:
            path = images / f"{name}.svg"
            picture(found, path)
            yield path


def canvas(columns: int, width: float, height: float, rows: int = 1) -> tuple[Any, Sequence[Any]]:
    """A figure with panels in rows. It needs no screen, and gives the same bytes every time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "anyrecord", "font.size": 9, "axes.spines.top": False}
    )
    matplotlib.rcParams["axes.spines.right"] = False
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False)
    return figure, panels.ravel()


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def stores(found: Any, path: Path) -> None:
    """Microseconds a record: a panel for each size, a line for each store, a mark for each way."""
    sizes = found["figures"]
    columns = min(len(sizes), 3)
    lines = -(-len(sizes) // columns)
    figure, panels = canvas(columns, 11, 3.6 * lines, lines)
    for empty in panels[len(sizes) :]:
        empty.set_axis_off()
    for number, (panel, (size, rows)) in enumerate(zip(panels, sizes.items(), strict=False)):
        names = [name for name in reversed(SHOWN) if name in rows]
        for (way, marker), color in zip(MARKS.items(), (OURS, *OTHERS), strict=False):
            shown = [(rows[name][way], i) for i, name in enumerate(names) if way in rows[name]]
            panel.plot(*zip(*shown, strict=True), marker, color=color, label=way, markersize=6)
        panel.set_yticks(range(len(names)), [""] * len(names) if number % columns else names)
        panel.set_xscale("log")
        plain_numbers(panel.xaxis)
        panel.grid(axis="y", color="#e2e8f0")
        panel.set_xlabel("microseconds a record")
        panel.set_title(size)
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="lower left")
    save(figure, path)


def plain_numbers(axis: Any) -> None:
    """Labels ticks with plain numbers (1, 2, 5), not with powers of ten."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=12))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_tick_params(rotation=60)


def curve(found: Any, path: Path) -> None:
    """Microseconds a record by the number of records in the file, both logarithmic."""
    ways = found["microseconds"]
    figure, panels = canvas(len(ways), 9, 3.6)
    for panel, (way, rows) in zip(panels, ways.items(), strict=True):
        others = iter(OTHERS)
        for name, by_length in rows.items():
            is_ours = name == "anyrecord"
            color = OURS if is_ours else next(others)
            lengths = [int(length) for length in by_length]
            width = 2.5 if is_ours else 1.3
            panel.plot(lengths, list(by_length.values()), marker="o", markersize=3, lw=width, color=color, label=name)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("records in the file")
        panel.set_ylabel("microseconds a record")
        panel.set_title("one at a time" if way == "single" else "batches of 256")
    panels[0].legend(frameon=False, loc="upper left")
    save(figure, path)


def cores(found: Any, path: Path) -> None:
    """The speed-up by the number of threads."""
    figure, (panel,) = canvas(1, 4.5, 3.2)
    for color, (name, row) in zip((OURS, *OTHERS), found.items(), strict=False):
        threads = [int(count) for count in row if count.isdigit()]
        panel.plot(threads, [row["1"] / row[str(count)] for count in threads], marker="o", color=color, label=name)
    panel.set_xscale("log", base=2)
    panel.set_xticks(threads, [str(count) for count in threads])
    panel.set_xlabel("threads")
    panel.set_ylabel("times as fast as one")
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False)
    save(figure, path)


def gpu(found: Any, path: Path) -> None:
    """GB/s to the device by the size of records: a bar for each format, and a line at what a plain copy reaches."""
    from benches.gpu import DEFAULT

    sizes = found["sizes"]
    formats = list(next(iter(sizes.values()))["formats"])
    figure, (panel,) = canvas(1, 5.5, 3.4)
    width = 0.8 / len(formats)
    for turn, (name, color) in enumerate(zip(formats, (OURS, *OTHERS), strict=False)):
        places = [at + (turn - (len(formats) - 1) / 2) * width for at in range(len(sizes))]
        rates = [row["formats"][name][DEFAULT]["steady"] for row in sizes.values()]
        bars = panel.bar(places, rates, width * 0.9, color=color, label=name)
        panel.bar_label(bars, [f"{rate:.0f}" for rate in rates])
    bare = max(row["bare"] for row in sizes.values())
    panel.axhline(bare, color="#334155", linestyle="--", linewidth=1, label=f"plain copy, {bare:.0f}")
    panel.set_xticks(range(len(sizes)), list(sizes))
    panel.set_xlabel("bytes of a record")
    panel.set_ylabel("GB/s to the device")
    panel.set_title(found["gpu"])
    panel.set_ylim(0, bare * 1.3)
    panel.legend(frameon=False, loc="upper left", ncols=3)
    save(figure, path)


def accelerators(found: Any, path: Path) -> None:
    """How many accelerators are busy: a panel for each workload, a bar for each loader."""
    figure, panels = canvas(len(found), 11, 4)
    for panel, (workload, rows) in zip(panels, found.items(), strict=True):
        names = list(reversed(rows))
        counts = [rows[name]["accelerators"] for name in names]
        colors = [OURS if name.startswith("anyrecord") else OTHERS[0] for name in names]
        bars = panel.barh(range(len(names)), counts, color=colors)
        panel.bar_label(bars, [str(count) for count in counts])
        labels = [name.replace(", ", ",\n") for name in names]
        panel.set_yticks(range(len(names)), labels if panel is panels[0] else [""] * len(names))
        panel.set_title(workload)
        panel.set_xlabel("busy accelerators")
    save(figure, path)


PICTURES = {"stores": stores, "curve": curve, "cores": cores, "gpu": gpu, "accelerators": accelerators}


if __name__ == "__main__":
    main()
