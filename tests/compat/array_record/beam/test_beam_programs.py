"""Programs for the original's Beam modules, on the original and under `python -m anyrecord.compat`: the same files."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from compat.scripts import run

from .beam_files import names, read_by_original, write_tfrecords

ORIGINAL: tuple[str, ...] = ()
OURS = ("-m", "anyrecord.compat")
OPTIONS = ("--runner=FnApiRunner", "--no_auth")

SINK = """
    import json, sys
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from array_record.beam.arrayrecordio import WriteToArrayRecord

    class Labelled(beam.DoFn):
        def process(self, element, label):
            yield json.dumps({label: element}).encode()

    def main():
        with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:
            rows = pipeline | beam.Create(range(100)) | beam.ParDo(Labelled(), "number")
            rows | "one" >> WriteToArrayRecord("one", num_shards=1)
            rows | "many" >> WriteToArrayRecord("many", file_name_suffix=".array_record", num_shards=5)
            rows | "else" >> WriteToArrayRecord(file_path_prefix="else", shard_name_template="_SSS_NNN", num_shards=2)

    if __name__ == "__main__":
        main()
"""

COMMAND_LINE = """
    from array_record.beam.pipelines import *
    from array_record.beam import options, testdata

    arguments, beam_options = options.get_arguments()
    print(sorted(arguments.items()), beam_options.get_all_options()["runner"], len(testdata.data))
    convert_tf_to_arrayrecord_disk(num_shards=2).run().wait_until_finish()
"""

ARGUMENTS = """
    from apache_beam.options import pipeline_options
    from array_record.beam.pipelines import convert_tf_to_arrayrecord_disk

    args = {"input": "in/in-*.tfrecord", "output": "records/movies"}

    def main():
        convert_tf_to_arrayrecord_disk(
            args=args, pipeline_options=pipeline_options.PipelineOptions(runner="FnApiRunner")
        ).run()

    if __name__ == "__main__":
        main()
"""

UPLOAD = """
    import sys
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from array_record.beam.dofns import ConvertToArrayRecordGCS
    from array_record.beam.pipelines import convert_tf_to_arrayrecord_gcs
    from array_record.python.array_record_module import ArrayRecordReader

    bucket = sys.argv.pop(1)
    beam_options = PipelineOptions(sys.argv[1:])
    for number, keywords in enumerate([{}, {"overwrite_extension": True, "file_path_suffix": ".array_record"}]):
        convert_tf_to_arrayrecord_gcs(
            args={"input": f"gs://{bucket}/in/*.tfrecord", "output": f"gs://{bucket}/out-{number}/"},
            pipeline_options=beam_options,
            **keywords,
        ).run()
    with beam.Pipeline(options=beam_options) as pipeline:
        pairs = pipeline | beam.Create([("a/b.tfrecord", [b"1", b"2"]), ("c", [b"3"])])
        pairs | beam.ParDo(ConvertToArrayRecordGCS(), f"gs://{bucket}/pairs", file_path_suffix=".x")
"""

EXAMPLES = """
    from array_record.beam import example

    serialized = [movie.SerializeToString(deterministic=True) for movie in example.generate_movie_examples()]
    for number, movie in enumerate(example.generate_movie_examples()):
        example.write_example_to_tfrecord(movie, f"{number}.tfrecord")
        example.write_example_to_arrayrecord(movie, f"{number}.arrayrecord")
    assert len(example.generate_serialized_movie_examples()) == 4
    print(serialized)
