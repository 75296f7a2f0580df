"""The forms of `args` and `pipeline_options`: those of the original's code, and those of its documentation."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from apache_beam.options.pipeline_options import PipelineOptions

from anyrecord.compat.array_record.beam.options import split_arguments

__all__ = ["Arguments", "Options", "places_and_options"]

Arguments: TypeAlias = Mapping[str, Any] | Sequence[str] | None
"""`{"input": ..., "output": ...}`, or `["--input", ..., "--output", ...]`, or None for the command line."""

Options: TypeAlias = PipelineOptions | Mapping[str, Any] | Sequence[str] | None
"""Options of Beam, as an object, as a dict, as flags, or None for those on the command line."""


def places_and_options(arguments: Arguments, options: Options, *needed: str) -> tuple[list[str], PipelineOptions]:
    """Returns the places that are needed, `"input"` and `"output"`, and the options of the pipeline."""
    flags: list[str] = []
    if arguments is None or options is None:
        on_command_line, flags = split_arguments(sys.argv[1:])
    if arguments is None:
        places: Mapping[str, Any] = on_command_line
    elif isinstance(arguments, Mapping):
        places = arguments
    elif isinstance(arguments, Sequence) and not isinstance(arguments, str | bytes):
        places, others = split_arguments([os.fspath(argument) for argument in arguments])
        if others and options is not None:
            raise ValueError(f"args has more than --input and --output: {others}; move the rest to pipeline_options")
        flags += others
    else:
        raise TypeError(
            "args must be a dict such as {'input': 'in-*.tfrecord', 'output': 'out'}, or a list such as "
            f"['--input', 'in-*.tfrecord', '--output', 'out'], not {type(arguments).__name__}"
        )
    return [_place(places, name) for name in needed], _pipeline_options(options, flags)


def _place(places: Mapping[str, Any], name: str) -> str:
    place = places.get(name)
    if place is None:
        raise ValueError(
            f"no {name} is given; pass args={{'input': ..., 'output': ...}}, or --{name} on the command line"
        )
    return str(os.fspath(place))


def _pipeline_options(options: Options, flags: list[str]) -> PipelineOptions:
    if options is None:
        return PipelineOptions(flags)
    if isinstance(options, PipelineOptions):
        return options
    if isinstance(options, Mapping):
        return PipelineOptions.from_dictionary(dict(options))
    if isinstance(options, Sequence) and not isinstance(options, str | bytes):
        return PipelineOptions(list(options))
    raise TypeError(f"pipeline_options must be PipelineOptions, a dict or a list, not {type(options).__name__}")
