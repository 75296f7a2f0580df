"""`get_arguments`: the command line of a pipeline, as the places to read and write, and the options of Beam."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from apache_beam.options import pipeline_options

__all__ = ["get_arguments"]


def get_arguments() -> tuple[dict[str, Any], pipeline_options.PipelineOptions]:
    """Reads `sys.argv`: a dict with `input` and `output`, and all other arguments as `PipelineOptions`.

    >>> import sys
    >>> sys.argv = ["convert.py", "--input", "in-*", "--output=out", "--runner=DirectRunner"]
    >>> arguments, beam_options = get_arguments()
    >>> arguments, beam_options.get_all_options()["runner"]
    ({'input': 'in-*', 'output': 'out'}, 'DirectRunner')
    """
    arguments, others = split_arguments(sys.argv[1:])
    return arguments, pipeline_options.PipelineOptions(others)


def split_arguments(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Splits a command line into a dict with `input` and `output`, and the other arguments."""
    known, others = argument_parser().parse_known_args(arguments)
    return vars(known), others


def argument_parser() -> argparse.ArgumentParser:
    """Returns a parser of `--input` and `--output`."""
    parser = argparse.ArgumentParser(epilog="All other arguments are options of Apache Beam, such as --runner.")
    parser.add_argument("--input", help="the TFRecord files to read, as a name or a pattern")
    parser.add_argument("--output", help="where to write: the beginning of the names of the files, or a gs:// folder")
    return parser
