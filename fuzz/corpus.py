"""The committed corpora: one FFRecord file for each target, `corpus/TARGET.ffr`.

A record is an input. The inputs are sorted, so the same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyrecord

HERE = Path(__file__).resolve().parent
MOST_BYTES = 192 << 10
"""Bytes of the inputs of one corpus. The largest inputs are left out first."""


def stored(target: str) -> Path:
    """The committed corpus of a target."""
    return HERE / "corpus" / f"{target}.ffr"


def work(target: str) -> Path:
    """The folder to which the fuzzer adds inputs. It is not committed."""
    return HERE / "work" / target


def inputs(target: str) -> list[bytes]:
    """The committed inputs of a target."""
    path = stored(target)
    if not path.exists():
        return []
    with anyrecord.open(path) as records:
        return list(records)


def unpack(target: str) -> Path:
    """Puts the committed inputs into the work folder, named as libFuzzer names them. Returns the folder."""
    folder = work(target)
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs(target):
        path = folder / hashlib.sha1(data).hexdigest()
        if not path.exists():
            path.write_bytes(data)
    return folder


def pack(target: str, folder: Path) -> tuple[int, int]:
    """Makes the files of a folder the committed corpus. Returns how many were taken, and how many there were."""
    found = {path.read_bytes() for path in folder.iterdir()}
    taken: list[bytes] = []
    size = 0
    for data in sorted(found, key=lambda data: (len(data), data)):
        size += len(data)
        if size > MOST_BYTES:
            break
        taken.append(data)
    stored(target).parent.mkdir(exist_ok=True)
    with anyrecord.create(stored(target), overwrite=True) as out:
        out.write_many(sorted(taken))
    return len(taken), len(found)
