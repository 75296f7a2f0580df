"""`WriteToArrayRecord`: names, contents and places of the files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import array_record.beam.arrayrecordio as original
import pytest
from anyrecord.compat.array_record.beam import arrayrecordio as ours
from anyrecord.compat.array_record.python.array_record_module import ArrayRecordWriter
from apache_beam.io.filesystem import CompressionTypes

from .beam_files import in_process, names, read_by_original


def write(elements: list[Any], *arguments: Any, module: Any = ours, **keywords: Any) -> None:
    with beam.Pipeline(options=in_process()) as pipeline:
        _ = pipeline | beam.Create(elements) | module.WriteToArrayRecord(*arguments, **keywords)


def test_a_csv_becomes_json_in_a_hundred_shards(tmp_path: Path) -> None:
    with (tmp_path / "movies.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["title", "year", "rating"])
        rows.writerows([f'Movie "{i}", part {i % 3}', 1900 + i % 120, i / 7] for i in range(1000))

    def parse(line: str) -> bytes:
        title, year, rating = next(csv.reader([line]))
        return json.dumps({"title": title, "year": int(year), "rating": float(rating)}).encode()

    with beam.Pipeline(options=in_process()) as pipeline:
        _ = (
            pipeline
            | beam.io.ReadFromText(str(tmp_path / "movies.csv"), skip_header_lines=1)
            | beam.Map(parse)
            | ours.WriteToArrayRecord(
                file_path_prefix=str(tmp_path / "out" / "movies"), file_name_suffix=".array_record", num_shards=100
            )
        )
    assert names(tmp_path / "out") == [f"movies-{i:05d}-of-00100.array_record" for i in range(100)]
    shards = [read_by_original(tmp_path / "out" / name) for name in names(tmp_path / "out")]
    assert {len(shard) for shard in shards} == {10}
    found = sorted((json.loads(record) for shard in shards for record in shard), key=lambda row: row["rating"])
    assert found == [
        {"title": f'Movie "{i}", part {i % 3}', "year": 1900 + i % 120, "rating": i / 7} for i in range(1000)
    ]


CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "one shard": ([b"a", b"b", b""], {"num_shards": 1}),
    "three shards": ([b"%d" % i for i in range(9)], {"num_shards": 3, "file_name_suffix": ".arrayrecord"}),
    "more shards than records": ([b"a"], {"num_shards": 3}),
    "the runner decides": ([b"a", b"b"], {"file_name_suffix": ".x"}),
    "no records": ([], {"file_name_suffix": ".array_record"}),
    "another template": ([b"a", b"b"], {"num_shards": 2, "shard_name_template": "-SS"}),
    "no template": ([b"a", b"b"], {"num_shards": 5, "shard_name_template": ""}),
    "not bytes": ([1, "text", 2.5, None, ("a", 1)], {"num_shards": 1}),
    "a coder": (["ä", "b"], {"num_shards": 1, "coder": beam.coders.StrUtf8Coder()}),
    "compression is ignored": ([b"a", b"b"], {"num_shards": 1, "compression_type": CompressionTypes.GZIP}),
    "a suffix of a compressed file": ([b"a", b"b"], {"num_shards": 1, "file_name_suffix": ".gz"}),
}


@pytest.mark.parametrize(("elements", "keywords"), CASES.values(), ids=list(CASES))
def test_files_are_those_of_the_original(tmp_path: Path, elements: list[Any], keywords: dict[str, Any]) -> None:
    for side, module in (("ours", ours), ("theirs", original)):
        write(elements, str(tmp_path / side / "x"), module=module, **keywords)
    assert names(tmp_path / "ours") == names(tmp_path / "theirs")
    found = {
        side: sorted(record for file in (tmp_path / side).iterdir() for record in read_by_original(file))
        for side in ("ours", "theirs")
    }
    assert found["ours"] == found["theirs"]
    assert len(found["ours"]) == len(elements)


def test_one_shard_keeps_the_order_and_has_the_bytes_of_the_original(tmp_path: Path) -> None:
    records = [b"record %d" % i for i in range(50)]
    for side, module in (("ours", ours), ("theirs", original)):
        write(records, str(tmp_path / side), num_shards=1, module=module)
    mine, other = (tmp_path / f"{side}-00000-of-00001" for side in ("ours", "theirs"))
    assert read_by_original(mine) == read_by_original(other) == records
    assert mine.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [(5,), ("x", 5), ("x", "", 0, "-XX-of-NN"), ("x", "", 0, None, beam.coders.BytesCoder(), "zip")],
    ids=str,
)
def test_wrong_arguments_are_errors_where_the_pipeline_is_built(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        original.WriteToArrayRecord(*arguments)
    with pytest.raises(theirs.type):
        ours.WriteToArrayRecord(*arguments)


def test_the_number_of_shards_can_be_counted_by_the_pipeline(tmp_path: Path) -> None:
    for count in (1, 4):
        folder = tmp_path / str(count)
        with beam.Pipeline(options=in_process()) as pipeline:
            shards = pipeline | "count" >> beam.Create([count])
            _ = (
                pipeline
                | "records" >> beam.Create([b"%d" % i for i in range(12)])
                | ours.WriteToArrayRecord(str(folder / "x"), num_shards=beam.pvalue.AsSingleton(shards))
            )
        assert names(folder) == [f"x-{i:05d}-of-{count:05d}" for i in range(count)]
        assert sorted(r for file in folder.iterdir() for r in read_by_original(file)) == sorted(
            b"%d" % i for i in range(12)
        )


class GroupedSink(ours._ArrayRecordSink):
    """As the original's documentation says: other options by a subclass."""

    def open(self, temp_path: str) -> Any:
        return ArrayRecordWriter(temp_path, "group_size:7,brotli:1")


def test_a_subclass_of_the_sink_writes_with_other_options(tmp_path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordReader

    transform = ours.WriteToArrayRecord(str(tmp_path / "x"), num_shards=1)
    transform._sink = GroupedSink(str(tmp_path / "x"), num_shards=1)
    with beam.Pipeline(options=in_process()) as pipeline:
        _ = pipeline | beam.Create([b"a", b"b", b"c"]) | transform
    assert names(tmp_path) == ["x-00000-of-00001"]
    reader = ArrayRecordReader(str(tmp_path / "x-00000-of-00001"))
    assert reader.read_all() == [b"a", b"b", b"c"]
    assert reader.writer_options_string().startswith("group_size:7,")


def test_it_writes_to_google_cloud_storage(gcs: Any, tmp_path: Path) -> None:
    bucket = gcs.create_bucket("dest-bucket")
    write([b"%d" % i for i in range(10)], "gs://dest-bucket/train/x", ".array_record", 2)
    blobs = list(bucket.list_blobs())
    assert [blob.name for blob in blobs] == [f"train/x-{i:05d}-of-00002.array_record" for i in range(2)]
    found = []
    for number, blob in enumerate(blobs):
        blob.download_to_filename(tmp_path / str(number))
        found += read_by_original(tmp_path / str(number))
    assert sorted(found) == [b"%d" % i for i in range(10)]


def test_a_failed_pipeline_leaves_no_file_with_a_final_name(tmp_path: Path) -> None:
    def fail(element: int) -> bytes:
        if element == 7:
            raise ZeroDivisionError("on purpose")
        return b"%d" % element

    with pytest.raises(Exception, match="on purpose"), beam.Pipeline(options=in_process()) as pipeline:
        _ = pipeline | beam.Create(range(10)) | beam.Map(fail) | ours.WriteToArrayRecord(str(tmp_path / "out" / "x"))
    assert not list(tmp_path.glob("out/x*"))