"""


def run_both(program: str, folder: Path, *arguments: str) -> tuple[Path, Path, str]:
    """Runs a program on both sides, each in its folder. Returns the folders, and what both have printed."""
    printed = []
    for side, before in (("theirs", ORIGINAL), ("ours", OURS)):
        place = folder / side
        place.mkdir()
        (place / "program.py").write_text(dedent(program))
        write_tfrecords(place / "in", 30, 7, 1)
        printed.append(run(*before, "program.py", *arguments, folder=place).stdout)
    assert printed[0] == printed[1]
    return folder / "theirs", folder / "ours", printed[1]


def contents(folder: Path, pattern: str) -> dict[str, list[bytes]]:
    return {str(path.relative_to(folder)): read_by_original(path) for path in sorted(folder.glob(pattern))}


def test_a_program_with_the_sink(tmp_path: Path) -> None:
    theirs, ours, _ = run_both(SINK, tmp_path, *OPTIONS)
    assert names(ours) == names(theirs)
    assert len(names(ours)) == 1 + 5 + 2 + 2
    # One shard has the records in order. With more, Beam begins with a random shard.
    assert contents(ours, "one-*") == contents(theirs, "one-*")
    assert (ours / "one-00000-of-00001").read_bytes() == (theirs / "one-00000-of-00001").read_bytes()
    for pattern in ("many-*", "else_*"):
        mine, other = contents(ours, pattern), contents(theirs, pattern)
        assert list(mine) == list(other)
        assert sorted(map(len, mine.values())) == sorted(map(len, other.values()))
        assert sorted(chain(*mine.values())) == sorted(chain(*other.values()))
        assert sum(map(len, mine.values())) == 100


def test_a_program_that_takes_everything_from_the_command_line(tmp_path: Path) -> None:
    theirs, ours, printed = run_both(COMMAND_LINE, tmp_path, "--input", "in/*.tfrecord", "--output=out/x", OPTIONS[0])
    assert printed == "[('input', 'in/*.tfrecord'), ('output', 'out/x')] FnApiRunner 4\n"
    mine, other = contents(ours, "out/*"), contents(theirs, "out/*")
    assert list(mine) == list(other) == ["out/x-00000-of-00002.arrayrecord", "out/x-00001-of-00002.arrayrecord"]
    assert sorted(chain(*mine.values())) == sorted(chain(*other.values()))
    assert sum(map(len, mine.values())) == 38


def test_a_program_that_passes_arguments(tmp_path: Path) -> None:
    theirs, ours, _ = run_both(ARGUMENTS, tmp_path)
    mine, other = contents(ours, "records/*"), contents(theirs, "records/*")
    assert list(mine) == list(other) == ["records/movies-00000-of-00001.arrayrecord"]
    assert [sorted(records) for records in mine.values()] == [sorted(records) for records in other.values()]


def test_a_program_that_uploads(gcs: Any, tmp_path: Path) -> None:
    write_tfrecords(tmp_path / "in", 30, 7, 1)
    (tmp_path / "downloaded").mkdir()
    found = []
    for side, before in (("theirs", ORIGINAL), ("ours", OURS)):
        bucket = gcs.create_bucket(side)
        for name in names(tmp_path / "in"):
            bucket.blob(f"in/{name}").upload_from_filename(tmp_path / "in" / name)
        (tmp_path / "program.py").write_text(dedent(UPLOAD))
        run(*before, "program.py", side, *OPTIONS, folder=tmp_path)
        files = {}
        for blob in bucket.list_blobs():
            if not blob.name.startswith("in/"):
                file = tmp_path / "downloaded" / blob.name.replace("/", "_")
                blob.download_to_filename(file)
                files[blob.name] = (read_by_original(file), file.read_bytes(), blob.content_type)
        found.append(files)
    assert found[0] == found[1]
    assert sorted(found[1]) == sorted(
        [f"out-0/in-{i}.tfrecord.arrayrecord" for i in range(3)]
        + [f"out-1/in-{i}.array_record" for i in range(3)]
        + ["pairs/b.tfrecord.x", "pairs/c.x"]
    )


def test_a_program_with_the_examples(tmp_path: Path) -> None:
    from tensorflow import train

    theirs, ours, _ = run_both(EXAMPLES, tmp_path)
    assert names(ours) == names(theirs)
    for number in range(4):
        mine, other = (
            train.Example.FromString(*read_by_original(side / f"{number}.arrayrecord")) for side in (ours, theirs)
        )
        assert mine == other
        sizes = [(side / f"{number}.tfrecord").stat().st_size for side in (ours, theirs)]
        assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", ["array_record.beam.pipelines", "anyrecord.compat.array_record.beam.pipelines"])
def test_the_pipelines_run_as_a_module_as_documented(tmp_path: Path, name: str) -> None:
    records = write_tfrecords(tmp_path / "in", 30, 7)
    line = ["-m", name, "--input", "in/*", "--output", "out/x", "--num_shards", "3", OPTIONS[0]]
    run(*(OURS if name.startswith("array_record") else ()), *line, folder=tmp_path)
    files = contents(tmp_path, "out/*")
    assert list(files) == [f"out/x-{i:05d}-of-00003.arrayrecord" for i in range(3)]
    assert sorted(chain(*files.values())) == sorted(records)


def test_the_demo_runs_as_a_module(gcs: Any, tmp_path: Path) -> None:
    bucket = gcs.create_bucket("bucket")
    places = ("--input", "gs://bucket/tf/movies", "--output", "gs://bucket/ar")
    run("-m", "array_record.beam.demo", *places, *OPTIONS, folder=tmp_path, ANYRECORD_COMPAT="array_record")
    shards = [f"movies-{i:05d}-of-00004" for i in range(4)]
    assert [blob.name for blob in bucket.list_blobs()] == [f"ar/{name}.arrayrecord" for name in shards] + [
        f"tf/{name}.tfrecord" for name in shards
    ]


def test_other_processes_as_workers(tmp_path: Path) -> None:
    records = write_tfrecords(tmp_path / "in", 30, 7, 5, 8)
    (tmp_path / "program.py").write_text(
        dedent("""
        from array_record.beam import pipelines

        if __name__ == "__main__":
            pipelines.convert_tf_to_arrayrecord_disk_match_shards().run().wait_until_finish()
        """)
    )
    processes = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    run(*OURS, "program.py", "--input=in/*", "--output=out/x", OPTIONS[0], *processes, folder=tmp_path)
    files = contents(tmp_path, "out/*")
    assert list(files) == [f"out/x-{i:05d}-of-00004.arrayrecord" for i in range(4)]
    assert sorted(chain(*files.values())) == sorted(records)
