"""The benchmark of remote reading checks what libraries deliver, and computes figures that mean what they say."""

from __future__ import annotations

import pytest

from benches.libraries.job import Job
from benches.remote import figures, table

JOB = Job("data", 200, 1000, 50_000, "http://127.0.0.1:1", "")


def test_an_epoch_that_delivers_each_sample_passes() -> None:
    assert JOB.check([list(JOB.samples())]) == {"repeated": 0, "near": 0.0}
    backwards = [[sample] for sample in reversed(list(JOB.samples()))]
    assert JOB.check([*backwards, [JOB.sample(0)]])["repeated"] == 1


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([JOB.sample(i) for i in range(199)], "1 of 200 samples did not arrive"),
        ([JOB.sample(i) for i in (*range(199), 0)], "1 of 200 samples did not arrive"),
        ([*JOB.samples(), JOB.sample(3)[:-1]], "sample 3 has 999 bytes"),
        ([JOB.sample(0)[:-1] + b"?", *JOB.samples()], "sample 0 has wrong bytes"),
    ],
)
def test_an_epoch_that_lacks_or_changes_samples_ends_the_run(samples: list[bytes], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        JOB.check([samples])


def test_neighbours_of_a_shuffle_in_small_blocks_are_near() -> None:
    many = Job("data", 2000, 100, 50_000, "http://127.0.0.1:1", "")
    assert many.check([list(many.samples())])["near"] == pytest.approx(1, abs=0.001)


def test_figures_are_about_the_bytes_of_records() -> None:
    row = figures(JOB, {"seconds": 0.002}, received=220_000, requests=10)
    assert row == pytest.approx(
        {"seconds": 0.002, "rate": 100_000, "MB/s": 100, "share": 0.8, "bytes": 1.1, "requests": 50_000}
    )


def test_other_libraries_are_compared_with_the_slowest_of_ours() -> None:
    link = figures(JOB, {"seconds": 1}, 200_000, 1)

    def row(seconds: float) -> dict[str, float | str]:
        return {"version": "1", **figures(JOB, {"seconds": seconds, "workers": 2}, 200_000, 1)}

    rows = {"anyrecord a": row(2), "anyrecord b": row(4), "other": row(8)}
    found = {"records": JOB.count, "record_bytes": JOB.sample_bytes, "link": link, "rows": rows}
    assert [(name, cells[-1]) for name, cells in table(found)][1:] == [
        ("anyrecord a", "-"),
        ("anyrecord b", "-"),
        ("other, 2 workers", "2.0x as fast"),
    ]
