"""Open records as the source of a conversion. They are iterated in order, with read-ahead, and written one by one."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from anyrecord._calls import Progress, add_note, stop_iteration_error
from anyrecord._locations import same_file, scheme_of
from anyrecord._mapped import MappedRecords
from anyrecord._paths import FileRange
from anyrecord._records import Records
from anyrecord.errors import ClosedError

if TYPE_CHECKING:
    from anyrecord._core import RecordsIterator
    from anyrecord._iteration import MappedIterator
    from anyrecord._options import OpenOptions
    from anyrecord._writer import Writer

__all__ = ["View", "files_of", "options_of", "pour", "source_bytes"]

View: TypeAlias = Records | MappedRecords[Any]

_PROGRESS_SECONDS = 0.05
# Reading the clock takes as long as copying a small record, so it is read only after this many records.
_CLOCK_EVERY = 64


def _records(view: View) -> Records:
    records = view._records if isinstance(view, MappedRecords) else view
    if records.closed:
        raise ClosedError("these records are closed; open them again")
    return records


def options_of(view: View) -> OpenOptions:
    """How the records were opened."""
    return _records(view)._source.options


def files_of(view: View) -> list[FileRange]:
    """The files that the records come from. Sources without a path are left out."""
    source = _records(view)._source
    paths = dict.fromkeys(same_file(file[-1]) for file in source.files() if file[-1] is not None)
    is_local = source.options.store is None
    return [FileRange(path, is_local=is_local and scheme_of(path) is None) for path in paths]


def source_bytes(view: View) -> int:
    """The size of the files that the records come from, each counted once."""
    source = _records(view)._source
    # Count a file that is named twice only once. Only paths can be named twice.
    names = [same_file(file[-1]) if file[-1] else number for number, file in enumerate(source.files())]
    sizes = (about[3] for about in source.descriptions())
    return sum(dict(zip(names, sizes, strict=True)).values())


def pour(
    view: View,
    writer: Writer,
    shards: int | None,
    map: Callable[[Any], Any] | None,
    progress: Progress | None,
    total: int,
) -> None:
    """Writes the records of the view, in order. With `shards`, each shard gets the same number of records.

    `total` is what the progress of all records together is.
    """
    records, count, shard = _records(view), shards or 1, 0
    each, more = divmod(len(view), count)
    reported = monotonic()
    iterator: RecordsIterator | MappedIterator[Any] = view.__iter__()
    for number, record in enumerate(iterator):
        # Damaged records that are left out have a position, too.
        position = iterator._position - 1 if records._leaves_out else number
        while shard + 1 < count and position >= each * (shard + 1) + min(more, shard + 1):
            writer._begin_shard()
            shard += 1
        try:
            value = record if map is None else map(record)
            if value is not None:
                writer.write(value)
        except StopIteration as error:
            raise _noted(stop_iteration_error(error), records, position) from error
        except Exception as error:
            _noted(error, records, position)
            raise
        if progress is not None and number % _CLOCK_EVERY == 0 and monotonic() - reported >= _PROGRESS_SECONDS:
            progress((position + 1) * total // len(view))
            reported = monotonic()
    for _ in range(shard + 1, count):  # shards without records
        writer._begin_shard()


def _noted(error: Exception, records: Records, position: int) -> Exception:
    add_note(error, f"while working on {records._describe(position)}")
    return error
