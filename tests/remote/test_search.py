"""Remote files of formats without a table are searched for records. A side index beside them saves that."""

from __future__ import annotations

import warnings
from pathlib import Path

import anyrecord
import pytest

from .files import bytes_of
from .places import Place

RECORDS = [b"%d" % i * 100 for i in range(300)]


def file_of(format: str, records: list[bytes] = RECORDS) -> bytes:
    return bytes_of(format, records)


def index_of(name: str, data: bytes) -> bytes:
    """The side index of a local copy."""
    Path(name).write_bytes(data)
    anyrecord.build_index(name)
    return Path(f".{name}.index").read_bytes()


@pytest.mark.parametrize("format", ["recordio", "tfrecord"])
def test_a_search_is_told_once_and_a_side_index_saves_it(place: Place, format: str) -> None:
    data, names = file_of(format), [f"search-{format}/{name}.{format}" for name in "abc"]
    for name in names:
        place.put(name, data)
    paths = [place.path(name) for name in names]
    with pytest.warns(
        UserWarning, match=rf"searched 3 files of together {3 * len(data):,} bytes .*build_index"
    ) as told:
        assert anyrecord.open(paths, storage=place.storage)[650] == RECORDS[50]
    assert len(told) == 1
    assert f"('.a.{format}.index' for 'a.{format}')" in str(told[0].message)

    index = index_of(f"a.{format}", data)
    for name in "abc":
        place.put(f"search-{format}/.{name}.{format}.index", index)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = anyrecord.open(paths, storage=place.storage)
        assert records[650] == RECORDS[50]
        assert len(records) == 900


@pytest.mark.parametrize("format", ["ffrecord", "array_record"])
def test_a_format_with_a_table_is_not_searched(place: Place, format: str) -> None:
    place.put(f"table.{format}", file_of(format))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert anyrecord.open(place.path(f"table.{format}"), storage=place.storage)[5] == RECORDS[5]


@pytest.mark.parametrize("format", ["recordio", "tfrecord"])
def test_a_side_index_of_other_data_is_ignored(place: Place, format: str) -> None:
    place.put(f"other/a.{format}", file_of(format))
    place.put(f"other/.a.{format}.index", index_of(f"a.{format}", file_of(format, RECORDS[:100])))
    with pytest.warns(UserWarning, match="searched a file of"):
        assert list(anyrecord.open(place.path(f"other/a.{format}"), storage=place.storage)) == RECORDS


@pytest.mark.parametrize("format", ["recordio", "tfrecord"])
def test_an_empty_object_is_an_empty_file(place: Place, format: str) -> None:
    place.put(f"empty.{format}", file_of(format, []))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(anyrecord.open(place.path(f"empty.{format}"), storage=place.storage)) == []


def test_objects_in_memory_are_the_same_with_all_options() -> None:
    from anyrecord import _core

    _core.put_object("memory://same/a.ffr", file_of("ffrecord"), [])
    for options in ({}, {"max_requests": 1}, {"readahead_bytes": 0, "part_size": 4096}):
        assert anyrecord.open("memory://same/a.ffr", storage=options)[7] == RECORDS[7]
