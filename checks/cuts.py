"""Cuts files at every byte: that is an error when the file is opened, and it names the size found.

RecordIO, TFRecord and plain Riegeli store no end, so a cut exactly between two chunks cannot be seen in the file. It
can be seen with `expected_records=`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import anyrecord

from checks.cases import write_small_files
from checks.damage import damage, golden_files
from checks.figures import Figure

__all__ = ["run"]

_SMALL = 4096
_LARGE_SAMPLE = (1 << 20) + 1
"""The last sample of an FFRecord file is checked at open up to 1 MiB, else when it is read."""


def run(short: bool) -> list[Figure]:
    """Cuts the golden files, small files of every kind, and a large FFRecord sample."""
    golden = damage("cut", golden_files(), short)
    between = golden.notes.get("between", 0)
    with tempfile.TemporaryDirectory() as folder:
        files = write_small_files(Path(folder), short)
        ours = damage("cut", files, short)
        between += ours.notes.get("between", 0)
        counted = _with_expected_records(path for path in files if path.stat().st_size <= _SMALL)
        large = _large_last_sample(Path(folder), short)
    return [
        golden.figure("cuts of the golden files, opened", 200_000 if short else 5_000_000),
        ours.figure("cuts of files that we wrote, opened", 20_000),
        Figure("of them exactly between two chunks, in a format without an end", between),
        counted,
        large,
    ]


def _with_expected_records(files: Iterable[Path]) -> Figure:
    """With the number of records, every cut that loses one is an error at open."""
    figure = Figure("cuts opened with expected_records=")
    for path in files:
        data, format = path.read_bytes(), anyrecord.info(path).format
        with anyrecord.open(path) as whole:
            count = len(whole)
        for size in range(len(data)):
            figure.tried += 1
            try:
                with anyrecord.open(data[:size], format=format, expected_records=count) as records:
                    figure.violations.append(f"{path.name} cut at {size} opens with {len(records)} records")
            except anyrecord.FormatError as error:
                if "records" in str(error) and error.found is not None and error.expected == str(count):
                    continue  # a cut between two chunks
                if error.path != "<bytes>":
                    figure.violations.append(f"{path.name} cut at {size}: {error}")
    return figure


def _large_last_sample(folder: Path, short: bool) -> Figure:
    """A large last sample is not read at open. Reading it is an error, and the others can be read."""
    figure = Figure("cuts of a large last FFRecord sample, read")
    path = folder / "large.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many([b"small", b"\xa5" * _LARGE_SAMPLE])
    data = path.read_bytes()
    for size in range(12 + 24 + len(b"small"), len(data), 65_537 if short else 1021):
        figure.tried += 1
        try:
            with anyrecord.open(data[:size]) as records:
                if records[0] != b"small":
                    figure.violations.append(f"cut at {size}: the first sample is another one")
                records[1]
        except anyrecord.ChecksumError as error:
            if error.record != 1 or str(size) not in str(error):
                figure.violations.append(f"cut at {size}: {error}")
        else:
            figure.violations.append(f"cut at {size}: the last sample can be read")
    return figure
