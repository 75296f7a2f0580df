"""Results: what is saved, and what documentation is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benches import machine, results
from benches.report import figures, short_summary, summary
from benches.results import Results
from benches.tables import lines, markdown

STORES = {
    "figures": {
        "4 KB": {
            "anyrecord array g1 none": {"write": 900.0, "write_many": 950.0, "single": 1.0, "batch": 0.5, "size": 1.01},
            "array_record g1 none": {"write": 300.0, "single": 4.0, "batch": 4.0, "size": 1.01},
        }
    },
    "records": {"4 KB": 40_000},
}


@pytest.fixture
def found(tmp_path: Path) -> Results:
    found = Results(machine.describe(tmp_path))
    found.add("stores", STORES)
    return found


def test_results_come_back_as_they_were_saved(found: Results) -> None:
    path = Path("new folder/results.json")
    found.save(path)
    again = results.load(path)
    assert again == found
    assert again.found("stores") == STORES
    assert again.found("curve") is None


def test_the_machine_is_described(found: Results) -> None:
    assert set(found.machine) == {"cpu", "cores", "memory", "system", "filesystem", "python", "packages"}
    assert all(found.machine.values())
    assert "anyrecord" in found.machine["packages"]


def test_a_later_run_is_added_and_another_machine_refused(found: Results, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    found.save(path)
    more = results.continued(path, tmp_path)
    more.add("curve", {"record_bytes": 120})
    more.save(path)
    assert set(results.load(path).sections) == {"stores", "curve"}
    other = {**more.machine, "packages": "fewer packages"}
    added = Results(other, results.load(path).sections)
    added.add("codecs", {})
    added.save(path)
    assert results.load(path).described("codecs")["packages"] == "fewer packages"
    assert results.load(path).described("stores") == found.machine
    told = json.loads(path.read_text())
    told["machine"]["cpu"] = "another"
    path.write_text(json.dumps(told))
    with pytest.raises(SystemExit, match="cpu another\\): choose another file with --save"):
        results.continued(path, tmp_path)


def test_noise_is_not_saved() -> None:
    assert results.rounded({"a": [1.23456789, 3], "b": ("x", 123456.7)}) == {"a": [1.235, 3], "b": ["x", 123500.0]}


def test_documentation_is_made_from_saved_results_alone(found: Results) -> None:
    assert list(summary(found)) == [
        "One at a time, times faster:",
        "|  | 4 KB |\n|---|---:|\n| ArrayRecord, against `array_record` | 4.0x |",
        "Batches of 256, times faster:",
        "|  | 4 KB |\n|---|---:|\n| ArrayRecord, against `array_record` | 8.0x |",
        "Writing, times faster:",
        "|  | 4 KB |\n|---|---:|\n| ArrayRecord, against `array_record` | 3.0x |",
    ]
    assert "| ArrayRecord, against `array_record` | 4.0x | 8.0x |  |  |" in short_summary(found)
    page = figures(found, [Path("images/stores.svg")], "benches/results/a.json")
    assert "from `benches/results/a.json`." in page
    assert "| `stores` | 3 | 0 |" in page
    assert "![How long a read takes in each store](images/stores.svg)" in page
    assert "### 40,000 records of about 4 KB" in page
    assert "| array_record g1 none | 300 | - | - | 4.00 | 4.00 | - | - | 1.01 |" in page


def test_tables_line_up() -> None:
    assert lines(["a", "long"], [("row", ["1", "2"]), ("x", ["100", "-"])]) == [
        "       a  long",
        "row    1     2",
        "x    100     -",
    ]
    assert markdown(["a"], [("row", ["1"])]) == "|  | a |\n|---|---:|\n| row | 1 |"
