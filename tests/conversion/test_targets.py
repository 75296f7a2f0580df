"""Where converted records go: names, folders, what is overwritten and what is refused."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import _core

RECORDS = [b"%d" % number for number in range(10)]


def make(name: str, records: list[bytes] = RECORDS, **options: Any) -> str:
    Path(name).parent.mkdir(exist_ok=True)
    with anyrecord.create(name, durable=False, **options) as out:
        out.write_many(records)
    return name


def names(folder: str = ".") -> list[str]:
    return sorted(os.listdir(folder))


def test_one_file_tells_what_it_became() -> None:
    make("a.tfrecord")
    done = anyrecord.convert("a.tfrecord", Path("b.recordio"))
    assert done.paths == ("b.recordio",)
    assert (done.format, done.records) == ("recordio", 10)
    assert done.source_bytes == os.path.getsize("a.tfrecord")
    assert done.file_bytes == os.path.getsize("b.recordio")
    assert names() == ["a.tfrecord", "b.recordio"]


def test_a_folder_takes_one_file_for_each_source_under_its_own_name() -> None:
    for name in (
        "s/plain.tfrecord",
        "s/beam-00000-of-00002.ffr",
        "s/tfds.recordio-00001-of-00002",
        "s/part.arrayrecord",
    ):
        make(name, [name.encode()])
    make("s/other.name", [b"other"], format="ffrecord")
    make("s/odd-00000-of-00001", [b"odd"], format="ffrecord")
    sources = [f"s/{name}" for name in names("s")]
    os.mkdir("there")
    done = anyrecord.convert(sources, "there", format="array_record")
    expected = {
        "beam-00000-of-00002.array_record": b"s/beam-00000-of-00002.ffr",
        "odd-00000-of-00001.array_record": b"odd",
        "other.name.array_record": b"other",
        "part.array_record": b"s/part.arrayrecord",
        "plain.array_record": b"s/plain.tfrecord",
        "tfds.array_record-00001-of-00002": b"s/tfds.recordio-00001-of-00002",
    }
    assert names("there") == sorted(expected)
    assert [*done.paths] == [os.path.join("there", name) for name in sorted(expected)]
    assert {name: anyrecord.open(f"there/{name}")[0] for name in expected} == expected


def test_both_ways_to_name_shards_stay_sets_in_a_new_folder() -> None:
    make("beam.tfrecord", shards=3)
    for number in range(2):
        make(f"tfds.tfrecord-0000{number}-of-00002", [b"%d" % number])
    anyrecord.convert("beam.tfrecord@3", "made/", format="ffrecord")
    anyrecord.convert("tfds.tfrecord@2", "made/", format="ffrecord")
    assert list(anyrecord.open("made/beam.ffr@3")) == list(anyrecord.open("beam.tfrecord@3"))
    assert list(anyrecord.open("made/tfds.ffr@2")) == [b"0", b"1"]


@pytest.mark.parametrize(("codec", "suffix"), [("none", ""), ("gzip", ".gz"), ("zlib", ".zlib")])
def test_compressed_tfrecord_is_named_as_such_in_a_folder(codec: Any, suffix: str) -> None:
    make("a.ffr")
    assert anyrecord.convert("a.ffr", "made/", format="tfrecord", codec=codec).paths == (f"made/a.tfrecord{suffix}",)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: anyrecord.convert("a.ffr", "made/"), "pass format="),
        (lambda: anyrecord.convert("a.ffr", "made/", format="ffrecord", shards=2), "pass a file name to write shards"),
        (lambda: anyrecord.convert("a.ffr", "made/", format="riegeli"), "one of array_record, ffrecord"),
        (lambda: anyrecord.convert("a.ffr", "b.unknown"), "pass format="),
        (lambda: anyrecord.convert("a.ffr", "b.ffr", format="nonsense"), "unknown format 'nonsense'"),
        (lambda: anyrecord.convert("a.ffr", "b.riegeli", format="riegeli"), "riegeli"),
        (lambda: anyrecord.convert("a.ffr", "b.ffr", shards=2, shard_records=1), "exclude each other"),
        (lambda: anyrecord.convert("a.ffr", "b.ffr", shards=0), "shards=0 is not valid"),
        (lambda: anyrecord.convert("a.ffr", "b.ffr", threads=-1), "threads=-1"),
        (lambda: anyrecord.convert("a.ffr", "b.ffr", codec="zstd"), "ffrecord has no option 'codec'"),
        (lambda: anyrecord.convert("a.ffr", "b.tfrecord", chunk_bytes=5), "no option 'chunk_bytes'; it has: codec"),
        (lambda: anyrecord.convert("a.ffr", "b.array_record", level=99), "level=99"),
        (lambda: anyrecord.convert(["a.ffr", "sub/a.ffr"], "made/", format="tfrecord"), "would both become"),
        (lambda: anyrecord.convert("a.ffr[3:11]", "b.ffr"), "records 3..11 are not in the file, which has 10"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(call: Callable[[], object], says: str) -> None:
    make("a.ffr")
    make("sub/a.ffr")
    before = names()
    with pytest.raises(ValueError, match=says):
        call()
    assert [name for name in names() if name != "made"] == before
    assert not os.path.exists("made") or names("made") == []


def test_arguments_of_another_kind_are_type_errors() -> None:
    make("a.ffr")
    for keywords in ({"map": 5}, {"progress": "x"}, {"limits": 5}):
        with pytest.raises(TypeError):
            anyrecord.convert("a.ffr", "b.ffr", **keywords)
    for source, target in (("a.ffr", b"b.ffr"), (b"a.ffr", "b.ffr"), (5, "b.ffr")):
        with pytest.raises(TypeError):
            anyrecord.convert(source, target)  # type: ignore[arg-type]
    assert names() == ["a.ffr"]


@pytest.mark.parametrize("options", [{"nonsense": 5}, {"num_records": 10}, {"num_records": None}, {"tally": False}])
@pytest.mark.parametrize("target", ["b.ffr", "b.array_record", "made/"])
def test_an_unknown_option_is_a_type_error_as_it_is_for_create(options: dict[str, Any], target: str) -> None:
    """One of them, handed on unchecked, could publish a file that says less than it holds."""
    make("a.ffr")
    (keyword,) = options
    with pytest.raises(TypeError, match=rf"convert\(\) got an unexpected keyword argument '{keyword}'"):
        anyrecord.convert("a.ffr", target, format="ffrecord", **options)
    assert names() == ["a.ffr"]


def test_a_name_that_a_longer_suffix_makes_too_long_is_refused_before_anything_is_read() -> None:
    make("a.ffr")
    long = make("x" * 246 + ".ffr")

    def read(record: bytes) -> bytes:
        raise AssertionError("a record was read")

    with pytest.raises(OSError, match="File name too long"):
        anyrecord.convert(["a.ffr", long], "made/", format="array_record", map=read)
    assert names("made") == []


@pytest.mark.parametrize("name", ["missing.ffr", "missing-*.ffr", "missing@3"])
def test_a_missing_source_is_not_found(name: str) -> None:
    with pytest.raises(FileNotFoundError):
        anyrecord.convert(name, "b.ffr")
    assert names() == []


def test_an_existing_file_stays_unless_it_is_to_be_overwritten() -> None:
    make("a.tfrecord")
    make("b.ffr", [b"old"])
    make("s.ffr", [b"old"], shards=2)
    make("made/a.ffr", [b"old"])
    for target, keywords in (("b.ffr", {}), ("s.ffr", {"shards": 3}), ("made", {"format": "ffrecord"})):
        with pytest.raises(FileExistsError, match="overwrite=True"):
            anyrecord.convert("a.tfrecord", target, **keywords)
        done = anyrecord.convert("a.tfrecord", target, overwrite=True, **keywords)
        assert list(anyrecord.open(done.paths)) == RECORDS
    assert names() == ["a.tfrecord", "b.ffr", "made", *(f"s-0000{i}-of-00003.ffr" for i in range(3))]


def test_a_file_can_be_converted_in_place() -> None:
    make("a.ffr")
    with pytest.raises(FileExistsError, match="it is a source"):
        anyrecord.convert("a.ffr", "a.ffr")
    anyrecord.convert("a.ffr", "a.ffr", format="tfrecord", overwrite=True, map=lambda record: record * 2)
    assert (anyrecord.open("a.ffr").format, list(anyrecord.open("a.ffr"))) == ("tfrecord", [r * 2 for r in RECORDS])
    os.symlink("a.ffr", "link.ffr")
    anyrecord.convert("link.ffr", "a.ffr", overwrite=True)
    anyrecord.convert("a.ffr", ".", format="ffrecord", overwrite=True)
    assert (anyrecord.open("a.ffr").format, list(anyrecord.open("a.ffr"))) == ("ffrecord", [r * 2 for r in RECORDS])
    assert names() == ["a.ffr", "link.ffr"]


def test_a_source_is_never_removed_for_new_shards_or_for_the_copy_of_another() -> None:
    make("a.ffr", shards=2)
    with pytest.raises(ValueError, match="is a source and would be replaced by the new shards"):
        anyrecord.convert("a.ffr@2", "a.ffr", shards=3, overwrite=True)
    make("x.tfrecord", [b"x"])
    make("another.ffr", [b"another"])
    os.symlink("another.ffr", "x.ffr")
    with pytest.raises(ValueError, match=r"source 'another.ffr' and would be replaced by the copy of 'x.tfrecord'"):
        anyrecord.convert(["x.tfrecord", "another.ffr"], ".", format="ffrecord", overwrite=True)
    assert sorted(anyrecord.open("a.ffr@2")) == RECORDS
    assert list(anyrecord.open("another.ffr")) == [b"another"]


def test_more_shards_than_records_leaves_some_empty() -> None:
    make("a.tfrecord", [b"1", b"2"])
    anyrecord.convert("a.tfrecord", "b.array_record", shards=4)
    assert [len(anyrecord.open(path)) for path in anyrecord.open("b.array_record@4").paths] == [1, 1, 0, 0]


def test_no_records_become_a_file_of_none(suffix: str) -> None:
    make("a.tfrecord", [])
    assert anyrecord.convert("a.tfrecord", f"b{suffix}").records == 0
    assert list(anyrecord.open(f"b{suffix}")) == []


def test_a_plain_riegeli_source_is_read_by_its_name(golden: Path) -> None:
    whole = golden / "array_record" / "counter_g2_uncompressed.array_record"
    plain = Path("plain.riegeli")
    plain.write_bytes(whole.read_bytes()[:3620])  # without the footer and what follows it
    done = anyrecord.convert(plain, "b.tfrecord", source_format="riegeli")
    assert list(anyrecord.open("b.tfrecord")) == list(anyrecord.open(whole))
    assert done.records == 101
    with pytest.raises(anyrecord.FormatError):
        anyrecord.convert(whole, "c.tfrecord", source_format="recordio")


def test_a_file_object_takes_all_records_in_order(suffix: str) -> None:
    make("a.tfrecord")
    make("b.ffr", [b"more"])
    format = _core.format_of_suffix(suffix)
    anyrecord.convert("a.tfrecord", f"path{suffix}")
    out = io.BytesIO()
    assert anyrecord.convert("a.tfrecord", out, format=format).records == 10
    assert out.getvalue() == Path(f"path{suffix}").read_bytes(), "the same bytes as in a file"
    out = io.BytesIO()
    done = anyrecord.convert(["a.tfrecord", "b.ffr"], out, format=format)
    assert (done.format, done.records, done.paths, done.file_bytes) == (format, 11, (), 0)
    assert list(anyrecord.open(out, format=format)) == [*RECORDS, b"more"]
    out = io.BytesIO()
    anyrecord.convert(anyrecord.open("a.tfrecord")[2:4], out, format=format)
    assert list(anyrecord.open(out, format=format)) == RECORDS[2:4]


def test_a_file_object_has_no_suffix_and_no_shards() -> None:
    make("a.tfrecord")
    with pytest.raises(ValueError, match="a file object has no suffix: pass format="):
        anyrecord.convert("a.tfrecord", io.BytesIO())
    with pytest.raises(ValueError, match="shards cannot be written to a file object"):
        anyrecord.convert("a.tfrecord", io.BytesIO(), format="ffrecord", shards=2)
    with pytest.raises(TypeError, match="takes text"):
        anyrecord.convert("a.tfrecord", io.StringIO(), format="ffrecord")  # type: ignore[arg-type]
    assert names() == ["a.tfrecord"]


def test_an_error_of_the_file_object_comes_out() -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError("nobody reads")

    make("a.tfrecord")
    with pytest.raises(BrokenPipeError, match="nobody reads"):
        anyrecord.convert("a.tfrecord", Full(), format="tfrecord")
