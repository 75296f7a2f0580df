"""`dump`: writes a data set to one file, or to several files in a folder with several processes."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyrecord.compat._types import StrPath, files_in, is_url, shown, text_of
from anyrecord.compat.ffrecord.writer import FileWriter

__all__ = ["dump"]


_MOST_PROCESSES = 16
_dataset: Any = None  # in a worker process, the data set to write


def dump(dataset: Any, fname: StrPath, nfiles: int, verbose: bool = False) -> None:
    """Writes all items of `dataset`. The data set has a length, and returns bytes for each index.

    With `nfiles=1`, the items go to the file `fname`. Else they go to `PART_00000.ffr` and so on in the folder `fname`,
    which is created. An error in any process is raised here.

    >>> from anyrecord.compat.ffrecord import FileReader, utils
    >>> utils.dump([b"a", b"b", b"c"], "parts", nfiles=2)
    >>> FileReader("parts").n
    3
    """
    target = text_of(fname)
    if nfiles == 1:
        _write(dataset, 0, len(dataset), target)
        if verbose:
            print(f"1/1 {shown(target)}", flush=True)
        return
    size = -(-len(dataset) // nfiles) if nfiles >= 0 else len(dataset)
    starts = range(0, len(dataset), size)
    if len(starts) != nfiles:
        warnings.warn(f"Split into {len(starts)} files rather than {nfiles} files", stacklevel=2)
    if is_url(target):
        folder = target.rstrip("/")
    else:
        folder = str(Path(target))
        os.makedirs(folder, exist_ok=True)
    parts = [
        (start, min(start + size, len(dataset)), os.path.join(folder, f"PART_{k:05d}.ffr"))
        for k, start in enumerate(starts)
    ]
    _warn_of_others(folder, {path for *_, path in parts})
    _write_all(dataset, parts, verbose)


def _write_all(dataset: Any, parts: list[tuple[int, int, str]], verbose: bool) -> None:
    # A forked child inherits the data set. With other start methods, it must be possible to pickle the data set.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    pool = ProcessPoolExecutor(
        min(len(parts), _MOST_PROCESSES),
        mp_context=multiprocessing.get_context(method),
        initializer=_set_dataset,
        initargs=(dataset,),
    )
    try:
        waiting = {pool.submit(_write_part, *part): part[2] for part in parts}
        for done, future in enumerate(as_completed(waiting), 1):
            future.result()
            if verbose:
                print(f"{done}/{len(parts)} {waiting[future]}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


def _set_dataset(dataset: Any) -> None:
    global _dataset
    _dataset = dataset


def _write_part(start: int, stop: int, path: str) -> None:
    _write(_dataset, start, stop, path)


def _write(dataset: Any, start: int, stop: int, path: str) -> None:
    with FileWriter(path, stop - start) as writer:
        for index in range(start, stop):
            writer.write_one(dataset[index])


def _warn_of_others(folder: str, parts: set[str]) -> None:
    found = []
    if is_url(folder):
        with suppress(OSError):  # there is nothing yet, or the server cannot list
            found = files_in(folder, "*.ffr")
    else:
        found = [str(path) for path in Path(folder).glob("*.ffr")]
    others = sorted(shown(path) for path in found if path not in parts)
    if others:
        warnings.warn(
            f"{shown(folder)} contains other .ffr files, which readers of the folder will also read: "
            f"{', '.join(others[:3])}",
            stacklevel=3,
        )
