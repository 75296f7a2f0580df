"""Pipelines that convert TFRecord files to ArrayRecord files, and two that write example files.

Each function returns a pipeline that has not run yet. `args` is `{"input": ..., "output": ...}`, or a list as on the
command line, `["--input", ..., "--output", ...]`. If `args` or `pipeline_options` is not given, it is taken from the
command line of the program when the function is called.

>>> import anyrecord
>>> from anyrecord.compat.array_record.beam.pipelines import convert_tf_to_arrayrecord_disk
>>> with anyrecord.create("in.tfrecord") as out:
...     out.write_many(b"record %d" % i for i in range(3))
>>> args = ["--input", "in.tfrecord", "--output", "out"]
>>> pipeline = convert_tf_to_arrayrecord_disk(args=args, pipeline_options={"runner": "FnApiRunner"})
>>> result = pipeline.run()
>>> list(anyrecord.open("out-00000-of-00001.arrayrecord"))
[b'record 0', b'record 1', b'record 2']

From a shell, `python -m array_record.beam.pipelines --input IN --output OUT --num_shards 5` converts. Without
`--num_shards`, an output in `gs://` gets one file for each input file, and any other output gets one file.
"""

from __future__ import annotations

import sys
from typing import Any

import apache_beam as beam
from apache_beam.coders import coders

from anyrecord.beam._sink import RecordSink
from anyrecord.compat.array_record.beam import arrayrecordio, dofns, example, options
from anyrecord.compat.array_record.beam._arguments import Arguments, Options, places_and_options
from anyrecord.compat.array_record.beam._tfrecords import MatchTFRecords, TFRecordFile, check_matches, only_file

__all__ = [
    "convert_tf_to_arrayrecord_disk",
    "convert_tf_to_arrayrecord_disk_match_shards",
    "convert_tf_to_arrayrecord_gcs",
    "example_to_arrayrecord",
    "example_to_tfrecord",
]


def example_to_tfrecord(num_shards: int = 1, args: Arguments = None, pipeline_options: Options = None) -> beam.Pipeline:
    """Writes the movie examples to TFRecord files whose names begin with `output`. Needs TensorFlow."""
    (output,), chosen = places_and_options(args, pipeline_options, "output")
    pipeline = beam.Pipeline(options=chosen)
    _ = (
        pipeline
        | "Create" >> beam.Create(example.generate_serialized_movie_examples())
        | "Write"
        >> beam.io.Write(RecordSink(output, format="tfrecord", num_shards=num_shards, file_name_suffix=".tfrecord"))
    )
    return pipeline


def example_to_arrayrecord(
    num_shards: int = 1, args: Arguments = None, pipeline_options: Options = None
) -> beam.Pipeline:
    """Writes the movie examples to ArrayRecord files whose names begin with `output`. Needs TensorFlow."""
    (output,), chosen = places_and_options(args, pipeline_options, "output")
    pipeline = beam.Pipeline(options=chosen)
    _ = (
        pipeline
        | "Create" >> beam.Create(example.generate_serialized_movie_examples())
        | "Write" >> _write(output, num_shards)
    )
    return pipeline


def convert_tf_to_arrayrecord_disk(
    num_shards: int = 1, args: Arguments = None, pipeline_options: Options = None
) -> beam.Pipeline:
    """Converts the TFRecord files `input` to so many ArrayRecord files whose names begin with `output`.

    Both can be on any file system of Beam. It is an error if no file matches.
    """
    (pattern, output), chosen = places_and_options(args, pipeline_options, "input", "output")
    pipeline = beam.Pipeline(options=chosen)
    check_matches(pattern)
    _ = (
        pipeline
        | "Match" >> MatchTFRecords(pattern)
        | "Distribute" >> beam.Reshuffle()
        | "Read TFRecord" >> beam.FlatMap(TFRecordFile).with_output_types(bytes)
        | "Write ArrayRecord" >> _write(output, num_shards)
    )
    return pipeline


def convert_tf_to_arrayrecord_disk_match_shards(
    args: Arguments = None, pipeline_options: Options = None
) -> beam.Pipeline:
    """Converts the TFRecord files `input` to as many ArrayRecord files, whose names begin with `output`.

    The records are spread evenly: a file of the output does not hold the records of one file of the input.
    """
    (pattern, output), chosen = places_and_options(args, pipeline_options, "input", "output")
    pipeline = beam.Pipeline(options=chosen)
    files = pipeline | "Match" >> MatchTFRecords(pattern)
    count = files | "Count Shards" >> beam.combiners.Count.Globally()
    _ = (
        files
        | "Distribute" >> beam.Reshuffle()
        | "Read TFRecord" >> beam.FlatMap(TFRecordFile).with_output_types(bytes)
        | "Write ArrayRecord" >> _write(output, beam.pvalue.AsSingleton(count))
    )
    return pipeline


def convert_tf_to_arrayrecord_gcs(
    overwrite_extension: bool = False,
    file_path_suffix: str = ".arrayrecord",
    args: Arguments = None,
    pipeline_options: Options = None,
) -> beam.Pipeline:
    """Converts each TFRecord file of `input` to one ArrayRecord file in the folder `output`, which begins with `gs://`.

    The records keep their order. The names are those of the input, with the suffix appended, or, with
    `overwrite_extension=True`, with the suffix in place of the extension. Two files that would get the same name are an
    error.
    """
    (pattern, output), chosen = places_and_options(args, pipeline_options, "input", "output")
    dofns.bucket_and_folder(output)
    pipeline = beam.Pipeline(options=chosen)
    _ = (
        pipeline
        | "Match" >> MatchTFRecords(pattern)
        | "Name" >> beam.WithKeys(dofns.target_name, file_path_suffix, overwrite_extension)
        | "Group" >> beam.GroupByKey()
        | "Read TFRecord" >> beam.MapTuple(only_file)
        | "Write to ArrayRecord in GCS"
        >> beam.ParDo(
            dofns.ConvertToArrayRecordGCS(),
            output,
            file_path_suffix=file_path_suffix,
            overwrite_extension=overwrite_extension,
        )
    )
    return pipeline


def _write(output: str, num_shards: Any) -> arrayrecordio.WriteToArrayRecord:
    return arrayrecordio.WriteToArrayRecord(
        output, coder=coders.ToBytesCoder(), num_shards=num_shards, file_name_suffix=".arrayrecord"
    )


def main() -> None:
    """Runs the conversion that the command line asks for."""
    parser = options.argument_parser()
    parser.description = "Converts TFRecord files to ArrayRecord files."
    parser.add_argument("--num_shards", type=int, help="how many files to write; in gs:// as many as are read, else 1")
    known, flags = parser.parse_known_args(sys.argv[1:])
    if known.num_shards is None and str(known.output).startswith("gs://"):
        pipeline = convert_tf_to_arrayrecord_gcs(args=vars(known), pipeline_options=flags)
    else:
        shards = 1 if known.num_shards is None else known.num_shards
        pipeline = convert_tf_to_arrayrecord_disk(num_shards=shards, args=vars(known), pipeline_options=flags)
    pipeline.run().wait_until_finish()


def __getattr__(name: str) -> Any:
    """`def_args` and `def_pipeline_options`: the command line, which is read when they are used."""
    if name in ("def_args", "def_pipeline_options"):
        return options.get_arguments()[name == "def_pipeline_options"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
