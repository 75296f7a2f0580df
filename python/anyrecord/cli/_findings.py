"""What is slow here, why, and what to do about it: the conclusions of `anyrecord doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from anyrecord import _core
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verbs import VERBS

__all__ = ["Finding", "findings"]

_SMALL_SHARED_MEMORY = 1 << 30
_FEW_OPEN_FILES = 1024
_LARGE_CHUNK = 1 << 20
_LARGE_FILES = 16 << 20
"""Smaller files are opened in no time, with or without an index."""


class Finding(NamedTuple):
    """Something to know about."""

    about: str
    """A word, such as "cpu"."""
    what: str
    """What is so, and what that means."""
    advice: str
    """What to do."""


def findings(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Looks at all facts of `doctor`."""
    yield from _of_machine(facts)
    for source in facts["sources"]:
        yield from _of_source(source, facts)


def _of_machine(facts: Mapping[str, Any]) -> Iterator[Finding]:
    cpu, memory = facts["cpu"], facts["memory"]
    if _core.DEBUG_BUILD:
        yield Finding("build", "this is a debug build, which is many times slower", "build with --release")
    if cpu["limit_cores"] is not None and cpu["usable_cores"] and cpu["limit_cores"] < cpu["usable_cores"]:
        what = f"a control group limits this process to {cpu['limit_cores']:g} of {cpu['usable_cores']} cores"
        yield Finding("cpu", f"{what}, but a thread is started for each core", "pass threads= to open and create")
    elif cpu["usable_cores"] == 1:
        yield Finding("cpu", "there is one core, so batches are decoded by one thread", "use more cores, if you can")
    if cpu["architecture"] in ("x86_64", "AMD64") and cpu["features"] and "avx2" not in cpu["features"]:
        yield Finding("cpu", "the processor has no AVX2, so ArrayRecord's hashes are slower", "use a newer processor")
    if facts["io_uring"]["allowed"] is False:
        what = f"io_uring cannot be used: {facts['io_uring']['reason']}; io='direct' reads with a few threads instead"
        yield Finding("io_uring", what, "allow io_uring, if you read with io='direct'")
    soft, hard = facts["open_files"]["soft"], facts["open_files"]["hard"]
    if soft is not None and soft < _FEW_OPEN_FILES:
        most = "" if hard is None else f" (at most {hard:,})"
        yield Finding("files", f"this process may open only {plural(soft, 'file')}", f"raise it with ulimit -n{most}")
    shared = memory["shared_memory_bytes"]
    if shared is not None and shared < _SMALL_SHARED_MEMORY and facts["packages"].get("torch"):
        what = f"/dev/shm has only {bytes_text(shared)}, through which PyTorch's workers send batches"
        yield Finding("memory", what, "start the container with a larger one, such as --shm-size=8g")


def _of_source(source: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Finding]:
    name, local = source["source"], [file for file in source["files"] if file["io"] != "requests"]
    if plain := [file for file in local if file["io"] == "plain"]:
        what = f"{_some(plain)} on {plain[0]['file_system']}, which is not known to be a local file system, so "
        yield Finding(name, f"{what}each read is a call", "copy the files to a local disk, if you read them often")
    if len(local) < len(source["files"]) and not source["has_cache"]:
        yield Finding(name, "each epoch fetches the files from a server again", "pass cache=, a folder on a local disk")
    is_large = source["file_bytes"] >= _LARGE_FILES
    if is_large and (missing := [file for file in source["files"] if file["index"] == "none"]):
        advice = "'anyrecord index'" if "index" in VERBS else "anyrecord.build_index"
        what = f"{_some(missing)} without an index, so opening reads the headers of all chunks"
        yield Finding(name, what, f"write indexes with {advice}")
    streams = [file for file in source["files"] if file["format"] == "tfrecord" and file["codec"] != "none"]
    if is_large and streams:
        what = f"{_some(streams)} one compressed stream, which opening decompresses from the beginning"
        yield Finding(name, what, "convert to a format that compresses in chunks, such as array_record")
    chunks = source["decoded_bytes"] and source["chunks"] and source["decoded_bytes"] // source["chunks"]
    if chunks and chunks > _LARGE_CHUNK and source["records"] > source["chunks"]:
        what = f"a chunk has {bytes_text(chunks)} and several records; reading one at random decodes all of them"
        yield Finding(name, what, "shuffle with window=, or convert to smaller chunks (group_size=, chunk_bytes=)")
    room = min(
        (size for size in (facts["memory"]["limit_bytes"], facts["memory"]["total_bytes"]) if size), default=None
    )
    if room is not None and local and source["file_bytes"] > room:
        what = f"the files have {bytes_text(source['file_bytes'])}, more than the {bytes_text(room)} of memory"
        yield Finding(name, f"{what}, so the page cache cannot hold them", "try io='direct', or shuffle with window=")


def _some(files: list[Mapping[str, Any]]) -> str:
    return f"{files[0]['path']} is" if len(files) == 1 else f"{plural(len(files), 'file')} are"
