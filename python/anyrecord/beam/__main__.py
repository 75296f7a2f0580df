"""Converts record files with a Beam pipeline.

python -m anyrecord.beam convert --input 'old/*.tfrecord' --output new/ --format array_record --runner FnApiRunner
"""

from __future__ import annotations

import argparse
import difflib

from apache_beam.options.pipeline_options import PipelineOptions

from anyrecord._writer import FormatOptions
from anyrecord.beam import convert
from anyrecord.errors import RecordError

_EXAMPLES = """\
examples:
  each file becomes one file, on two processes of this machine:
    python -m anyrecord.beam convert --input 'old/*.tfrecord' --output new/ --format array_record \\
        --runner FnApiRunner --direct_running_mode multi_processing --direct_num_workers 2
  16 shards, on Dataflow:
    python -m anyrecord.beam convert --input 'gs://bucket/old/*.tfrecord' --output gs://bucket/new/train.array_record \\
        --num_shards 16 --group_size 1 --runner DataflowRunner --project my-project --region europe-west4 \\
        --temp_location gs://bucket/tmp --requirements_file requirements.txt

All other options go to the pipeline and its runner.
"""
_OPTIONS = (
    "input",
    "output",
    "runner",
    "format",
    "input_format",
    "num_shards",
    "shard_name_template",
    "max_records_per_shard",
    "max_bytes_per_shard",
    "on_error",
    "max_errors",
    "storage",
    *FormatOptions.__annotations__,
)
_NUMBERS = ("level", "window_log", "group_size", "transpose_bucket_size", "chunk_bytes")


def main(arguments: list[str] | None = None) -> None:
    """Runs the program."""
    parser = _parser()
    given, others = parser.parse_known_args(arguments)
    _refuse_misspelt(parser, others)
    writing = {name: getattr(given, name) for name in FormatOptions.__annotations__}
    try:
        counts = convert(
            given.input[0] if len(given.input) == 1 else given.input,
            given.output,
            runner=given.runner,
            pipeline_options=PipelineOptions(others),
            format=given.format,
            num_shards=given.num_shards,
            shard_name_template=given.shard_name_template,
            max_records_per_shard=given.max_records_per_shard,
            max_bytes_per_shard=given.max_bytes_per_shard,
            source_format=given.input_format,
            on_error=given.on_error,
            max_errors=given.max_errors,
            storage=dict(given.storage) or None,
            **writing,
        )
    except (RecordError, ImportError, OSError, TypeError, ValueError) as error:
        parser.exit(1, f"{parser.prog}: {type(error).__name__}: {error}\n")
    except RuntimeError as error:  # of a runner, with the traceback of a worker
        parser.exit(1, f"{parser.prog}: the pipeline failed: {error}\n")
    print(f"records {counts.records}\nbytes {counts.bytes}\ndamaged {counts.damaged}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m anyrecord.beam", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="convert", required=True)
    verb = verbs.add_parser(
        "convert",
        help="convert record files of any format to any format",
        description="Converts record files of any format to any format, on any runner of Apache Beam.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = verb.add_argument
    add(
        "--input",
        required=True,
        nargs="+",
        action="extend",
        metavar="PATTERN",
        help="paths, globs, folders, name@16, file[a:b] or URLs",
    )
    add("--output", required=True, help="a folder/, which gets one file for each input, or the name of a set of shards")
    add("--runner", help="FnApiRunner, DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, PortableRunner, ...")
    add("--format", help="array_record, ffrecord, recordio or tfrecord; by default the suffix of the output chooses it")
    add("--input_format", help="by default the format is detected from the bytes")
    add("--num_shards", type=int, help="the number of output files; by default the runner chooses it")
    add("--shard_name_template", help="by default -SSSSS-of-NNNNN")
    add("--max_records_per_shard", type=int, help="begin another file after so many records")
    add("--max_bytes_per_shard", type=int, help="begin another file after so many bytes of records")
    add("--on_error", default="raise", choices=["raise", "skip", "replace"], help="what happens to damaged records")
    add("--max_errors", type=int, help="how many damaged records of a file to go on after, in each worker")
    add(
        "--storage",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="an option of the inputs' store",
    )
    for name in FormatOptions.__annotations__:
        text = "an option of the output's format, as for anyrecord.create"
        if name in ("transpose", "pad_to_block_boundary"):
            add(f"--{name}", action=argparse.BooleanOptionalAction, help=text)
        else:
            add(f"--{name}", type=int if name in _NUMBERS else str, help=text)
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _refuse_misspelt(parser: argparse.ArgumentParser, others: list[str]) -> None:
    """Ends the program if an option that nobody knows is nearly one of ours. Beam would only log it."""
    known = PipelineOptions([]).get_all_options()
    for other in others:
        name = other.partition("=")[0].removeprefix("--").replace("-", "_")
        near = difflib.get_close_matches(name, _OPTIONS, 1, 0.8)
        if other.startswith("--") and name not in known and near:
            parser.error(f"unknown option {other.partition('=')[0]}; did you mean --{near[0]}?")


if __name__ == "__main__":
    main()
