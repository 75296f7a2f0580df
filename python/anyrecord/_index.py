"""`build_index`: writes a small index file next to the data, for formats that have no table of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._locations import StrPath, is_url, shown
from anyrecord._options import open_options
from anyrecord._paths import expand, size_of, with_sizes
from anyrecord._stores import Storage
from anyrecord._temporaries import remove_silently

__all__ = ["build_index"]


def build_index(
    source: StrPath | Iterable[StrPath],
    *,
    format: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    storage: Storage | None = None,
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

    A source can be a URL, with `storage` as for `open`. The index is then an object beside it.
    """
    options = open_options(format=format, storage=storage)
    if options.store is not None:
        raise ValueError(
            f"storage= cannot be a {type(storage).__name__} to write to: pass a URL and a dict of options, or build "
            "the index of a local copy"
        )
    files = {file.path: file for file in with_sizes(expand(source, options), options)}
    sizes = {path: size_of(file) for path, file in files.items()}
    found, done, report = [], 0, Progress(progress, sum(sizes.values()))
    for path, size in sizes.items():
        index = _core.build_index(path, options)
        if index is not None:
            found.append(shown(index))
        done += size
        report(done)
    # An index that was not finished is worth nothing: it is built from the data.
    remove_silently(index for index in found if not is_url(index))
    return found
