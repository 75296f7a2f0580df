"""`anyrecord bench`: what is measured, beside whom, and that it stays short and small."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import anyrecord
import pytest
from anyrecord.cli import _contenders, _page_cache, _timing
from anyrecord.cli._contenders import Contender, Missing, Ours, original_of, parts_of
from anyrecord.cli._timing import Job, measure
from children import python

from cli.files import RECORDS, break_record, make
from cli.running import run

QUICK = ["--seconds", "0.005", "--rounds", "1"]
WAYS = ["in order", "single", "batch"]


def test_it_measures_every_format_in_three_ways(suffix: str) -> None:
    make(f"a{suffix}")
    ran = run("bench", f"a{suffix}", *QUICK, "--no-original", "--batch", "8")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("1 file, ")
    assert "100 records of about 13 B" in ran.lines[0]
    assert [line.split("  ")[0] for line in ran.lines[2:5]] == ["in order", "random", "batches of 8"]
    assert ran.lines[5] == "the original: not asked for"


def test_json_has_all_figures() -> None:
    make("a.ffr")
    told = run("bench", "--json", "a.ffr", *QUICK, "--no-original", "--seed", "3").json
    assert (told["format"], told["files"], told["records"], told["batch"], told["seed"]) == ("ffrecord", 1, 100, 100, 3)
    assert told["original"] == {"name": "the original", "version": None, "why_not": "not asked for"}
    assert [one["way"] for one in told["results"]] == WAYS
    for one in told["results"]:
        assert one["records"] > 0
        assert one["seconds"] > 0
        assert one["records_per_second"] == pytest.approx(one["records"] / one["seconds"])
        assert (one["cold"], one["ratio"], one["original_seconds"]) == (False, None, None)
    assert told["results"][0]["records"] <= 100


@pytest.mark.parametrize(("name", "original"), [("a.ffr", "ffrecord"), ("a.recordio", "recordio")])
def test_an_original_that_is_not_installed_is_told(name: str, original: str) -> None:
    make(name)
    ran = run("bench", name, *QUICK)
    assert ran.code == 0
    assert f"{original}: not installed" in ran.lines


def test_several_files_ranges_and_globs_are_measured_together() -> None:
    make("a.ffr", shards=3)
    assert run("bench", "--json", "a-*.ffr", *QUICK, "--no-original").json["files"] == 3
    told = run("bench", "--json", "a-00000-of-00003.ffr[3:7]", *QUICK, "--no-original").json
    assert (told["records"], told["batch"]) == (4, 4)


def test_large_records_have_smaller_batches() -> None:
    make("a.ffr", [bytes(20 << 20)] * 5)
    assert run("bench", "--json", "a.ffr", *QUICK, "--no-original").json["batch"] == 3


def test_cold_files_are_measured_or_it_says_why_not() -> None:
    make("a.ffr", [os.urandom(4096) for _ in range(2000)])
    told = run("bench", "--json", "a.ffr", "--cold", *QUICK, "--no-original").json
    if told["cold_why_not"] is None:
        assert [one["cold"] for one in told["results"]] == [False] * 3 + [True] * 3
    else:
        assert [one["cold"] for one in told["results"]] == [False] * 3
    anyrecord.copy("a.ffr", "memory://cold/")
    told = run("bench", "--json", "memory://cold/a.ffr", "--cold", *QUICK).json
    assert told["cold_why_not"] == "URLs are not in the page cache"
    assert told["original"]["why_not"] == "not installed"


def test_a_file_in_the_page_cache_is_noticed() -> None:
    Path("a").write_bytes(os.urandom(1 << 20))
    Path("a").read_bytes()
    assert _page_cache._is_cached("a")
    if _page_cache.why_not(["a"]) is None:
        for _ in range(3):
            assert not _page_cache._is_cached("a", most=0), "a look must not read the file"
        with open("a", "rb") as file:
            file.seek(1 << 19)
            file.read(1)
        assert _page_cache._is_cached("a", most=0)
        _page_cache.cool(["a"])
        assert not _page_cache._is_cached("a", most=0)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["missing.ffr"], 3, "missing.ffr: No such file or directory"),
        (["empty.ffr"], 2, "there are no records to read"),
        (["-"], 2, "bench needs names of files"),
        (["bad.ffr"], 1, "checksum mismatch in bad.ffr"),
        (["bad.ffr", "--batch", "0"], 2, "invalid value for '--batch'"),
        ([], 2, "missing argument"),
    ],
)
def test_mistakes_are_told(args: list[str], code: int, text: str) -> None:
    make("empty.ffr", [])
    break_record(make("bad.ffr"))
    ran = run("bench", *args, *QUICK)
    assert ran.code == code, ran.err
    assert text in ran.err.lower().replace("missing.ffr: no such", "missing.ffr: No such")


class Counting(Ours):
    """anyrecord, with a note of what was read."""

    name = "counting"
    seen: list[list[object]] = []  # noqa: RUF012  # shared on purpose

    def prepared(self, way: str, keys: object) -> object:  # type: ignore[override]
        self.seen.append(list(keys))  # type: ignore[call-overload]
        return keys


@pytest.mark.parametrize("way", ["single", "batch"])
def test_all_contenders_read_the_same_records_each_with_a_new_reader(way: str) -> None:
    make("a.ffr")
    opened: list[str] = []

    def opens(name: str) -> Callable[[], Contender]:
        def open() -> Contender:
            opened.append(name)
            return Counting(lambda: anyrecord.open("a.ffr"))

        return open

    Counting.seen = []
    job = Job({"anyrecord": opens("anyrecord"), "counting": opens("counting")}, 100, 8, 0.002, 3, seed=1)
    found = measure(job, way, dict.fromkeys(job.opens, Ours.ways))
    assert set(found.seconds) == {"anyrecord", "counting"}
    timed = Counting.seen[2:]  # the first two found out how many
    assert len(timed) == 6
    assert all(keys == timed[0] for keys in timed)
    assert opened[2:8] == ["anyrecord", "counting"] * 3
    assert found.records == len(timed[0]) * (8 if way == "batch" else 1)


def test_cold_reads_take_no_record_twice() -> None:
    make("a.ffr")
    cooled: list[int] = []
    Counting.seen = []
    opens: dict[str, Callable[[], Contender]] = {"anyrecord": lambda: Counting(lambda: anyrecord.open("a.ffr"))}
    job = Job(opens, 100, 8, 1.0, 2, seed=1, cool=lambda: cooled.append(1))
    measure(job, "single", {"anyrecord": Ours.ways})
    assert sorted(Counting.seen[0]) == list(range(100))  # type: ignore[type-var]
    assert len(cooled) == 3, "before each reader"


def test_a_short_time_still_reads_enough_in_order() -> None:
    make("a.ffr")
    opens: dict[str, Callable[[], Contender]] = {"anyrecord": lambda: Ours(lambda: anyrecord.open("a.ffr"))}
    job = Job(opens, 100, 8, 1e-9, 1, seed=1, least=60)
    assert measure(job, "in order", {"anyrecord": Ours.ways}).records == 60
    assert measure(job._replace(least=1000), "in order", {"anyrecord": Ours.ways}).records == 100
    assert run("bench", "--json", "a.ffr", "--seconds", "1e-9", "--no-original").json["results"][0]["records"] == 100


def test_what_it_costs_to_begin_does_not_decide_how_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(_timing, "time", SimpleNamespace(perf_counter=lambda: now))

    class SlowToBegin(Ours):
        def in_order(self, count: int) -> list[Callable[[], object]]:
            def read() -> None:
                nonlocal now
                now += 0.02 + count * 1e-6

            return [read]

    make("a.ffr")
    opens: dict[str, Callable[[], Contender]] = {"anyrecord": lambda: SlowToBegin(lambda: anyrecord.open("a.ffr"))}
    found = _timing._enough(opens["anyrecord"], "in order", range(10**6), Job(opens, 10**6, 8, 0.05, 1, seed=1))
    assert 10_000 < found < 50_000, "the time of one record would say 2"


ADAPTER = """
import sys
import anyrecord
from anyrecord.cli import _contenders
from anyrecord.cli._contenders import parts_of
from anyrecord.cli._timing import Job, measure

