"""`WriteToRecords`: names, limits, windows, and that nothing is left behind."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord
import apache_beam as beam
import pytest
from anyrecord.beam import ReadFromRecords, WriteToRecords
from anyrecord.beam._sink import RecordSink
from apache_beam.coders import StrUtf8Coder
from apache_beam.io.filesystem import BeamIOError
from apache_beam.options.value_provider import RuntimeValueProvider, StaticValueProvider
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow, TimestampedValue
from array_record.python.array_record_module import ArrayRecordReader
from conformance.formats import CASES, Case

from .files import RECORDS, counters, left_in, pipeline, read

pytestmark = pytest.mark.framework

HERE = "a file:// URL of the current folder"


def write(records: list[Any], *arguments: Any, **keywords: Any) -> Any:
    """Runs a pipeline that writes some records."""
    started = pipeline()
    started | beam.Create(records, reshuffle=False) | WriteToRecords(*arguments, **keywords)
    result = started.run()
    result.wait_until_finish()
    return result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_format_is_written(case: Case) -> None:
    result = write(RECORDS, "out", file_name_suffix=case.suffix, num_shards=3, format=case.format.name, **case.options)
    names = [f"out-{shard:05}-of-00003{case.suffix}" for shard in range(3)]
    assert left_in() == names
    records = anyrecord.open(names)
    assert (records.format, sorted(records)) == (case.format.name, sorted(RECORDS))
    assert all(len(anyrecord.open(name)) >= 13 for name in names), "records are dealt to the shards in turn"
    assert all(anyrecord.verify(name).ok for name in names)
    assert counters(result) == {"records_written": 40, "bytes_written": sum(map(len, RECORDS))}


def test_the_original_reads_what_was_written() -> None:
    write(RECORDS, "out", file_name_suffix=".array_record", num_shards=2, group_size=3, codec="brotli")
    found: list[bytes] = []
    for name in left_in():
        reader = ArrayRecordReader(name)
        found += reader.read_all()
        reader.close()
    assert sorted(found) == sorted(RECORDS)


def test_the_bytes_are_those_of_a_file_that_was_written_without_beam(suffix: str) -> None:
    write(RECORDS, "out", file_name_suffix=suffix, shard_name_template="")
    with anyrecord.create(f"expected{suffix}") as out:
        out.write_many(anyrecord.open(f"out{suffix}"))
    assert Path(f"out{suffix}").read_bytes() == Path(f"expected{suffix}").read_bytes()


@pytest.mark.parametrize(
    ("prefix", "keywords", "names"),
    [
        ("out", {"file_name_suffix": ".ffr", "num_shards": 2}, ["out-00000-of-00002.ffr", "out-00001-of-00002.ffr"]),
        ("out.ffr", {"num_shards": 1}, ["out.ffr-00000-of-00001"]),
        ("out", {"format": "ffrecord", "num_shards": 1}, ["out-00000-of-00001"]),
        ("out", {"file_name_suffix": ".ffr", "shard_name_template": ""}, ["out.ffr"]),
        ("out", {"file_name_suffix": ".ffr", "num_shards": 1, "shard_name_template": "_S_N"}, ["out_0_1.ffr"]),
        (Path("out"), {"file_name_suffix": ".ffr"}, ["out-00000-of-00001.ffr"]),
        ("", {"file_name_suffix": ".ffr"}, ["-00000-of-00001.ffr"]),
        (HERE, {"file_name_suffix": ".ffr"}, ["out-00000-of-00001.ffr"]),
        (StaticValueProvider(str, "out"), {"file_name_suffix": ".ffr"}, ["out-00000-of-00001.ffr"]),
    ],
)
def test_names_are_those_of_beams_sinks(prefix: Any, keywords: dict[str, Any], names: list[str]) -> None:
    write(RECORDS, Path("out").absolute().as_uri() if prefix is HERE else prefix, **keywords)
    assert left_in() == names
    assert sorted(anyrecord.open(names)) == sorted(RECORDS)


def test_the_suffix_of_tfrecord_chooses_the_compression() -> None:
    write(RECORDS, "out", file_name_suffix=".tfrecord.gz")
    assert Path("out-00000-of-00001.tfrecord.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert sorted(anyrecord.open("out-00000-of-00001.tfrecord.gz")) == sorted(RECORDS)


def test_a_prefix_can_be_a_folder_that_is_not_there_yet() -> None:
    write(RECORDS, "new/folder/", file_name_suffix=".ffr", shard_name_template="SS-of-NN")
    assert left_in() == ["new"]
    assert left_in("new/folder") == ["00-of-01.ffr"]


@pytest.mark.parametrize("shards", [0, 1, 2])
def test_limits_hold_for_every_kind_of_write(shards: int) -> None:
    write(RECORDS, "records/out", file_name_suffix=".ffr", num_shards=shards, max_records_per_shard=7)
    counts = [len(anyrecord.open(f"records/{name}")) for name in left_in("records")]
    assert (max(counts), sum(counts)) == (7, 40)
    write(RECORDS, "bytes/out", file_name_suffix=".ffr", num_shards=shards, max_bytes_per_shard=20)
    files = [list(anyrecord.open(f"bytes/{name}")) for name in left_in("bytes")]
    assert all(sum(map(len, file[:-1])) < 20 for file in files), "a file ends with the record that fills it"
    assert sorted(record for file in files for record in file) == sorted(RECORDS)
    assert len(files) > 5


def test_a_coder_encodes() -> None:
    write(["grün", "rot"], "out", file_name_suffix=".ffr", shard_name_template="", coder=StrUtf8Coder())
    assert sorted(anyrecord.open("out.ffr")) == ["grün".encode(), b"rot"]


def test_no_elements_make_an_empty_file_or_none(suffix: str) -> None:
    write([], "out", file_name_suffix=suffix, num_shards=2)
    assert len(left_in()) == 2
    assert len(anyrecord.open(f"out{suffix}@2")) == 0
    write([], "none/out", file_name_suffix=suffix, num_shards=2, skip_if_empty=True)
    assert not os.path.exists("none")


def test_the_result_is_the_names() -> None:
    names = read(beam.Create(RECORDS), WriteToRecords("out", file_name_suffix=".ffr", num_shards=2))
    assert names == [os.path.abspath(f"out-0000{shard}-of-00002.ffr") for shard in range(2)]


def test_options_are_checked_where_the_pipeline_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "has no known suffix", {}),
        (ValueError, "ffrecord has no option 'codec'", {"format": "ffrecord", "codec": "zstd"}),
        (TypeError, "unknown option 'colour'; the options of writers are codec", {"format": "ffrecord", "colour": 1}),
        (ValueError, "num_shards=-1 is not valid", {"format": "ffrecord", "num_shards": -1}),
        (ValueError, "max_records_per_shard=0 is not valid", {"format": "ffrecord", "max_records_per_shard": 0}),
        (ValueError, "Shard number pattern", {"format": "ffrecord", "shard_name_template": "-of-N"}),
        (TypeError, "must be a string", {"format": "ffrecord", "file_name_suffix": 7}),
        (TypeError, "coder= takes a coder of Beam", {"format": "ffrecord", "coder": "utf-8"}),
        (ValueError, "takes a name with", {"file_name_suffix": "[1].ffr"}),
        (
            ValueError,
            "means one file, but a limit can need more",
            {"format": "ffrecord", "shard_name_template": "", "max_records_per_shard": 7},
        ),
    ]
    for error, text, keywords in wrong:
        with pytest.raises(error, match=text):
            WriteToRecords("out", **keywords)
    with pytest.raises(ValueError, match="gs:"):
        WriteToRecords(Path("gs://bucket/out"), format="ffrecord")
    monkeypatch.setattr(RuntimeValueProvider, "runtime_options", None)  # as before a pipeline runs
    later = RuntimeValueProvider("name", str, "out")
    with pytest.raises(ValueError, match="known only at run time: pass format="):
        WriteToRecords(later)
    with pytest.raises(Exception, match=re.escape("elements must be bytes, not int; pass coder=")):
        write([7], "out", file_name_suffix=".ffr")


def test_a_name_that_beam_would_take_for_a_pattern_is_refused_also_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("folder[1]/out", "out*", "out?"):
        with pytest.raises(ValueError, match=r"cannot be written: Beam takes a name with \*, \? or \[ for a pattern"):
            WriteToRecords(prefix, format="ffrecord")
    monkeypatch.setattr(RuntimeValueProvider, "runtime_options", None)
    sink = RecordSink(RuntimeValueProvider("name", str, "out"), format="ffrecord")
    RuntimeValueProvider.set_runtime_options({"name": "out*"})
    with pytest.raises(ValueError, match="cannot be written"):
        sink.initialize_write()


# --- windows ---


def unbounded(*parts: tuple[int, list[bytes]]) -> Stream:
    """Records that arrive at a time, in seconds, and then no more."""
    stream = Stream()
    for second, records in parts:
        stream = stream.advance_watermark_to(second)
        stream = stream.add_elements([TimestampedValue(record, second) for record in records])
    return stream.advance_watermark_to_infinity()


@pytest.mark.parametrize("shards", [0, 2])
def test_each_window_of_an_unbounded_collection_becomes_files(suffix: str, shards: int) -> None:
    started = pipeline("--streaming", runner=BundleBasedDirectRunner())
    stream = started | unbounded((1, RECORDS[:10]), (3, RECORDS[10:15]), (12, RECORDS[15:]))
    sink = WriteToRecords("out", file_name_suffix=suffix, num_shards=shards, triggering_frequency=10)
    stream | sink
    started.run().wait_until_finish()
    count = max(1, shards)
    names = [f"out-[{w}.0, {w + 10}.0)-{n:05}-of-{count:05}{suffix}" for w in (0, 10) for n in range(count)]
    assert left_in() == sorted(names)
    for names_of_window, expected in ((names[:count], RECORDS[:15]), (names[count:], RECORDS[15:])):
        assert sorted(anyrecord.open(names_of_window)) == sorted(expected)


def test_windows_of_the_collection_and_limits_hold_for_unbounded_collections() -> None:
    started = pipeline("--streaming", runner=BundleBasedDirectRunner())
    stream = started | unbounded((1, RECORDS[:10]), (7, RECORDS[10:]))
    windowed = stream | beam.WindowInto(FixedWindows(5))
    windowed | WriteToRecords(
        "out", file_name_suffix=".ffr", max_records_per_shard=4, shard_name_template="-V-SS-of-NN"
    )
    started.run().wait_until_finish()
    first = "out-[1970-01-01T00-00-00, 1970-01-01T00-00-05)-00-of-03.ffr"
    assert first in left_in()
    counts = [len(anyrecord.open([name])) for name in left_in()]
    assert (max(counts), sum(counts), len(counts)) == (4, 40, 3 + 8)


def test_windows_of_a_bounded_collection_are_written_together() -> None:
    with pipeline() as started:
        stamped = started | beam.Create(RECORDS) | beam.Map(lambda record: TimestampedValue(record, len(record)))
        stamped | beam.WindowInto(FixedWindows(1)) | WriteToRecords("out", file_name_suffix=".ffr", num_shards=1)
    assert sorted(anyrecord.open("out-00000-of-00001.ffr")) == sorted(RECORDS)


def test_an_unbounded_collection_without_windows_needs_a_frequency() -> None:
    started = pipeline("--streaming", runner=BundleBasedDirectRunner())
    with pytest.raises(ValueError, match="triggering_frequency must be set"):
        started | unbounded((1, RECORDS)) | WriteToRecords("out", file_name_suffix=".ffr")


@pytest.mark.parametrize("template", ["", "-SS-of-NN"])
def test_windows_of_an_unbounded_collection_cannot_have_the_same_names(template: str) -> None:
    started = pipeline("--streaming", runner=BundleBasedDirectRunner())
    windowed = started | unbounded((1, RECORDS)) | beam.WindowInto(FixedWindows(5))
    with pytest.raises(ValueError, match="gives the files of all windows the same names: add W"):
        windowed | WriteToRecords("out", file_name_suffix=".ffr", shard_name_template=template)


# --- failures ---


class FailAt(beam.DoFn):
    """Fails at one record, so often. Files count how often, because bundles may run anywhere."""

    def __init__(self, record: bytes, times: int) -> None:
        self._record, self._times, self._folder = record, times, os.getcwd()

    def process(self, record: bytes) -> Iterator[bytes]:
        failed = len([name for name in os.listdir(self._folder) if name.startswith("failed-")])
        if record == self._record and failed < self._times:
            Path(self._folder, f"failed-{failed}").touch()
            raise OSError("a fault of the test")
        yield record


def test_a_bundle_that_failed_and_was_retried_leaves_nothing_behind(suffix: str) -> None:
    started = pipeline(runner=BundleBasedDirectRunner())
    failing = started | beam.Create(RECORDS) | beam.ParDo(FailAt(RECORDS[20], 3))
    failing | WriteToRecords("out/a", file_name_suffix=suffix)
    started.run().wait_until_finish()
    assert [name for name in left_in() if name.startswith("failed-")] == ["failed-0", "failed-1", "failed-2"]
    assert sorted(anyrecord.open("out")) == sorted(RECORDS)
    assert not [name for name in left_in("out") if not name.startswith("a-")], "no temporary folder"


@pytest.mark.parametrize("shards", [0, 2])
def test_bundles_that_run_twice_give_each_record_once(suffix: str, shards: int) -> None:
    with anyrecord.create(f"in{suffix}") as out:
        out.write_many(RECORDS)
    started = pipeline("--direct_runner_bundle_repeat=2")
    reading = ReadFromRecords(f"in{suffix}", desired_bundle_size=50)
    started | reading | WriteToRecords("out/a", file_name_suffix=suffix, num_shards=shards)
    started.run().wait_until_finish()
    assert sorted(anyrecord.open("out")) == sorted(RECORDS)
    assert not [name for name in left_in("out") if not name.startswith("a-")]


@pytest.mark.parametrize("format", ["array_record", "ffrecord", "recordio", "tfrecord"])
def test_a_bundle_that_fails_deletes_its_temporary_file(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # what pytest keeps would keep the file open
    failing = beam.ParDo(FailAt(RECORDS[20], 1))
    with pytest.raises(Exception, match="a fault of the test"), pipeline() as started:
        started | beam.Create(RECORDS, reshuffle=False) | failing | WriteToRecords("out/a", format=format)
    gc.collect()
    folders = left_in("out")
    assert all(folder.startswith("beam-temp-a-") for folder in folders)
    assert [left_in(f"out/{folder}") for folder in folders] == [[]], "only a folder is left, because the job has failed"


class Unwritable(StrUtf8Coder):
    def encode(self, value: str) -> bytes:
        if value == "bad":
            raise ValueError("cannot be encoded")
        return value.encode()


def test_a_record_that_cannot_be_encoded_deletes_the_temporary_file() -> None:
    os.makedirs("folder")
    sink = RecordSink("folder/out", format="ffrecord", coder=Unwritable(), max_records_per_shard=1)
    writer = sink.open_writer("folder", "uid")
    writer.write("good")
    writer.write("also good")
    assert len(left_in("folder")) == 2
    with pytest.raises(ValueError, match="cannot be encoded"):
        writer.write("bad")
    assert left_in("folder") == []


def test_an_error_at_the_end_is_no_value_error_which_beam_would_ignore() -> None:
    os.makedirs("folder")
    writer = RecordSink("folder/out", format="ffrecord").open_writer("folder", "uid")
    writer.write(b"a record")
    assert writer._file is not None
    writer._file.writer.discard()
    with pytest.raises(RuntimeError, match=r"closed|discarded"):
        writer.close()
    assert left_in("folder") == []


@pytest.mark.parametrize("window", [None, GlobalWindow(), IntervalWindow(0, 10)])
def test_finalizing_again_after_an_interruption_finds_what_was_renamed(window: Any) -> None:
    sink = RecordSink("out", file_name_suffix=".ffr")
    if isinstance(window, IntervalWindow):
        sink = sink.with_template("-W-SSSSS-of-NNNNN")
    folder = sink.initialize_write()
    paths: list[Any] = []
    for number in range(3):
        writer = sink.open_writer(folder, f"uid-{number}")
        writer.write(b"%d" % number)
        paths.append(writer.close())
    Path(folder, "of-a-killed-worker").touch()
    final = sink._get_final_name(1, 3, window)
    os.rename(paths[1], final)  # as far as the first attempt came
    found = list(sink.finalize_windowed_write(folder, paths, [], window))
    assert sorted(os.path.basename(name) for name in [*found, final]) == left_in()
    assert sorted(anyrecord.open(left_in())) == [b"0", b"1", b"2"]
    os.remove(final)
    with pytest.raises(BeamIOError):
        list(sink.finalize_windowed_write(folder, paths, [], window))


def test_files_of_an_earlier_run_are_replaced() -> None:
    for records in (RECORDS, RECORDS[:5]):
        write(records, "out", file_name_suffix=".ffr", num_shards=2)
        assert sorted(anyrecord.open("out.ffr@2")) == sorted(records)
