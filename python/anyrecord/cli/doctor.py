"""`anyrecord doctor`: what is installed, what this machine can do, and what is slow here."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata
from typing import Any

import click

import anyrecord
from anyrecord._locations import is_url, shown
from anyrecord.cli import _machine
from anyrecord.cli._inputs import Reading, reading_options
from anyrecord.cli._output import Output
from anyrecord.cli._params import SOURCE
from anyrecord.cli._units import bytes_text, count_text, plural
from anyrecord.cli._verb import verb

__all__ = ["command"]

_PACKAGES = {
    "extras": ("click", "rich", "torch", "numpy", "apache-beam", "pyarrow", "ray", "redis"),
    "storage": ("obstore", "fsspec"),
    "originals": ("array-record", "ffrecord", "tensorflow"),
    "frameworks": ("grain", "jax", "lightning", "torchdata", "datasets"),
}
_HAVE_TABLE = frozenset({"array_record", "ffrecord"})


@verb(
    "doctor",
    examples=[
        "anyrecord doctor",
        "anyrecord doctor 'train-*.tfrecord'         # and how these files are read",
        "anyrecord doctor --json > report.json",
    ],
)
@click.argument("sources", metavar="[SOURCE...]", type=SOURCE, nargs=-1)
@reading_options("format", "storage", "cache")
def command(out: Output, sources: tuple[str, ...], reading: Reading) -> None:
    """Show versions, features, and what is slow here and why.

    With files, it also shows how they are read: the file system, what io= does, and how long opening takes.
    """
    facts = _facts()
    facts["sources"] = [_source(source, reading) for source in sources]
    from anyrecord.cli._findings import findings

    found = list(findings(facts))
    if out.as_json:
        out.write_json(facts | {"findings": [finding._asdict() for finding in found]})
        return
    _show(out, facts)
    out.line()
    if not found:
        out.line(("Nothing here is known to be slow.", "green"))
        return
    out.line(("What is slow here", "bold"))
    for finding in found:
        out.paragraph((f"{finding.about}: ", "yellow"), f"{finding.what}.", indent=2)
        out.paragraph(("to do: ", "dim"), f"{finding.advice}.", indent=4)


def _facts() -> dict[str, Any]:
    allowed, reason = _machine.io_uring()
    soft, hard = _machine.open_files()
    packages = {name: _version(name) for names in _PACKAGES.values() for name in names}
    return {
        "anyrecord": anyrecord.__version__,
        "location": os.path.dirname(anyrecord.__file__),
        "formats": sorted(anyrecord._core.formats()),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)(),
        "system": platform.platform(),
        "compat": os.environ.get("ANYRECORD_COMPAT") or None,
        "cpu": _machine.cpu(),
        "memory": _machine.memory(),
        "open_files": {"soft": soft, "hard": hard},
        "io_uring": {"allowed": allowed, "reason": reason or None},
        "packages": packages,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _source(source: str, reading: Reading) -> dict[str, Any]:
    if source == "-":
        raise ValueError("standard input has no file system to look at; pass the name of a file")
    begin = time.perf_counter()
    with reading.open(source) as records:
        seconds = time.perf_counter() - begin
        named, abouts = records._source.files(), records._source.descriptions()
        files = [_file(path, format, codec) for (path, *_), (format, *_, codec, _) in zip(named, abouts, strict=True)]
    decoded = [about[5] for about in abouts]
    return {
        "source": shown(source),
        "records": sum(about[1] for about in abouts),
        "chunks": sum(about[2] for about in abouts),
        "file_bytes": sum(about[3] for about in abouts),
        "decoded_bytes": None if None in decoded else sum(size or 0 for size in decoded),
        "open_seconds": round(seconds, 6),
        "has_cache": "cache" in reading.keywords,
        "files": files,
    }


def _file(path: str, format: str, codec: str | None) -> dict[str, Any]:
    is_remote = is_url(path)
    folder, name = os.path.split(path)
    has_index = format in _HAVE_TABLE or os.path.isfile(os.path.join(folder, f".{name}.index"))
    is_stream = format == "tfrecord" and codec != "none"  # needs no index: it is read from the beginning anyway
    kind, mount = (None, None) if is_remote else _machine.file_system(path)
    return {
        "path": path,
        "format": format,
        "codec": codec,
        "file_system": kind,
        "mounted_at": mount,
        "io": "requests" if is_remote else "map" if kind in _machine.LOCAL else None if kind is None else "plain",
        "supports_direct": None if is_remote else _machine.supports_direct(path),
        "page_cache_share": None if is_remote else _machine.cached_share(path),
        "index": None if is_remote or is_stream else "there" if has_index else "none",
    }


def _show(out: Output, facts: dict[str, Any]) -> None:
    cpu, memory, uring = facts["cpu"], facts["memory"], facts["io_uring"]
    free = ", free-threaded" if facts["free_threaded"] else ""
    cores = f"{plural(cpu['usable_cores'] or 1, 'core')} of {cpu['cores']}"
    limit = "" if cpu["limit_cores"] is None else f", limited to {cpu['limit_cores']:g}"
    out.line((f"anyrecord {facts['anyrecord']}", "bold"))
    out.fields(
        [
            ("installed in", facts["location"]),
            ("formats", ", ".join(facts["formats"])),
            ("python", f"{facts['python']}{free}"),
            ("system", facts["system"]),
            *([("drop-ins", f"ANYRECORD_COMPAT={facts['compat']}")] if facts["compat"] else []),
        ],
        indent=2,
    )
    out.line(("This machine", "bold"))
    out.fields(
        [
            ("processor", cpu["model"]),
            ("cores", f"{cores}{limit}"),
            ("features", ", ".join(cpu["features"]) or "not known"),
            ("memory", _memory_text(memory)),
            ("page cache", bytes_text(memory["page_cache_bytes"])),
            ("/dev/shm", bytes_text(memory["shared_memory_bytes"])),
            (
                "open files",
                f"{count_text(facts['open_files']['soft'])}, at most {count_text(facts['open_files']['hard'])}",
            ),
            ("io_uring", "allowed" if uring["allowed"] else uring["reason"]),
        ],
        indent=2,
    )
    out.line(("Packages", "bold"))
    groups = [
        (group, ", ".join(f"{name} {facts['packages'][name]}" for name in names if facts["packages"][name]) or "none")
        for group, names in _PACKAGES.items()
    ]
    out.fields(groups, indent=2)
    for source in facts["sources"]:
        _show_source(out, source)


def _memory_text(memory: dict[str, Any]) -> str:
    text = f"{bytes_text(memory['available_bytes'])} available of {bytes_text(memory['total_bytes'])}"
    return text if memory["limit_bytes"] is None else f"{text}, limited to {bytes_text(memory['limit_bytes'])}"


def _show_source(out: Output, source: dict[str, Any]) -> None:
    out.line((source["source"], "bold"))
    files = source["files"]
    ways = sorted({file["io"] or "auto" for file in files})
    systems = sorted({file["file_system"] or "-" for file in files if file["io"] != "requests"})
    shares = [file["page_cache_share"] for file in files if file["page_cache_share"] is not None]
    direct = {file["supports_direct"] for file in files if file["supports_direct"] is not None}
    pairs = [
        (
            "records",
            f"{count_text(source['records'])} in {plural(len(files), 'file')}, {bytes_text(source['file_bytes'])}",
        ),
        ("opening took", f"{source['open_seconds']:.3f} s"),
        ("file system", ", ".join(systems) or "a server"),
        ("read by", ", ".join({"map": "memory map"}.get(way, way) for way in ways)),
    ]
    if direct:
        pairs.append(("io=direct", "possible" if direct == {True} else "not possible"))
    if shares:
        pairs.append(("in page cache", f"{100 * sum(shares) / len(shares):.0f} %"))
    out.fields(pairs, indent=2)
