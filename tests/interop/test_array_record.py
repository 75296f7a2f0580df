"""Against the real `array_record` package: we read its files, it reads ours, and files without compression or with
brotli are the same byte for byte."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.framework

BLOCK = 1 << 16


@dataclass(frozen=True)
class Options:
    """The same options in both spellings."""

    keywords: dict[str, Any]

    @property
    def string(self) -> str:
        """What the original's writer takes."""
        given = dict(self.keywords)
        parts = []
        codec, level = given.pop("codec", None), given.pop("level", None)
        if codec is not None:
            name = "uncompressed" if codec == "none" else codec
            parts.append(name if level is None else f"{name}:{level}")
        parts += [f"{key}:{str(value).lower()}" for key, value in given.items()]
        return ",".join(parts)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


field_numbers = st.sampled_from([1, 2, 3, 15, 16, 2047, 2048, 536870911])


def messages(depth: int) -> st.SearchStrategy[bytes]:
    """Serialized protocol buffers: every wire type, nested messages and groups."""
    fields: list[st.SearchStrategy[bytes]] = [
        st.builds(lambda f, v: tag(f, 0) + varint(v), field_numbers, st.integers(0, 5) | st.integers(0, 2**64 - 1)),
        st.builds(lambda f, v: tag(f, 5) + v, field_numbers, st.binary(min_size=4, max_size=4)),
        st.builds(lambda f, v: tag(f, 1) + v, field_numbers, st.binary(min_size=8, max_size=8)),
        st.builds(lambda f, v: tag(f, 2) + varint(len(v)) + v, field_numbers, st.binary(max_size=40)),
    ]
    if depth:
        inner = messages(depth - 1)
        fields.append(st.builds(lambda f, v: tag(f, 2) + varint(len(v)) + v, field_numbers, inner))
        fields.append(st.builds(lambda f, v: tag(f, 3) + v + tag(f, 4), field_numbers, inner))
    return st.lists(st.one_of(fields), max_size=6).map(b"".join)


def around_a_block(offset: int) -> bytes:
    return bytes(itertools.islice(itertools.cycle(range(251)), BLOCK + offset))


record_lists = st.one_of(
    st.lists(st.binary(max_size=60), max_size=40),
    st.lists(messages(3), max_size=40),
    st.lists(messages(1) | st.binary(max_size=30), max_size=40),
    st.lists(st.sampled_from([b"", b"x", b"\x00"]), max_size=60),
    st.lists(st.integers(-25, 25).map(around_a_block) | st.binary(max_size=10), max_size=4),
    st.builds(lambda n, r: [r] * n, st.integers(0, 3000), st.binary(max_size=3)),
    st.builds(lambda n: [b"start", b"0123456789abcdef" * (65536 + n), b"end"], st.integers(1, 100)),
    st.builds(lambda w, n: [" ".join(w).encode()] * n, st.lists(st.text(max_size=8), max_size=30), st.integers(1, 20)),
)

codecs = st.one_of(
    st.just({}),
    st.just({"codec": "none"}),
    st.just({"codec": "none"}),
    st.just({"codec": "snappy"}),
    st.builds(
        lambda level, window: {"codec": "zstd"} | level | window,
        st.just({}) | st.sampled_from([-131072, -5, 0, 1, 3, 9, 19]).map(lambda v: {"level": v}),
        st.just({}) | st.integers(10, 31).map(lambda v: {"window_log": v}),
    ),
    st.builds(
        lambda level, window: {"codec": "brotli"} | level | window,
        st.just({}) | st.integers(0, 9).map(lambda v: {"level": v}),
        st.just({}) | st.integers(10, 30).map(lambda v: {"window_log": v}),
    ),
)

options = st.builds(
    lambda codec, group, transpose, pad: Options(codec | group | transpose | pad),
    codecs,
    st.just({}) | st.sampled_from([1, 2, 3, 7, 16, 100, 1000]).map(lambda v: {"group_size": v}),
    st.one_of(
        st.just({}),
        st.just({"transpose": True}),
        st.integers(1, 5000).map(lambda v: {"transpose": True, "transpose_bucket_size": v}),
    ),
    # Padding makes every chunk 64 KiB long, so it is the rare case.
    st.sampled_from([{}, {}, {}, {"pad_to_block_boundary": False}, {"pad_to_block_boundary": True}]),
)


def identical(options: Options) -> bool:
    """Whether both writers write the same bytes: see docs/codecs.md."""
    given = options.keywords
    if given.get("codec") == "brotli":
        # The two lowest levels compress each write by itself. The next two end a block where a group ends, sometimes.
        least = 2 if given.get("group_size", 1) == 1 else 4
        return bool(given.get("level", 6) >= least and given.get("window_log", 22) >= 20)
    return given.get("codec") == "none"


def write_theirs(path: Path, records: list[bytes], options: Options) -> None:
    writer = ArrayRecordWriter(str(path), options.string)
    for record in records:
        writer.write(record)
    writer.close()


def write_ours(path: Path, records: list[bytes], options: Options, **keywords: Any) -> None:
    with anyrecord.create(path, overwrite=True, durable=False, **keywords, **options.keywords) as out:
        out.write_many(records)


