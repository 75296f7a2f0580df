"""`doctor`: facts about the machine, and what it concludes from them."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.cli import _machine
from anyrecord.cli._findings import findings

from cli.running import run


def test_doctor_tells_versions_and_features() -> None:
    found = run("doctor", "--json").json
    assert found["anyrecord"] == anyrecord.__version__
    assert "ffrecord" in found["formats"]
    assert found["cpu"]["cores"] == os.cpu_count()
    assert found["packages"]["click"]
    assert found["packages"]["rich"]
    assert found["sources"] == []
    ran = run("doctor")
    assert ran.code == 0
    assert ran.lines[0] == f"anyrecord {anyrecord.__version__}"
    assert {"This machine", "Packages"} <= set(ran.lines)


def test_doctor_tells_how_files_are_read(shards: str) -> None:
    (source,) = run("doctor", "--json", shards).json["sources"]
    assert (source["records"], len(source["files"])) == (30, 3)
    file = source["files"][0]
    assert file["index"] == "none"
    assert file["io"] in ("map", "plain", None)
    assert file["page_cache_share"] is None or 0 <= file["page_cache_share"] <= 1
    assert "30 in 3 files" in run("doctor", shards).out
    assert run("doctor", "missing.ffr").code == 3
    assert run("doctor", "-").code == 2


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/mountinfo"):
        pytest.skip("only Linux says this")
    assert _machine.file_system("/proc/cpuinfo") == ("proc", "/proc")
    kind, mount = _machine.file_system(str(tmp_path))
    assert kind
    assert str(tmp_path).startswith(str(mount))


def test_the_list_of_local_file_systems_is_that_of_the_core() -> None:
    text = (Path(__file__).parent.parent.parent / "crates/core/src/storage/file.rs").read_text()
    listed = text.partition("const LOCAL")[2].partition("];")[0]
    named = {name for line in listed.splitlines() if "//" in line for name in line.partition("//")[2].split(", ")}
    assert {name.strip() for name in named} == _machine.LOCAL


GOOD: dict[str, Any] = {
    "cpu": {"limit_cores": None, "usable_cores": 8, "architecture": "x86_64", "features": ["avx2"]},
    "memory": {"limit_bytes": None, "total_bytes": 1 << 40, "shared_memory_bytes": 1 << 34},
    "io_uring": {"allowed": True, "reason": None},
    "open_files": {"soft": 1 << 20, "hard": None},
    "packages": {"torch": "2.5"},
    "sources": [],
}
FILE = {"path": "a.ffr", "format": "ffrecord", "codec": "none", "file_system": "ext4", "io": "map", "index": "there"}
SOURCE: dict[str, Any] = {
    **{"source": "a.ffr", "records": 1000, "chunks": 1000, "file_bytes": 1 << 30, "decoded_bytes": 1 << 30},
    **{"has_cache": False, "files": [FILE]},
}


def found_in(**changes: Any) -> list[str]:
    facts = copy.deepcopy(GOOD)
    for name, value in changes.items():
        facts[name] = {**facts[name], **value} if isinstance(value, dict) else value
    return [f"{finding.what}: {finding.advice}" for finding in findings(facts)]


def test_a_good_machine_and_good_files_have_no_findings() -> None:
    assert found_in(sources=[SOURCE]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu": {"limit_cores": 1.5}}, ["1.5 of 8 cores", "threads="]),
        ({"cpu": {"usable_cores": 1}}, ["one core"]),
        ({"cpu": {"features": ["sse4_2"]}}, ["AVX2"]),
        ({"io_uring": {"allowed": False, "reason": "no"}}, ["io_uring cannot be used: no"]),
        ({"open_files": {"soft": 256}}, ["only 256 files", "ulimit -n"]),
        ({"memory": {"shared_memory_bytes": 64 << 20}}, ["64.0 MiB", "--shm-size"]),
        ({"sources": [{**SOURCE, "files": [{**FILE, "io": "plain", "file_system": "nfs4"}]}]}, ["nfs4", "local disk"]),
        ({"sources": [{**SOURCE, "files": [{**FILE, "io": "requests"}]}]}, ["server", "cache="]),
        ({"sources": [{**SOURCE, "files": [{**FILE, "index": "none"}]}]}, ["without an index"]),
        (
            {"sources": [{**SOURCE, "files": [{**FILE, "format": "tfrecord", "codec": "gzip"}]}]},
            ["compressed stream", "convert"],
        ),
        ({"sources": [{**SOURCE, "chunks": 10}]}, ["102.4 MiB", "window="]),
        ({"sources": [SOURCE], "memory": {"limit_bytes": 1 << 20}}, ["more than the 1.0 MiB", "io='direct'"]),
    ],
)
def test_what_is_slow_is_told_with_what_to_do(changes: dict[str, Any], words: list[str]) -> None:
    (finding,) = found_in(**changes)
    for word in words:
        assert word in finding
