"""`build_index`: where records are, in a small file beside the data, for formats that keep no table of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._locations import StrPath
from anyrecord._options import open_options
from anyrecord._paths import expand

__all__ = ["build_index"]


def build_index(
    source: StrPath | Iterable[StrPath],
    *,
    format: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[str]:
    """Makes the side indexes of RecordIO and TFRecord files that have none, or one that does not fit; returns them all.

    The index of `train.tfrecord` is the hidden file `.train.tfrecord.index` beside it. `open` uses it instead of
    going through the whole file, once it has compared the size and some of the headers; one that does not fit is as
    good as none. It is never needed, and can be deleted.

    >>> import anyrecord
    >>> with anyrecord.create("doc.tfrecord", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(1000))
    >>> anyrecord.build_index("doc.tfrecord")
    ['.doc.tfrecord.index']
    >>> anyrecord.open("doc.tfrecord")[700]
    b'700'

    Files of formats that have a table, and compressed TFRecord files, which have to be unpacked from the beginning
    anyway, get none and are passed over. `progress(done, total)` is called with bytes of data after each file.
    """
    options = open_options(format=format)
    paths = list(dict.fromkeys(file.path for file in expand(source)))
    sizes = [os.path.getsize(path) for path in paths]
    found, done, tell = [], 0, Progress(progress, sum(sizes))
    for path, size in zip(paths, sizes, strict=True):
        index = _core.build_index(path, options)
        if index is not None:
            found.append(os.fspath(index))
        done += size
        tell(done)
    return found
