"""Goals: how many times faster anyrecord should be than each store, and whether it is."""

from __future__ import annotations

from benches.ratios import FASTEST

Least = tuple[float | None, float | None, float | None]
"""The least ratio for records of 120 B, of 4 KB and of 100 KB."""

COLUMN = {"120 B": 0, "700 B": 1, "4 KB": 1, "20 KB": 2, "100 KB": 2, "1 MB": 2}
"""Which of the three ratios is the goal for a size. A size between two has the goal of the larger one."""

ARRAY_WRITE: Least = (3, 2, 2)
TWICE: dict[str, Least] = dict.fromkeys(("single", "batch", "in order"), (2, 2, 2))
"""Drop-ins should read at least twice as fast as their originals."""

GOALS: dict[tuple[str, str], dict[str, Least]] = {
    ("anyrecord array g1 none", "array_record g1 none"): {
        "write": ARRAY_WRITE,
        "single": (6, 3.5, 1.8),
        "batch": (8, 3.5, 1.8),
        "in order": (5, 3, 1.7),
    },
    ("anyrecord array g1 zstd", "array_record g1 zstd"): {
        "write": ARRAY_WRITE,
        "single": (2, 1.3, 1.8),
        "batch": (3.5, 1.8, 1.8),
        "in order": (2.5, 2, 1.8),
    },
    ("anyrecord array g256 zstd", "array_record g256 zstd"): {
        "write": ARRAY_WRITE,
        "batch": (3, 1.2, None),
        "in order": (1.3, 1.3, 1.3),
    },
    ("anyrecord ffrecord", "ffrecord"): {
        "write": (2, 1.2, 1.2),
        "single": (2, 2, 2),
        "batch": (2, 2, 2),
        "in order": (2, 2, 2),
    },
    ("anyrecord recordio none", "recordio Go none"): {"single": (1000, 1000, 1000), "in order": (3, 1.5, 1.5)},
    ("anyrecord recordio snappy", "recordio Go snappy"): {"single": (1000, 1000, 1000), "in order": (3, 1.5, 1.5)},
    ("anyrecord ffrecord", FASTEST): {
        "single": (1.6, 1, 1 / 1.6),
        "batch": (2, 1, 1 / 1.6),
        "in order": (1, 1, 1),
    },
    ("anyrecord array g1 none", FASTEST): {
        "single": (1.4, 1 / 1.15, 1 / 2),
        "batch": (1.6, 1 / 1.15, 1 / 2),
        "in order": (1 / 1.5, 1 / 1.5, 1 / 1.5),
    },
    # The second epoch: rounds read the same records, and the best round counts, in which each was checked before.
    ("anyrecord ffrecord once", FASTEST): {"single": (1, 1, 1)},
    ("anyrecord array g1 none once", FASTEST): {"single": (1, 1, 1)},
    ("drop-in ffrecord", "ffrecord"): TWICE,
    ("drop-in array_record g1 none", "array_record g1 none"): TWICE,
    ("drop-in array_record g1 none source", "array_record g1 none source"): TWICE,
    ("drop-in array_record g1 zstd", "array_record g1 zstd"): TWICE,
    ("drop-in array_record g256 zstd", "array_record g256 zstd"): TWICE,
    ("drop-in recordio none", "recordio Go none"): TWICE,
    ("anyrecord ffrecord unchecked", FASTEST): {"single": (1, 1, 1), "batch": (1, 1, 1), "in order": (1, 1, 1)},
    ("anyrecord array g1 none unchecked", FASTEST): {"single": (1, 1, 1), "batch": (1, 1, 1), "in order": (1, 1, 1)},
}

LINK_SHARE = 0.8
"""How much of a slow link an epoch from an object store should use, at least."""
LINK_BYTES = 1.1
"""How many times the bytes of the records may come over the link for it, at most."""

GPU_SHARE = {"4 KB": 0.63, "100 KB": 0.9, "1 MB": 0.9}
"""How fast random records should come to a GPU, at least, by their size. 1 is a copy from pinned memory."""
BUSY = 0.9
"""How much of the time a simulated accelerator has to compute, as MLPerf Storage asks for most of its workloads."""


def goal(ours: str, against: str, way: str, workload: str) -> float | None:
    """The least ratio that is the goal. None if there is no goal."""
    least = GOALS.get((ours, against), {}).get(way)
    return least[COLUMN[workload]] if least and workload in COLUMN else None


def verdict(ratio: float, least: float | None) -> str:
    """A ratio as text, compared with its goal.

    >>> verdict(6.42, 6.0), verdict(0.9, 1.0), verdict(1.5, None)
    ('goal 6.0x: reached 6.4x', 'goal 1.0x: missed, 0.90x', '1.5x')
    """
    if least is None:
        return times(ratio)
    return f"goal {times(least)}: {'reached' if ratio >= least else 'missed,'} {times(ratio)}"


def times(ratio: float) -> str:
    """A ratio as text, with its significant digits.

    >>> times(0.666), times(12.34), times(12345.6)
    ('0.67x', '12.3x', '12,346x')
    """
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 0.995 else f"{ratio:.2f}x"
