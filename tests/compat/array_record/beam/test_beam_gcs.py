"""What is uploaded to Google Cloud Storage: `ConvertToArrayRecordGCS`, and the pipelines that use it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from anyrecord.compat.array_record.beam import demo, dofns
from anyrecord.compat.array_record.beam.dofns import ConvertToArrayRecordGCS
from anyrecord.compat.array_record.beam.pipelines import convert_tf_to_arrayrecord_gcs
from apache_beam.options.pipeline_options import PipelineOptions

from .beam_files import in_process, names, read_by_original, write_tfrecords

FILES = [("gs://elsewhere/a/file1.tfrecord", [b"record1", b"record2"]), ("file2.tfrecord", [b"record3"])]


def uploaded(bucket: Any, folder: Path) -> dict[str, list[bytes]]:
    """The objects of a bucket, as the original reads them."""
    found = {}
    for blob in bucket.list_blobs():
        blob.download_to_filename(folder / "downloaded")
        found[blob.name] = read_by_original(folder / "downloaded")
    return found


def convert(*arguments: Any, **keywords: Any) -> None:
    """Converts one element without a pipeline."""
    dofn: Any = ConvertToArrayRecordGCS()
    try:
        assert dofn.process(*arguments, **keywords) is None
    finally:
        dofn.teardown()


def test_the_pipeline_of_the_documentation(gcs: Any, tmp_path: Path) -> None:
    records = write_tfrecords(tmp_path / "in", 300, 0, 2)
    source, target = gcs.create_bucket("source-bucket"), gcs.create_bucket("dest-bucket")
    for name in names(tmp_path / "in"):
        source.blob(f"tfrecords/{name}").upload_from_filename(tmp_path / "in" / name)
    source.blob("tfrecords/notes.txt").upload_from_string("not a record")
    beam_options = PipelineOptions(["--runner=FnApiRunner", "--no_auth"])
    convert_tf_to_arrayrecord_gcs(
        args=["--input", "gs://source-bucket/tfrecords/*.tfrecord", "--output", "gs://dest-bucket/arrayrecords/"],
        pipeline_options=beam_options,
    ).run()
    assert uploaded(target, tmp_path) == {
        "arrayrecords/in-0.tfrecord.arrayrecord": records[:300],
        "arrayrecords/in-1.tfrecord.arrayrecord": [],
        "arrayrecords/in-2.tfrecord.arrayrecord": records[300:],
    }


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({}, "x/in-0.tfrecord.arrayrecord"),
        ({"overwrite_extension": True}, "x/in-0.arrayrecord"),
        ({"overwrite_extension": True, "file_path_suffix": ".array_record"}, "x/in-0.array_record"),
        ({"file_path_suffix": ""}, "x/in-0.tfrecord"),
    ],
    ids=str,
)
def test_names_of_the_output(gcs: Any, tmp_path: Path, keywords: dict[str, Any], expected: str) -> None:
    records = write_tfrecords(tmp_path / "in", 4)
    bucket = gcs.create_bucket("bucket")
    args = {"input": f"{tmp_path}/in/in-*.tfrecord", "output": "gs://bucket/x"}
    convert_tf_to_arrayrecord_gcs(args=args, pipeline_options=in_process(), **keywords).run()
    assert uploaded(bucket, tmp_path) == {expected: records}


def test_two_files_of_one_name_are_an_error(gcs: Any, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_tfrecords(tmp_path / folder, 4)
    bucket = gcs.create_bucket("bucket")
    args = {"input": f"{tmp_path}/*/in-*.tfrecord", "output": "gs://bucket/x"}
    pipeline = convert_tf_to_arrayrecord_gcs(args=args, pipeline_options=in_process())
    with pytest.raises(Exception, match=r"would both be written to in-0\.tfrecord\.arrayrecord"):
        pipeline.run()
    assert list(bucket.list_blobs()) == []


def test_the_output_must_be_in_google_cloud_storage(tmp_path: Path) -> None:
    for output in (str(tmp_path), "s3://bucket/x", "gs://", "gs:///x"):
        with pytest.raises(ValueError, match="must be in Google Cloud Storage"):
            convert_tf_to_arrayrecord_gcs(args={"input": "x", "output": output}, pipeline_options=in_process())


@pytest.mark.parametrize(
    ("path", "prefix"),
    [("gs://bucket", ""), ("gs://bucket/", ""), ("gs://bucket/a/b", "a/b/")],
)
def test_the_dofn_uploads_one_file_for_each_element(gcs: Any, tmp_path: Path, path: str, prefix: str) -> None:
    bucket = gcs.create_bucket("bucket")
    with beam.Pipeline(options=in_process()) as pipeline:
        _ = (
            pipeline
            | beam.Create(FILES)
            | beam.ParDo(ConvertToArrayRecordGCS(), path=path, file_path_suffix=".array_record")
        )
    assert uploaded(bucket, tmp_path) == {
        f"{prefix}file1.tfrecord.array_record": [b"record1", b"record2"],
        f"{prefix}file2.tfrecord.array_record": [b"record3"],
    }


def test_signs_of_urls_are_part_of_the_name() -> None:
    assert dofns.bucket_and_folder("gs://bucket/a?b#c/%20") == ("bucket", "a?b#c/%20/")


def test_an_older_object_is_replaced(gcs: Any, tmp_path: Path) -> None:
    bucket = gcs.create_bucket("bucket")
    for records in ([b"old", b"older"], (b"new",)):
        convert(("a.x", records), "gs://bucket/", overwrite_extension=True)
    assert uploaded(bucket, tmp_path) == {"a.arrayrecord": [b"new"]}


def test_the_local_folder_is_used_and_left_empty(gcs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.cloud.storage import Blob

    bucket = gcs.create_bucket("bucket")
    places: list[Path] = []
    upload = Blob.upload_from_filename

    def watched(blob: Any, filename: str, **keywords: Any) -> None:
        places.append(Path(filename))
        upload(blob, filename, **keywords)

    monkeypatch.setattr(Blob, "upload_from_filename", watched)
    (tmp_path / "local").mkdir()
    for folder in ("/tmp/", str(tmp_path / "local")):
        convert(FILES[1], "gs://bucket/", write_dir=folder)
        assert places[-1].is_relative_to(folder)
        assert not places[-1].parent.exists()
    assert uploaded(bucket, tmp_path) == {"file2.tfrecord.arrayrecord": [b"record3"]}
    assert names(tmp_path / "local") == []


def failing_records() -> Any:
    yield b"good"
    raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize(
    "records", [[b"good", "text"], [b"good", None], failing_records()], ids=["text", "None", "error"]
)
def test_records_that_fail_leave_no_file(gcs: Any, tmp_path: Path, records: Any) -> None:
    bucket = gcs.create_bucket("bucket")
    with pytest.raises((TypeError, ZeroDivisionError)):
        convert(("a", records), "gs://bucket/", write_dir=str(tmp_path))
    assert names(tmp_path) == []
    assert list(bucket.list_blobs()) == []


def test_an_upload_that_fails_leaves_no_file(gcs: Any, tmp_path: Path) -> None:
    from google.api_core.exceptions import NotFound

    with pytest.raises(NotFound):
        convert(FILES[0], "gs://no-such-bucket/", write_dir=str(tmp_path))
    assert names(tmp_path) == []
    with pytest.raises(Exception, match="no-such-bucket"), beam.Pipeline(options=in_process()) as pipeline:
        _ = pipeline | beam.Create(FILES) | beam.ParDo(ConvertToArrayRecordGCS(), "gs://no-such-bucket/", str(tmp_path))
    assert names(tmp_path) == []


def test_the_client_can_be_replaced_in_tests_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = []

    class Storage:
        """Keeps the names of what is uploaded."""

        Client = bucket = property(lambda self: lambda *_: self)

        def blob(self, name: str) -> Storage:
            uploads.append(name)
            return self

        def upload_from_filename(self, _file: str, **_keywords: Any) -> None:
            uploads.append("done")

        def close(self) -> None:
            uploads.append("closed")

    monkeypatch.setattr(dofns, "storage", Storage())
    convert(FILES[0], "gs://bucket/folder")
    assert uploads == ["folder/file1.tfrecord.arrayrecord", "done", "closed"]


def test_the_demo(gcs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow import train

    bucket = gcs.create_bucket("bucket")
    line = ["demo", "--input=gs://bucket/tf/movies", "--output=gs://bucket/ar/", "--runner=FnApiRunner", "--no_auth"]
    monkeypatch.setattr("sys.argv", line)
    pipeline, last = demo.main()
    assert isinstance(last, beam.PCollection)
    assert list(bucket.list_blobs()) == []
    pipeline.run()
    written = [blob.name for blob in bucket.list_blobs()]
    shards = [f"movies-{i:05d}-of-00004" for i in range(4)]
    assert written == [f"ar/{name}.arrayrecord" for name in shards] + [f"tf/{name}.tfrecord" for name in shards]
    for name in shards:
        bucket.blob(f"tf/{name}.tfrecord").delete()
    records = [record for file in uploaded(bucket, tmp_path).values() for record in file]
    ages = [train.Example.FromString(record).features.feature["Age"].int64_list.value[0] for record in records]
    assert sorted(ages) == [19, 29, 35, 39]


def test_copies_of_remote_files_are_removed(gcs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    write_tfrecords(tmp_path / "in", 4)
    bucket = gcs.create_bucket("bucket")
    bucket.blob("in-0.tfrecord").upload_from_filename(tmp_path / "in" / "in-0.tfrecord")
    for output in ("gs://bucket/out/", "gs://no-such-bucket/"):
        pipeline = convert_tf_to_arrayrecord_gcs(
            args={"input": "gs://bucket/in-0.tfrecord", "output": output}, pipeline_options=in_process()
        )
        if output == "gs://bucket/out/":
            pipeline.run()
        else:
            with pytest.raises(Exception, match="no-such-bucket"):
                pipeline.run()
        assert names(tmp_path / "temporary") == []
