"""Parses the option strings of ArrayRecord's writer and reader into keywords of `anyrecord`.

    options ::= option? ("," option?)*        option ::= key (":" value)?

A string is checked from left to right in three passes, and the first error is raised. The first pass checks everything
but the values of compression options. The second checks which compression options conflict. The third checks their
values.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from anyrecord._dataclasses import dataclass

__all__ = ["ReaderOptions", "reader_options", "writer_options"]

_INT32_MAX = 2**31 - 1
_UINT64_MAX = 2**64 - 1
_GIB = 1 << 30

_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)[ \t\n\v\f\r]*", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_HEX = re.compile(r"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
_SUFFIXES = {"B": 0, "k": 10, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}


class _Invalid(Exception):
    """A value is not valid. The text lists the valid values."""


Parser: TypeAlias = Callable[[str], Any]


def _integer(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        match = _INTEGER.fullmatch(value)
        if match is None or len(match[1]) > 20 or not low <= int(match[1]) <= high:
            raise _Invalid(f"integers in the range [{low}..{high}]")
        return int(match[1])

    return parse


def _bytes(low: int, high: int) -> Parser:
    valid = f"integers expressed as reals with optional suffix [BkKMGTPE], in the range [{low}..{high}]"

    def parse(value: str) -> int:
        number = _number_of_bytes(value)
        if number is None or not low <= number <= high:
            raise _Invalid(valid)
        return number

    return parse


def _number_of_bytes(value: str) -> int | None:
    scale = 0
    if value[-2:-1] in _SUFFIXES and value[-2:] != "BB" and value.endswith("B"):
        value = value[:-1]  # 16MB: documented by the original, but its parser does not accept it
    if value[-1:] in _SUFFIXES:
        value, scale = value[:-1], _SUFFIXES[value[-1]]
    value = value.strip(" \t\n\v\f\r")
    if _DECIMAL.fullmatch(value):
        real = float(value)
    elif _HEX.fullmatch(value):
        real = float.fromhex(value)
    else:
        return None
    real *= 2.0**scale
    if real < 0:
        return None
    if real >= 2.0**64:
        return _UINT64_MAX
    whole = math.floor(real)
    return whole + (real - whole >= 0.5)


def _word(**words: Any) -> Parser:
    """A parser of one of these words. `empty` means no value."""

    def parse(value: str) -> Any:
        key = value or "empty"
        if key not in words or value == "empty":
            raise _Invalid(", ".join("(empty)" if word == "empty" else word for word in words))
        return words[key]

    return parse


def _either(first: Parser, second: Parser) -> Parser:
    def parse(value: str) -> Any:
        try:
            return first(value)
        except _Invalid as valid:
            try:
                return second(value)
            except _Invalid as also:
                raise _Invalid(f"{valid}, {also}") from None

    return parse


def _parse(key: str, value: str, parser: Parser) -> Any:
    try:
        return parser(value)
    except _Invalid as valid:
        raise ValueError(f"Option {key}: invalid value: {value or '(empty)'}, valid values: {valid}") from None


def _items(options: str) -> list[tuple[str, str]]:
    """The keys and values. Empty items are skipped."""
    return [(key, value) for key, _, value in (item.partition(":") for item in options.split(",") if item)]


def _check_key(key: str, valid: Iterable[str], seen: Iterable[str]) -> None:
    if key not in valid:
        raise ValueError(f"Unknown option {key}, valid options: {', '.join(valid)}")
    if key in seen:
        raise ValueError(f"Option {key} is present more than once")


# --- the writer ---

_flag = _word(empty=True, true=True, false=False)
_auto = _word(auto=None)
_empty = _word(empty=None)

_WRITER: Final[dict[str, Parser | None]] = {  # None: a compression option, which is checked last
    "default": lambda value: None,
    "group_size": _integer(1, _INT32_MAX),
    "max_parallelism": _either(_auto, _integer(1, _INT32_MAX)),
    "saturation_delay_ms": _integer(1, _INT32_MAX),
    "transpose": _flag,
    "transpose_bucket_size": _either(_auto, _bytes(1, _UINT64_MAX)),
    "uncompressed": None,
    "brotli": None,
    "zstd": None,
    "snappy": None,
    "window_log": None,
    "pad_to_block_boundary": _flag,
}
_LEVELS: Final[dict[str, Parser]] = {
    "uncompressed": _empty,
    "brotli": _either(_empty, _integer(0, 11)),
    "zstd": _either(_empty, _integer(-131072, 22)),
    "snappy": _either(_empty, _integer(1, 2)),
}
_WINDOW_LOGS: Final[dict[str, Parser]] = {
    "brotli": _either(_auto, _integer(10, 30)),
    "zstd": _either(_auto, _integer(10, 31)),
}


def writer_options(options: str) -> dict[str, Any]:
    """Returns an option string as keywords of `anyrecord.create`.

    >>> writer_options("group_size:1000,brotli:9")
    {'group_size': 1000, 'codec': 'brotli', 'level': 9}
    >>> writer_options("zstd,brotli")
    Traceback (most recent call last):
    ValueError: Option brotli conflicts with option zstd
    """
    seen: dict[str, Any] = {}
    compression: dict[str, str] = {}
    for key, value in _items(options):
        _check_key(key, _WRITER, seen)
        if key == "default" and seen:
            raise ValueError("Option default must be first")
        parser = _WRITER[key]
        if parser is None:
            compression[key] = value
            seen[key] = None
        else:
            seen[key] = _parse(key, value, parser)

    given = {key: seen.get(key) for key in ("group_size", "transpose", "pad_to_block_boundary")}
    if seen.get("transpose"):
        given["transpose_bucket_size"] = seen.get("transpose_bucket_size")
    given |= _compression(compression)
    # The original's documentation says that writers compress in parallel. From Python, the original never does.
    if (threads := seen.get("max_parallelism")) is not None:
        given["threads"] = max(1, min(threads, os.cpu_count() or 1))
    return {key: value for key, value in given.items() if value is not None}


def _compression(options: dict[str, str]) -> dict[str, Any]:
    codecs = [key for key in options if key != "window_log"]
    if len(codecs) > 1:
        raise ValueError(f"Option {codecs[1]} conflicts with option {codecs[0]}")
    codec = codecs[0] if codecs else None
    window_logs = _WINDOW_LOGS.get(codec or "zstd")
    parsed: dict[str, Any] = {}
    for key, value in options.items():
        if window_logs is None and parsed:
            raise ValueError(f"Option {key} conflicts with option {next(iter(parsed))}")
        parser = _LEVELS.get(key, window_logs)
        parsed[key] = parser and _parse(key, value, parser)
    return {
        "codec": "none" if codec == "uncompressed" else codec,
        "level": None if codec is None else parsed[codec],
        "window_log": parsed.get("window_log"),
    }


# --- the reader ---

_READER: Final[dict[str, Parser]] = {
    "max_parallelism": _either(_auto, _integer(0, _INT32_MAX)),
    "readahead_buffer_size": _either(_auto, _bytes(0, _GIB)),
    "index_storage_option": _word(empty="memory", in_memory="memory", offloaded="disk"),
    "footer_prefetch_bytes": _either(_auto, _bytes(0, _GIB)),
}


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The options of a reader that have an effect here."""

    table: Literal["memory", "disk"]
    storage: dict[str, int]
    """How objects are read: `storage=` of `anyrecord.open`."""


