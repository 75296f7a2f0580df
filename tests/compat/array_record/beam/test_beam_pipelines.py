"""The pipelines that write through the sink: what they read, what they write, and how they are called."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import anyrecord
import apache_beam as beam
import pytest
from anyrecord.compat.array_record.beam import pipelines
from apache_beam.io.filesystem import BeamIOError

from .beam_files import in_process, names, read_by_original, write_tfrecords


def read_all(folder: Path) -> list[bytes]:
    return [record for name in names(folder) for record in read_by_original(folder / name)]


def test_matching_shards(tmp_path: Path) -> None:
    records = write_tfrecords(tmp_path / "in", 3, 50, 1, 7)
    pipelines.convert_tf_to_arrayrecord_disk_match_shards(
        args={"input": str(tmp_path / "in" / "*.tfrecord"), "output": str(tmp_path / "out" / "movies")},
        pipeline_options=in_process(),
    ).run()
    assert names(tmp_path / "out") == [f"movies-{i:05d}-of-00004.arrayrecord" for i in range(4)]
    assert sorted(read_all(tmp_path / "out")) == sorted(records)


def test_files_without_records_count_as_shards(tmp_path: Path) -> None:
    records = write_tfrecords(tmp_path / "in", 0, 5, 0)
    (tmp_path / "in" / "in-9.tfrecord").write_bytes(b"")
    pipelines.convert_tf_to_arrayrecord_disk_match_shards(
        ["--input", str(tmp_path / "in" / "in-*"), "--output", str(tmp_path / "out" / "x")], in_process()
    ).run()
    assert names(tmp_path / "out") == [f"x-{i:05d}-of-00004.arrayrecord" for i in range(4)]
    assert sorted(read_all(tmp_path / "out")) == sorted(records)


@pytest.mark.parametrize("num_shards", [1, 3])
def test_any_number_of_shards(tmp_path: Path, num_shards: int) -> None:
    records = write_tfrecords(tmp_path / "in", 20, 10)
    pipelines.convert_tf_to_arrayrecord_disk(
        num_shards=num_shards,
        args=["--input", str(tmp_path / "in" / "*"), f"--output={tmp_path}/out/x"],
        pipeline_options=in_process(),
    ).run()
    assert names(tmp_path / "out") == [f"x-{i:05d}-of-{num_shards:05d}.arrayrecord" for i in range(num_shards)]
    assert sorted(read_all(tmp_path / "out")) == sorted(records)


def test_one_file_to_one_file_keeps_the_order(tmp_path: Path) -> None:
    records = write_tfrecords(tmp_path / "in", 500)
    arguments = {"input": tmp_path / "in" / "in-0.tfrecord", "output": tmp_path / "x"}
    pipelines.convert_tf_to_arrayrecord_disk(args=arguments, pipeline_options=in_process()).run()
    assert read_by_original(tmp_path / "x-00000-of-00001.arrayrecord") == records


def test_compressed_files_are_known_by_their_suffix_as_in_beam(tmp_path: Path) -> None:
    records = write_tfrecords(tmp_path / "in", 10, 20, 30)
    for name, compress in (("in-1.tfrecord", gzip.compress), ("in-2.tfrecord", bz2.compress)):
        plain = tmp_path / "in" / name
        plain.with_suffix(".gz" if compress is gzip.compress else ".bz2").write_bytes(compress(plain.read_bytes()))
        plain.unlink()
    pipelines.convert_tf_to_arrayrecord_disk(
        args={"input": f"{tmp_path}/in/*", "output": f"{tmp_path}/out/x"}, pipeline_options=in_process()
    ).run()
    assert sorted(read_all(tmp_path / "out")) == sorted(records)


@pytest.mark.parametrize(
    "convert", [pipelines.convert_tf_to_arrayrecord_disk, pipelines.convert_tf_to_arrayrecord_disk_match_shards]
)
def test_from_and_to_google_cloud_storage(gcs: Any, tmp_path: Path, convert: Any) -> None:
    records = write_tfrecords(tmp_path / "in", 5, 6)
    source, target = gcs.create_bucket("source-bucket"), gcs.create_bucket("dest-bucket")
    for name in names(tmp_path / "in"):
        source.blob(f"tfrecords/{name}").upload_from_filename(tmp_path / "in" / name)
    args = ["--input", "gs://source-bucket/tfrecords/*.tfrecord", "--output", "gs://dest-bucket/arrayrecords/x"]
    convert(args=args, pipeline_options=in_process()).run()
    (tmp_path / "out").mkdir()
    for blob in target.list_blobs():
        blob.download_to_filename(tmp_path / "out" / blob.name.removeprefix("arrayrecords/"))
    assert {name.partition("-of-")[2] for name in names(tmp_path / "out")} <= {"00001.arrayrecord", "00002.arrayrecord"}
    assert sorted(read_all(tmp_path / "out")) == sorted(records)


def test_a_damaged_file_is_an_error_and_leaves_no_output(tmp_path: Path) -> None:
    write_tfrecords(tmp_path / "in", 20)
    file = tmp_path / "in" / "in-0.tfrecord"
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    for name, content in (("in-0.tfrecord", bytes(data)), ("in-0.tfrecord.gz", gzip.compress(bytes(data)))):
        file = tmp_path / "in" / name
        file.write_bytes(content)
        pipeline = pipelines.convert_tf_to_arrayrecord_disk(
            args={"input": str(file), "output": f"{tmp_path}/out/x"}, pipeline_options=in_process()
        )
        with pytest.raises(anyrecord.ChecksumError) as failed:
            pipeline.run()
        assert str(file) in str(failed.value)
        assert not list(tmp_path.glob("out/x*"))


def test_patterns_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = write_tfrecords(tmp_path / "in", 3, 4)
    monkeypatch.chdir(tmp_path / "in")
    for pattern in ("*.tfrecord", "../in/in-*"):
        arguments = {"input": pattern, "output": "../out/x"}
        pipelines.convert_tf_to_arrayrecord_disk(2, arguments, in_process()).run()
        pipelines.convert_tf_to_arrayrecord_disk_match_shards(arguments, in_process()).run()
        assert sorted(read_all(tmp_path / "out")) == sorted(records)


def test_a_pattern_without_files_is_an_error(tmp_path: Path) -> None:
    arguments = {"input": f"{tmp_path}/*.nothing", "output": f"{tmp_path}/out/x"}
    with pytest.raises(FileNotFoundError, match="nothing"):
        pipelines.convert_tf_to_arrayrecord_disk(args=arguments, pipeline_options=in_process())
    pipeline = pipelines.convert_tf_to_arrayrecord_disk_match_shards(arguments, in_process())
    with pytest.raises((BeamIOError, RuntimeError), match="nothing"):
        pipeline.run()


def test_arguments_come_from_the_command_line_when_the_function_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = write_tfrecords(tmp_path / "in", 4)
    line = ["convert.py", "--input", f"{tmp_path}/in/*", "--output", f"{tmp_path}/out/x", "--runner=FnApiRunner"]
    monkeypatch.setattr("sys.argv", line)
    pipelines.convert_tf_to_arrayrecord_disk(num_shards=2).run()
    assert sorted(read_all(tmp_path / "out")) == sorted(records)
    monkeypatch.setattr("sys.argv", ["convert.py"])
    with pytest.raises(ValueError, match="no input is given"):
        pipelines.convert_tf_to_arrayrecord_disk()


def test_options_of_beam_in_each_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tfrecords(tmp_path / "in", 4)
    places = {"input": f"{tmp_path}/in/*", "output": f"{tmp_path}/out/x"}
    line = ["--input", places["input"], "--output", places["output"]]

    def options(args: Any, pipeline_options: Any) -> tuple[Any, Any]:
        found = pipelines.convert_tf_to_arrayrecord_disk(args=args, pipeline_options=pipeline_options)
        assert isinstance(found, beam.Pipeline)
        every = found.options.get_all_options()
        return every["runner"], every["job_name"]

    for given in ({"runner": "FnApiRunner", "job_name": "a"}, ["--runner=FnApiRunner", "--job_name=a"]):
        assert options(places, given) == options(line, given) == ("FnApiRunner", "a")
    monkeypatch.setattr("sys.argv", ["convert.py", "--runner=FnApiRunner"])
    assert options(places, None)[0] == "FnApiRunner"
    assert options([*line, "--job_name", "b"], None) == ("FnApiRunner", "b")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ("--input x", None, TypeError, "args must be a dict"),
        (7, None, TypeError, "args must be a dict"),
        ({"input": "x"}, None, ValueError, "no output is given"),
        ({"output": "x"}, None, ValueError, "no input is given"),
        (["--input", "x"], None, ValueError, "no output is given"),
        (["--input", "x", "--output", "y", "--num_shards", "3"], {}, ValueError, "move the rest to pipeline_options"),
        ({"input": "x", "output": "y"}, 5, TypeError, "pipeline_options must be"),
        ({"input": "x", "output": "y"}, "--runner=X", TypeError, "pipeline_options must be"),
    ],
    ids=str,
)
def test_wrong_arguments_say_what_is_expected(arguments: Any, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pipelines.convert_tf_to_arrayrecord_disk(args=arguments, pipeline_options=options)


def test_from_the_command_line_of_the_module(tmp_path: Path, gcs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    records = write_tfrecords(tmp_path / "in", 4, 2)
    line = ["pipelines", "--input", f"{tmp_path}/in/*", "--runner=FnApiRunner", "--no_auth"]
    monkeypatch.setattr("sys.argv", [*line, "--output", f"{tmp_path}/out/x", "--num_shards", "5"])
    pipelines.main()
    assert names(tmp_path / "out") == [f"x-{i:05d}-of-00005.arrayrecord" for i in range(5)]
    assert sorted(read_all(tmp_path / "out")) == sorted(records)

    bucket = gcs.create_bucket("bucket")
    monkeypatch.setattr("sys.argv", [*line, "--output=gs://bucket/each"])
    pipelines.main()
    monkeypatch.setattr("sys.argv", [*line, "--output=gs://bucket/all", "--num_shards=1"])
    pipelines.main()
    assert [blob.name for blob in bucket.list_blobs()] == [
        "all-00000-of-00001.arrayrecord",
        "each/in-0.tfrecord.arrayrecord",
        "each/in-1.tfrecord.arrayrecord",
    ]


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(pipelines.example_to_tfrecord, "tfrecord"), (pipelines.example_to_arrayrecord, "arrayrecord")],
)
def test_examples_are_stored_serialized(tmp_path: Path, write: Any, suffix: str) -> None:
    from tensorflow import train

    write(num_shards=2, args={"output": f"{tmp_path}/movies"}, pipeline_options=in_process()).run()
    assert names(tmp_path) == [f"movies-{i:05d}-of-00002.{suffix}" for i in range(2)]
    examples = [train.Example.FromString(record) for record in anyrecord.open(f"{tmp_path}/movies-*", format=None)]
    ages = sorted(example.features.feature["Age"].int64_list.value[0] for example in examples)
    assert ages == [19, 29, 35, 39]