def read_theirs(path: Path) -> tuple[list[bytes], str]:
    reader = ArrayRecordReader(str(path))
    assert reader.ok()
    found = reader.read_all(), reader.writer_options_string()
    reader.close()
    return found


def limited(records: list[bytes], options: Options) -> list[bytes]:
    """At most 40 padded chunks, so that a case stays below 3 MB."""
    if options.keywords.get("pad_to_block_boundary"):
        return records[: 40 * options.keywords.get("group_size", 1)]
    return records


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=record_lists, options=options)
def test_each_reads_the_other_and_files_are_identical_where_promised(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], options: Options
) -> None:
    folder = tmp_path_factory.getbasetemp()
    theirs, ours = folder / "theirs.array_record", folder / "ours.array_record"
    records = limited(records, options)
    write_theirs(theirs, records, options)
    write_ours(ours, records, options)

    read = anyrecord.open(theirs)
    assert list(read) == records
    assert read[range(len(records))] == records
    assert anyrecord.verify(theirs).ok

    found, written_options = read_theirs(ours)
    assert found == records
    assert written_options == anyrecord.info(theirs).options
    if identical(options):
        assert ours.read_bytes() == theirs.read_bytes()


def words(size: int, seed: int) -> bytes:
    """Text that compresses to about a third."""
    draw = random.Random(seed)
    vocabulary = [draw.randbytes(4).hex().encode() for _ in range(1000)]
    return b" ".join(draw.choices(vocabulary, k=size // 9 + 1))[:size]


def corpora() -> Iterator[list[bytes]]:
    """Small and large records, compressible or not. Some chunks are over 1 MB, where brotli uses other tables."""
    yield [b""] * 600
    yield [words(120, i) for i in range(600)]
    yield [words(4096, i) for i in range(300)]
    yield [words(300_000, i) for i in range(5)]
    yield [words(1_500_000, 1), b"", words(1_100_000, 2)]
    yield [b"start", words(1_050_000, 3), b"", *(words(50_000, i) for i in range(3)), words(1_200_000, 4)]
    yield [random.Random(i).randbytes(100_000) for i in range(12)]
    yield [bytes(i * 90) for i in range(100)]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("level", [None, *range(2, 10)])
def test_files_are_identical_to_the_original_at_every_level(tmp_path: Path, level: int | None, transpose: bool) -> None:
    codec = {"codec": "none"} if level is None else {"codec": "brotli", "level": level}
    theirs, ours = tmp_path / "theirs.array_record", tmp_path / "ours.array_record"
    for records, group_size in itertools.product(corpora(), [1, 7, 256]):
        options = Options(codec | {"group_size": group_size, "transpose": transpose})
        write_theirs(theirs, records, options)
        write_ours(ours, records, options)
        if not may_differ(level, records, group_size):
            assert ours.read_bytes() == theirs.read_bytes(), (len(records), len(records[0]), group_size)


def may_differ(level: int | None, records: list[bytes], group_size: int) -> bool:
    """Whether the lowest levels may end a block of brotli where a group ends: see docs/codecs.md."""
    groups = (records[at : at + group_size] for at in range(0, len(records), group_size))
    sizes = [sum(map(len, group)) for group in groups]
    return level in (2, 3) and any(size and size % (16 << 10) == 0 for size in sizes)


@pytest.mark.parametrize("level", [10, 11])
def test_files_are_identical_to_the_original_at_slow_levels(tmp_path: Path, level: int) -> None:
    records = [words(120 * i, i) for i in range(100)]
    theirs, ours = tmp_path / "theirs.array_record", tmp_path / "ours.array_record"
    for group_size, transpose in itertools.product([1, 7, 256], [False, True]):
        options = Options({"codec": "brotli", "level": level, "group_size": group_size, "transpose": transpose})
        write_theirs(theirs, records, options)
        write_ours(ours, records, options)
        assert ours.read_bytes() == theirs.read_bytes(), (group_size, transpose)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("codec", ["none", "zstd", "brotli", "snappy"])
def test_output_never_depends_on_the_thread_count(tmp_path: Path, codec: str, transpose: bool) -> None:
    records = [b"record %d " % i * (i % 50) for i in range(3000)]
    options = Options({"codec": codec, "group_size": 17, "transpose": transpose})
    written = []
    for threads in (None, 1, 2, 5):
        path = tmp_path / f"{threads}.array_record"
        write_ours(path, records, options, threads=threads)
        written.append(path.read_bytes())
    assert all(other == written[0] for other in written)
    assert read_theirs(path)[0] == records


def sweep() -> Iterator[list[bytes]]:
    """Records whose chunks end around a block boundary, where headers are split and some positions illegal."""
    for size in range(65536 - 160, 65536 + 60, 4):
        yield [b"a" * (size - 64 - 40 - 4), b"bb", b""]


def test_chunks_around_a_block_boundary_are_identical_to_the_original(tmp_path: Path) -> None:
    options = Options({"codec": "none"})
    theirs, ours = tmp_path / "theirs.array_record", tmp_path / "ours.array_record"
    for records in sweep():
        write_theirs(theirs, records, options)
        write_ours(ours, records, options)
        assert ours.read_bytes() == theirs.read_bytes()
        assert list(anyrecord.open(ours)) == records