anyrecord.compat.install(sys.argv[1])  # the drop-in has the names of the original
kind = {"ffrecord": _contenders._FFRecord, "recordio": _contenders._RecordIO}[sys.argv[1]]
with anyrecord.open(sys.argv[2:]) as records:
    parts, expected = parts_of(records), list(records)
made = kind(parts, 16)
assert [(begin, end) for _, begin, end in made._ranges(60, 16)] == [(0, 16), (16, 32), (32, 48), (48, 50), (10, 20)]
assert len(made.in_order(60)) == (2 if kind.name == "ffrecord" else 1)
for read in made.in_order(60):
    read()
picks = [0, 7, 33, 50, 51, len(expected) - 1]
assert made.records(picks) == [expected[pick] for pick in picks]
made.close()
opens = {"anyrecord": lambda: _contenders.Ours(lambda: anyrecord.open(sys.argv[2:])), kind.name: lambda: kind(parts)}
ways = {"anyrecord": _contenders.Ours.ways, kind.name: kind.ways}
for way in ("in order", "single", "batch"):
    found = measure(Job(opens, len(expected), 8, 0.005, 1, 1), way, ways)
    assert (kind.name in found.seconds) == (way in kind.ways), way
original = _contenders.original_of(kind.name, parts, None)
print(original.why)
"""


@pytest.mark.parametrize(("original", "suffix"), [("ffrecord", ".ffr"), ("recordio", ".recordio")])
def test_originals_that_cannot_be_installed_are_called_as_their_drop_ins_want_it(original: str, suffix: str) -> None:
    make(f"a{suffix}", RECORDS[:50])
    make(f"b{suffix}")
    script = ADAPTER.replace("import anyrecord\n", "import anyrecord, anyrecord.compat\n", 1)
    assert python(script, original, f"a{suffix}", f"b{suffix}[10:90]").strip() == "not installed"


def test_a_drop_in_is_never_taken_for_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    make("a.ffr")
    monkeypatch.setattr(_contenders, "_version", lambda package: "1.0")
    monkeypatch.setitem(sys.modules, "ffrecord", importlib.import_module("anyrecord.compat.ffrecord"))
    with anyrecord.open("a.ffr") as records:
        found = original_of("ffrecord", parts_of(records), None)
    assert found == Missing("ffrecord", "not compared: ANYRECORD_COMPAT has replaced it by anyrecord")


def test_an_original_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    make("a.ffr")
    monkeypatch.setattr(_contenders, "_version", lambda package: "1.0")
    told = run("bench", "--json", "a.ffr", *QUICK).json
    assert told["original"]["why_not"].startswith("not compared: ModuleNotFoundError")


@pytest.mark.framework
def test_beside_array_record() -> None:
    make("a.array_record", RECORDS[:50], codec="none")
    make("b.array_record", group_size=10)
    told = run("bench", "--json", "a.array_record", "b.array_record[10:90]", *QUICK).json
    assert told["original"]["name"] == "array_record"
    assert told["original"]["why_not"] is None
    assert [one["ratio"] > 0 for one in told["results"]] == [True] * 3
    ran = run("bench", "b.array_record", *QUICK)
    assert ran.lines[1].split()[-2:] == ["array_record", "ratio"]
    assert all(line.rstrip().endswith("x") for line in ran.lines[2:5])
    ran = run("bench", "a.array_record[:1]", *QUICK)
    assert [line.rstrip()[-1] for line in ran.lines[2:5]] == ["-", "x", "x"]
    assert "no ratio in order: 1 record would mostly measure what it costs to begin" in ran.lines


@pytest.mark.framework
def test_beside_tensorflow_which_reads_in_order_only() -> None:
    """In a process of its own: TensorFlow does not go away again."""
    make("a.tfrecord")
    make("b.tfrecord.gz")
    script = """
import sys
from anyrecord.cli import main
codes = [main(["bench", "--json", name, *sys.argv[3:]]) for name in sys.argv[1:3]]
assert codes == [0, 0]

import anyrecord
from anyrecord.cli._contenders import _TFRecord, parts_of
with anyrecord.open("a.tfrecord") as records:
    made, expected = _TFRecord(parts_of(records), None, 64), list(records)[:90]
for data in made._batched(90):  # one record at a time would be many times as slow
    batches = list(data.as_numpy_iterator())
    assert [len(batch) for batch in batches] == [64, 26]
    assert [record for batch in batches for record in batch] == expected
assert len(_TFRecord(made._parts).in_order(90)) == 4
"""
    lines = python(script, "a.tfrecord", "b.tfrecord.gz", *QUICK).splitlines()
    assert len(lines) == 2
    for told in map(json.loads, lines):
        assert (told["original"]["name"], told["original"]["why_not"]) == ("tensorflow", None)
        assert [one["ratio"] is not None for one in told["results"]] == [True, False, False]
