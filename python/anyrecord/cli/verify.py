"""`anyrecord verify`: reads every byte of files and says which are damaged."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import click

import anyrecord
from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._files import verify_files
from anyrecord._locations import file_name, is_url, redacted, shown
from anyrecord._options import OpenOptions, open_options
from anyrecord._paths import FileRange, expand, size_of, with_sizes
from anyrecord._shard_names import record_suffix
from anyrecord.cli import _errors
from anyrecord.cli._inputs import Reading, reading_options, source_of, sources_argument
from anyrecord.cli._output import Output, Part
from anyrecord.cli._params import COUNT
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.errors import RecordError

__all__ = ["command"]

GOES_ON = (RecordError, OSError, ValueError, MemoryError)
"""What is wrong with one file, so that the next one can still be verified."""
_STYLES = {"good": "green", "damaged": "bold red", "unreadable": "bold red"}


@verb(
    "verify",
    examples=[
        "anyrecord verify train.array_record",
        "anyrecord verify 'train-*.ffr' && echo all good",
        "anyrecord verify --json s3://bucket/train.ffr@16 | jq '.files[] | .path'",
        "curl https://host/train.tfrecord | anyrecord verify -",
    ],
)
@sources_argument
@reading_options("format", "limit", "storage")
@click.option("--expected-records", type=COUNT, metavar="N", help="Fail unless all files together have N records.")
@click.option(
    "--problems",
    "shown_problems",
    type=COUNT,
    default=5,
    metavar="N",
    help="How many problems of each file are shown. The default is 5.",
)
def command(
    out: Output, sources: tuple[str, ...], reading: Reading, expected_records: int | None, shown_problems: int
) -> int:
    """Read every byte, check every hash, and report damage.

    Every file is reported. After a damaged one, verify goes on with the next. The last lines say what to run to save
    the records of damaged files. With --quiet, only damaged files are reported.

    The exit code is 0 if all files are good, 1 if one is damaged, and 3 if one could not be read.
    """
    options = open_options(**reading.keywords)
    checked: list[_Checked] = []
    with out.progress("verifying") as step:
        for one in _verified(sources, options, step):
            checked.append(one)
            if not out.as_json:
                _show(out, one, shown_problems)
    missing = _wrong_number(checked, expected_records)
    if out.as_json:
        out.write_json(_as_json(checked, missing))
    else:
        _show_end(out, checked, missing)
    codes = {one.code for one in checked} | ({_errors.DAMAGE} if missing else set())
    return next((code for code in (_errors.DAMAGE, _errors.UNREADABLE, *sorted(codes)) if code in codes), 0)


class _Checked(NamedTuple):
    """One file, or a source that is none."""

    path: str
    """What the user can pass to another verb."""
    report: anyrecord.Report | None
    error: BaseException | None = None
    """Why there is no report."""

    @property
    def status(self) -> str:
        if self.report is not None:
            return "good" if self.report.ok else "damaged"
        return "damaged" if self.code == _errors.DAMAGE else "unreadable"

    @property
    def code(self) -> int:
        if self.error is not None:
            return _errors.exit_code(self.error)
        return _errors.GOOD if self.report else _errors.DAMAGE


def _verified(sources: Sequence[str], options: OpenOptions, step: Any) -> Iterator[_Checked]:
    """Verifies one file after the other. What is wrong with one does not keep the others from being verified."""
    opened = source_of(sources)
    if not isinstance(opened, str | list):  # standard input, or another pipe
        try:
            yield _Checked(sources[0], anyrecord.verify(opened, **_keywords(options), progress=step))
        except (RecordError, OSError) as error:
            yield _Checked(sources[0], None, error)
        return
    files = [found for source in sources for found in files_of(source, options)]
    total, before = sum(size for _, _, size in files), 0
    for path, file, size in files:
        if isinstance(file, BaseException):
            yield _Checked(path, None, file)
            continue
        progress = None if step is None else Progress(step, total, before)
        try:
            yield _Checked(path, verify_files([file], options, progress))
        except GOES_ON as error:
            yield _Checked(path, None, error)
        before += size
        if progress is not None:
            progress(size)


def _keywords(options: OpenOptions) -> dict[str, Any]:
    limits = anyrecord.Limits(**{name: getattr(options, name) for name in anyrecord.Limits.__slots__})
    return {"format": options.format, "limits": limits}


def files_of(source: str, options: OpenOptions) -> list[tuple[str, FileRange | BaseException, int]]:
    """The files that a source names, and their sizes; or what is wrong with the source."""
    try:
        found = with_sizes(expand(source, options), options)
        return [(shown(file.path), file, size_of(file)) for file in found]
    except GOES_ON as error:
        return [(redacted(source), error, 0)]


def _wrong_number(checked: Sequence[_Checked], expected: int | None) -> str:
    found = sum(one.report.records for one in checked if one.report is not None)
    if expected is None or found == expected:
        return ""
    return f"wrong number of records: expected {expected:,}, found {found:,}"


# -- for people --


def _show(out: Output, one: _Checked, shown_problems: int) -> None:
    status: Part = (f"{one.status:<10}", _STYLES[one.status])
    if one.report is None:
        assert one.error is not None
        out.line(status, "  ", one.path)
        out.paragraph("", _problem(one.error), indent=2)
    elif not one.report.ok or not out.is_quiet:
        about = f"  {one.report.format}, {plural(one.report.records, 'record')}, {bytes_text(one.report.file_bytes)}"
        out.line(status, "  ", one.path, (about, "dim"))
        for problem in one.report.problems[:shown_problems]:
            out.paragraph("", _problem(problem), indent=2)
        more = one.report.problem_count - min(shown_problems, len(one.report.problems))
        if more:
            out.line("  ", (f"{plural(more, 'more problem' if shown_problems else 'problem')}", "dim"))


def _problem(error: BaseException) -> str:
    return f"{type(error).__name__}: {_errors.message(error)}"


def _show_end(out: Output, checked: Sequence[_Checked], missing: str) -> None:
    if missing:
        out.line((missing, "bold red"))
    if len(checked) > 1:
        counts = [(sum(one.status == status for one in checked), status) for status in _STYLES]
        told = ", ".join(f"{count:,} {status}" for count, status in counts if count)
        records = sum(one.report.records for one in checked if one.report is not None)
        size = sum(one.report.file_bytes for one in checked if one.report is not None)
        text = f"{plural(len(checked), 'file')}: {told}; {plural(records, 'record')}, {bytes_text(size)}"
        out.paragraph((text, "bold"), "")
    commands = _next(checked)
    if commands:
        out.line("To save the records that can still be read:")
        for command in commands:
            out.line("  ", command)


def _next(checked: Sequence[_Checked]) -> list[str]:
    """The commands that save what is left of damaged files."""
    damaged = [one for one in checked if one.status == "damaged"]
    formats = {None if one.report is None else one.report.format for one in damaged}
    format = formats.pop() if len(formats) == 1 else None
    if not damaged or not all(one.path.isprintable() and _is_file(one.path) for one in damaged):
        return ["anyrecord salvage BAD GOOD"] if damaged else []
    if len(damaged) > 1 and format in _writable() and len({file_name(one.path) for one in damaged}) == len(damaged):
        names = " ".join(shlex.quote(one.path) for one in damaged)
        return [f"anyrecord salvage {names} salvaged/ --format {format}"]
    return [_salvage(one) for one in damaged]


def _is_file(path: str) -> bool:
    """Whether a path can be read again: it is no pipe."""
    return path != "-" and (is_url(path) or os.path.isfile(path))


def _salvage(one: _Checked) -> str:
    name = file_name(one.path) if is_url(one.path) else one.path
    format = one.report.format if one.report is not None and one.report.format in _writable() else None
    with suppress(ValueError):  # a name without a suffix
        format = format or _core.format_of_suffix(name)
    suffix = record_suffix(name)
    target = f"{name.removesuffix(suffix)}-salvaged{suffix}" if suffix else f"{name}-salvaged"
    told = f" --format {format or 'array_record'}" if _core.format_of_suffix(target) != format or not format else ""
    return f"anyrecord salvage {shlex.quote(one.path)} {shlex.quote(target)}{told}"


def _writable() -> set[str]:
    return {format for _, format in _core.suffixes()}


# -- for machines --


def _as_json(checked: Sequence[_Checked], missing: str) -> dict[str, Any]:
    return {
        "ok": all(one.status == "good" for one in checked) and not missing,
        "good": sum(one.status == "good" for one in checked),
        "damaged": sum(one.status == "damaged" for one in checked),
        "unreadable": sum(one.status == "unreadable" for one in checked),
        "records": sum(one.report.records for one in checked if one.report is not None),
        "wrong_number": missing or None,
        "files": [_file_json(one) for one in checked],
        "next": _next(checked),
    }


_FIELDS = (
    *("format", "records", "chunks", "file_bytes", "record_bytes", "decoded_bytes", "meta_bytes", "unused_bytes"),
    *("damaged_bytes", "problem_count"),
)


def _file_json(one: _Checked) -> dict[str, Any]:
    report = one.report
    problems = []
    if report is not None:
        for problem, (_, begin, end) in zip(report.problems, report.damaged, strict=True):
            problems.append({**_errors.described(problem), "begin": begin, "end": end})
    return {
        "path": one.path,
        "status": one.status,
        **{name: None if report is None else getattr(report, name) for name in _FIELDS},
        "problems": problems,
        "error": None if one.error is None else _errors.described(one.error),
    }
