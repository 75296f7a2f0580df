"""`build_index`: writes a small index file next to the data, for formats that have no table of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._locations import StrPath
from anyrecord._options import open_options
from anyrecord._paths import expand
from anyrecord._targets import target_path
from anyrecord._temporaries import remove_silently

__all__ = ["build_index"]


def build_index(
    source: StrPath | Iterable[StrPath],
    *,
    format: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[str]:
    """Writes index files for RecordIO and TFRecord files, and returns the paths of all index files.

    >>> import anyrecord
    >>> with anyrecord.create("doc.tfrecord", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(1000))
    >>> anyrecord.build_index("doc.tfrecord")
    ['.doc.tfrecord.index']
    >>> anyrecord.open("doc.tfrecord")[700]
    b'700'

    The index of `train.tfrecord` is the hidden file `.train.tfrecord.index` in the same folder. With an index, `open`
    does not scan the whole file. `open` first compares the size and some of the headers with the index, and ignores an
    index that does not fit. `build_index` keeps an index that fits, and writes one that is missing or does not fit.
    An index is optional: you can always delete it.

    Files of formats that have a table need no index and are skipped. So are compressed TFRecord files, which must be
    decompressed from the beginning anyway. `progress(done, total)` is called with bytes of data after each file.
    """
    options = open_options(format=format)
    if isinstance(source, Iterator):
        source = list(source)
    for path in [source] if isinstance(source, str | os.PathLike) or not isinstance(source, Iterable) else source:
        if isinstance(path, str | os.PathLike):  # `expand` refuses anything else
            target_path(path)
    files = expand(source, options)
    paths = list(dict.fromkeys(file.path for file in files))
    sizes = [os.path.getsize(path) for path in paths]
    found, done, report = [], 0, Progress(progress, sum(sizes))
    for path, size in zip(paths, sizes, strict=True):
        index = _core.build_index(path, options)
        if index is not None:
            found.append(os.fspath(index))
        done += size
        report(done)
    # An index that was not finished is worth nothing: it is built from the data.
    remove_silently(found)
    return found
