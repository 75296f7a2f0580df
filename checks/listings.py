"""Packed folders by an attacker: no code runs, nothing is written outside, and what is unsafe is refused before the
first write."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyrecord
from folder.listings import HOSTILE, UNSAFE_TO_UNPACK, pack_listing

from checks.figures import Figure

__all__ = ["run"]


def run(short: bool) -> list[Figure]:
    """Opens malicious listings, unpacks unsafe names, and unpacks into folders full of links."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)  # what a listing might run makes a folder here
        try:
            return [_opened(), _unpacked(), _into_links()]
        finally:
            os.chdir(before)


def _opened() -> Figure:
    figure = Figure("malicious listings, opened", at_least=20)
    for name, listing in HOSTILE.items():
        path = pack_listing(Path("made.ffr"), listing)
        figure.tried += 1
        error = _refusal(partial(anyrecord.Folder, path))
        if error is None:
            figure.violations.append(f"{name}: it opens")
        elif error.path != str(path) or error.record is None or error.offset is None or not error.expected:
            figure.violations.append(f"{name}: the error does not say where: {error}")
        if left := set(os.listdir()) - {path.name}:
            figure.violations.append(f"{name}: it made {left}")
    return figure


def _unpacked() -> Figure:
    figure = Figure("unsafe names, unpacked", at_least=5)
    for name, tree in UNSAFE_TO_UNPACK.items():
        path = pack_listing(Path("made.ffr"), pickle.dumps(tree))
        figure.tried += 1
        with anyrecord.Folder(path) as packed:
            if _refusal(partial(packed.unpack, "out")) is None:
                figure.violations.append(f"{name}: it is unpacked")
        if left := set(os.listdir()) - {path.name}:
            figure.violations.append(f"{name}: it wrote {left} before it was refused")
    return figure


def _into_links() -> Figure:
    """A target that has links in it already: nothing is written through them."""
    figure = Figure("unpacked into folders with links in them", at_least=4)
    Path("source/d").mkdir(parents=True)
    Path("source/d/f").write_bytes(b"new")
    Path("source/g").write_bytes(b"new")
    anyrecord.pack("source", "packed.ffr")
    for link in ("d", "g", "d/f", "."):
        outside, target = Path(f"outside-{figure.tried}"), Path(f"target-{figure.tried}")
        outside.mkdir()
        (outside / "f").write_bytes(b"old")
        (outside / "kept").write_bytes(b"old")
        if link == ".":
            target.symlink_to(outside)
        else:
            (target / link).parent.mkdir(parents=True)
            to = outside if link == "d" else outside / "kept"
            (target / link).symlink_to(to.absolute(), target_is_directory=link == "d")
        figure.tried += 1
        for overwrite in (False, True):
            try:
                with anyrecord.Folder("packed.ffr") as packed:
                    packed.unpack(target, overwrite=overwrite)
            except (OSError, ValueError):
                pass
            is_asked_for = link == "."  # a target that is a link is where the caller wants the files
            if not is_asked_for and {path.name: path.read_bytes() for path in outside.iterdir()} != {
                "f": b"old",
                "kept": b"old",
            }:
                figure.violations.append(f"a link at {link}: files outside were changed (overwrite={overwrite})")
    return figure


def _refusal(act: Callable[[], object]) -> anyrecord.FormatError | None:
    try:
        act()
    except anyrecord.FormatError as error:
        return error
    return None
