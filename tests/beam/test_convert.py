"""`anyrecord.beam.convert` and `python -m anyrecord.beam convert`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.beam import Counts, convert
from anyrecord.beam.__main__ import main
from array_record.python.array_record_module import ArrayRecordReader
from conformance.formats import FIRST_CASES, Case
from damage.files import KINDS, expected, file_of
from damage.files import RECORDS as DAMAGED

from .files import RECORDS, left_in

pytestmark = pytest.mark.framework

BYTES = sum(map(len, RECORDS))


@pytest.fixture
def shards() -> str:
    """Three files to convert."""
    with anyrecord.create("old.tfrecord", shards=3) as out:
        out.write_many(RECORDS)
    return "old-*.tfrecord"


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_each_file_becomes_one_file_with_the_same_records_in_order(case: Case, shards: str) -> None:
    done = convert(shards, "new/", format=case.format.name, runner="FnApiRunner", **case.options)
    assert done == Counts(40, BYTES, 0)
    assert left_in("new") == [f"old-{shard:05}-of-00003{case.suffix}" for shard in range(3)]
    for old, new in zip(anyrecord.open(shards).paths, anyrecord.open("new").paths, strict=True):
        assert list(anyrecord.open(old)) == list(anyrecord.open(new))
        anyrecord.convert(old, f"expected{case.suffix}", format=case.format.name, overwrite=True, **case.options)
        assert Path(new).read_bytes() == Path(f"expected{case.suffix}").read_bytes()


@pytest.mark.parametrize("source", FIRST_CASES, ids=str)
@pytest.mark.parametrize("target", FIRST_CASES, ids=str)
def test_any_format_becomes_shards_of_any_format(source: Case, target: Case) -> None:
    with anyrecord.create(f"old{source.suffix}", **source.options) as out:
        out.write_many(RECORDS)
    options = {"num_shards": 3, "runner": "FnApiRunner", **target.options}
    assert convert(f"old{source.suffix}", f"new{target.suffix}", **options) == Counts(40, BYTES, 0)
    assert sorted(anyrecord.open(f"new{target.suffix}@3")) == sorted(RECORDS)
    assert len(left_in()) == 4


def test_a_part_of_a_file_and_a_list_are_converted(shards: str) -> None:
    paths = anyrecord.open(shards).paths
    convert([paths[0], f"{paths[1]}[2:4]"], "new", format="ffrecord", num_shards=1, runner="FnApiRunner")
    assert len(anyrecord.open("new-00000-of-00001")) == 14 + 2
    convert(f"{paths[1]}[2:4]", "folder/", format="ffrecord", runner="FnApiRunner")
    assert list(anyrecord.open("folder/old-00001-of-00003.ffr")) == list(anyrecord.open(paths[1])[2:4])


@pytest.mark.filterwarnings("ignore::anyrecord.DamageWarning")
@pytest.mark.parametrize("target", ["new/", "new/a.ffr"])
def test_damaged_records_are_left_out_and_counted(target: str) -> None:
    Path("old.tfrecord").write_bytes(file_of(KINDS["tfrecord"], [3, 20]))
    done = convert("old.tfrecord", target, format="ffrecord", on_error="skip", runner="FnApiRunner")
    wanted = expected(range(len(DAMAGED)), {3, 20}, "skip")
    assert done == Counts(len(wanted), sum(map(len, wanted)), 2)
    assert sorted(anyrecord.open("new")) == sorted(wanted)


@pytest.mark.parametrize("target", ["new/", "new/a.ffr", "new/deep/", "new/deep/a.ffr"])
def test_a_conversion_that_fails_leaves_nothing(target: str, shards: str) -> None:
    path = anyrecord.open(shards).paths[1]
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(Exception, match="checksum"):
        convert(shards, target, format="ffrecord", runner="FnApiRunner")
    assert "new" not in left_in()
    os.makedirs("new")
    with pytest.raises(Exception, match="checksum"):
        convert(shards, target, format="ffrecord", runner="FnApiRunner")
    assert left_in("new") == [], "a folder that was there stays"


def test_bundles_that_run_twice_leave_nothing(shards: str) -> None:
    main(["convert", "--input", shards, "--output", "new/", "--format=ffrecord", *["--runner", "FnApiRunner"]])
    flags = ["--runner=FnApiRunner", "--direct_runner_bundle_repeat=1"]
    main(["convert", "--input", shards, "--output", "new/", "--format=ffrecord", *flags])
    assert left_in("new") == [f"old-{shard:05}-of-00003.ffr" for shard in range(3)]
    assert sorted(anyrecord.open("new")) == sorted(RECORDS)


def test_wrong_arguments_are_errors_before_the_pipeline_runs(shards: str) -> None:
    wrong: list[tuple[type[Exception], str, str, dict[str, Any]]] = [
        (ValueError, "new/ is a folder: pass format=", "new/", {}),
        (ValueError, "num_shards= needs a file name", "new/", {"format": "ffrecord", "num_shards": 2}),
        (ValueError, "is a source and would be replaced", "./", {"format": "tfrecord"}),
        (ValueError, "has no known suffix", "new", {}),
        (ValueError, "ffrecord has no option 'codec'", "new.ffr", {"codec": "zstd"}),
        (TypeError, "unknown option 'colour'", "new/", {"format": "ffrecord", "colour": 1}),
        (ValueError, "cannot be written: Beam takes a name", "new[1]/", {"format": "ffrecord"}),
        (ValueError, "cannot be written: Beam takes a name", "new*.ffr", {}),
        (ValueError, "Unable to get filesystem", "unknown://host/new.ffr", {}),  # of Beam, which asks its file systems
    ]
    for error, text, target, options in wrong:
        with pytest.raises(error, match=text):
            convert(shards, target, runner="FnApiRunner", **options)
    os.makedirs("other")
    Path(anyrecord.open(shards).paths[0]).rename("other/old-00000-of-00003.tfrecord")
    Path("old-00000-of-00003.tfrecord").write_bytes(b"")
    twice = ["other/old-00000-of-00003.tfrecord", "old-00000-of-00003.tfrecord"]
    with pytest.raises(ValueError, match="would both become"):
        convert(twice, "new/", format="ffrecord", runner="FnApiRunner")
    assert "new" not in left_in()


def test_the_program_converts_on_two_processes_and_prints_its_counters(shards: str) -> None:
    command = [sys.executable, "-W", "error::RuntimeWarning", "-m", "anyrecord.beam", "convert", "--input", shards]
    command += ["--output", "new/", "--format", "array_record", "--group_size", "4", "--codec", "brotli", "--level=3"]
    command += ["--runner", "FnApiRunner", "--direct_running_mode", "multi_processing", "--direct_num_workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"records 40\nbytes {BYTES}\ndamaged 0\n"
    found: list[bytes] = []
    for name in left_in("new"):
        reader = ArrayRecordReader(f"new/{name}")
        found += reader.read_all()
        reader.close()
    assert found == list(anyrecord.open(shards))


def test_the_program_says_what_is_wrong(shards: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in [
        (["--input", "nothing-*.ffr", "--output", "new.ffr"], "no file matches the pattern: 'nothing-*.ffr'"),
        (["--input", shards, "--output", "new.ffr", "--num_shard", "4"], "did you mean --num_shards?"),
        (["--input", shards, "--output", "new.ffr", "--codec", "zstd"], "ffrecord has no option 'codec'"),
        (["--input", shards, "--output", "new.ffr", "--storage", "region"], "'region' is not of the form NAME=VALUE"),
        (["--input", shards, "--output", "new.ffr", "--runner", "no.such.Runner"], "No module named 'no'"),
        (["--output", "new.ffr"], "the following arguments are required: --input"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main(["convert", *arguments])
        assert ended.value.code in (1, 2)
        assert text in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["convert", "--help"])
    assert ended.value.code == 0
    assert "python -m anyrecord.beam convert --input" in capsys.readouterr().out


def test_input_can_be_given_more_than_once(shards: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = anyrecord.open(shards).paths
    flags = ["--output", "new/", "--format=ffrecord", "--runner=FnApiRunner"]
    main(["convert", "--input", first, second, "--input", third, *flags])
    assert capsys.readouterr().out.startswith("records 40\n")


def test_only_the_file_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    os.makedirs("new")
    for name in ("a[bc]", "ab"):
        with anyrecord.create(tmp_path / f"{name}.tfrecord", format="tfrecord") as out:
            out.write_many(RECORDS)
        Path(f"new/{name}.ffr").write_bytes(b"old")
    convert([tmp_path / "a[bc].tfrecord"], "new/", format="ffrecord", runner="FnApiRunner")
    assert Path("new/ab.ffr").read_bytes() == b"old"
    assert list(anyrecord.open([Path("new/a[bc].ffr")])) == RECORDS


def test_without_beam_the_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['apache_beam'] = None; import anyrecord.beam"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.endswith("ImportError: anyrecord.beam needs Apache Beam: pip install 'anyrecord[beam]'\n")
