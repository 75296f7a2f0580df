"""Writes the movie examples to four TFRecord files, and converts these to ArrayRecord files on Google Cloud Storage.

    python -m array_record.beam.demo --input gs://bucket/tfrecords/movies --output gs://bucket/arrayrecords/

`--input` is where the names of the TFRecord files begin. Needs TensorFlow.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from anyrecord.beam._sink import RecordSink
from anyrecord.compat.array_record.beam import dofns, example, options
from anyrecord.compat.array_record.beam._arguments import places_and_options
from anyrecord.compat.array_record.beam._tfrecords import with_records

__all__ = ["main"]


def main() -> tuple[beam.Pipeline, beam.PCollection]:
    """Returns the pipeline, which has not run yet, and its last step."""
    (first, output), chosen = places_and_options(None, None, "input", "output")
    dofns.bucket_and_folder(output)
    pipeline = beam.Pipeline(options=chosen)
    last = (
        pipeline
        | "Create a set of TFExamples" >> beam.Create(example.generate_serialized_movie_examples())
        | "Write TFRecords"
        >> beam.io.Write(RecordSink(first, format="tfrecord", num_shards=4, file_name_suffix=".tfrecord"))
        | "Distribute" >> beam.Reshuffle()
        | "Read TFRecords" >> beam.Map(with_records)
        | "Write to ArrayRecord in GCS" >> beam.ParDo(dofns.ConvertToArrayRecordGCS(), output, overwrite_extension=True)
    )
    return pipeline, last


def __getattr__(name: str) -> Any:
    """`args` and `pipeline_options`: the command line, which is read when they are used."""
    if name in ("args", "pipeline_options"):
        return options.get_arguments()[name == "pipeline_options"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()[0].run().wait_until_finish()