def reader_options(options: str) -> ReaderOptions:
    """Checks the option string of a reader.

    >>> reader_options("max_parallelism:8,index_storage_option:offloaded")
    ReaderOptions(table='disk', storage={'max_requests': 8})
    >>> reader_options("readahead_buffer_size:16MB").storage
    {'readahead_bytes': 16777216, 'max_bytes_in_flight': 16777216}
    """
    seen: dict[str, Any] = {}
    for key, value in _items(options):
        # The original's documentation uses both spellings.
        key = "index_storage_option" if key == "index_storage_options" else key
        _check_key(key, _READER, seen)
        seen[key] = _parse(key, value, _READER[key])
    table: Literal["memory", "disk"] = seen.get("index_storage_option", "memory")
    if table == "disk" and seen.get("footer_prefetch_bytes"):
        raise ValueError("footer_prefetch_bytes > 0 is only supported with index_storage_option:in_memory.")
    return ReaderOptions(table, _storage(seen.get("max_parallelism"), seen.get("readahead_buffer_size")))


def _storage(requests: int | None, readahead: int | None) -> dict[str, int]:
    """What two of the options mean for object stores. For local files they have no effect."""
    options: dict[str, int] = {}
    if requests is not None:
        options["max_requests"] = max(1, requests)
    if readahead is not None:
        options["readahead_bytes"] = readahead
        options["max_bytes_in_flight"] = max(1, readahead)
    return options
