"""Between files of one format, chunks that are packed the same way are taken over as they are.

Known by bytes that our own encoders would not have made: the originals' zstd, snappy and gzip, the lowest level of
brotli, and old snappy frames.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError


@pytest.mark.parametrize("check", [True, False], ids=["verified", "not verified"])
@pytest.mark.parametrize(
    ("file", "codec"),
    [
        ("gzip_chunk200", "gzip"),
        ("gzip_all_empty", "gzip"),
        ("old_snappy", "snappy"),
        ("old_snappy_big", "snappy"),
        ("snappy_padding_mid", "snappy"),
        ("none_chunk200", "none"),
    ],
)
def test_recordio_chunks_of_the_same_codec_stay_as_they_are(file: str, codec: Any, check: bool, golden: Path) -> None:
    source = golden / "recordio" / f"{file}.recordio"
    for threads in (0, 2):
        target = f"{threads}.recordio"
        done = anyrecord.convert([source, source], target, codec=codec, verify=check, threads=threads)
        assert Path(target).read_bytes() == 2 * source.read_bytes()
        assert done.records == 2 * len(anyrecord.open(source))


def test_recordio_chunks_of_another_codec_or_with_options_are_packed_anew(golden: Path) -> None:
    mixed = golden / "recordio" / "concat_mixed.recordio"
    records = list(anyrecord.open(mixed))
    anyrecord.convert(mixed, "a.recordio", codec="none")
    assert (list(anyrecord.open("a.recordio")), anyrecord.info("a.recordio").codec) == (records, "none")
    source = golden / "recordio" / "gzip_chunk200.recordio"
    for options in ({"level": 1}, {"chunk_bytes": 1000}):
        anyrecord.convert(source, "b.recordio", codec="gzip", overwrite=True, **options)  # type: ignore[arg-type]
        assert list(anyrecord.open("b.recordio")) == list(anyrecord.open(source))
        assert Path("b.recordio").read_bytes() != source.read_bytes()
    anyrecord.convert(source, "c.recordio", codec="gzip", map=lambda record: record)
    assert Path("c.recordio").read_bytes() != source.read_bytes()


def test_chunks_that_cross_a_shard_are_cut_and_the_others_stay(golden: Path) -> None:
    source = golden / "recordio" / "gzip_chunk200.recordio"
    records, data = list(anyrecord.open(source)), source.read_bytes()
    chunks = [data[at:] for at in range(len(data)) if data.startswith(b"\4\3\2\1", at)]
    for shards in range(1, 8):
        done = anyrecord.convert(source, "s.recordio", codec="gzip", shards=shards, overwrite=True)
        made = [list(anyrecord.open(path)) for path in done.paths]
        assert [record for shard in made for record in shard] == records
        assert max(map(len, made)) - min(map(len, made)) <= 1
        kept = sum(chunk[:100] in Path(path).read_bytes() for path in done.paths for chunk in chunks)
        assert kept >= len(chunks) - shards


@pytest.mark.parametrize("check", [True, False], ids=["verified", "not verified"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("text_snappy", {"codec": "snappy", "group_size": 20}),
        ("text_brotli0", {"codec": "brotli", "level": 0, "group_size": 20}),
        ("text_zstd_w10", {"codec": "zstd", "window_log": 10, "group_size": 120}),
        ("transpose_snappy_b20", {"codec": "snappy", "transpose": True, "group_size": 33, "transpose_bucket_size": 20}),
    ],
)
def test_array_record_chunks_with_the_same_options_stay_as_they_are(
    golden: Path, name: str, options: Any, check: bool
) -> None:
    source = golden / "array_record" / f"{name}.array_record"
    for threads in (0, 2):
        target = Path(f"{threads}.array_record")
        anyrecord.convert(source, target, verify=check, threads=threads, **options)
        assert target.read_bytes() == source.read_bytes()
    anyrecord.convert(source, "map.array_record", map=lambda record: record, **options)
    assert list(anyrecord.open("map.array_record")) == list(anyrecord.open(source))
    assert Path("map.array_record").read_bytes() != source.read_bytes(), "our encoder makes other bytes"


@pytest.mark.parametrize("is_padded", [True, False])
def test_padding_between_chunks_is_no_reason_to_pack_them_anew(golden: Path, is_padded: bool) -> None:
    source = golden / "array_record" / "text_snappy.array_record"
    options: dict[str, Any] = {"codec": "snappy", "group_size": 20, "pad_to_block_boundary": is_padded}
    anyrecord.convert(source, "a.array_record", **options)
    assert list(anyrecord.open("a.array_record")) == list(anyrecord.open(source))
    assert f"pad_to_block_boundary:{str(is_padded).lower()}" in (anyrecord.info("a.array_record").options or "")
    assert anyrecord.verify("a.array_record").ok
    some_of_a_chunk = source.read_bytes()[500:800]
    assert some_of_a_chunk in Path("a.array_record").read_bytes()


def test_array_record_chunks_with_other_options_are_packed_anew(golden: Path) -> None:
    source = golden / "array_record" / "text_brotli6.array_record"
    records = list(anyrecord.open(source))
    for options in ({}, {"codec": "brotli", "level": 5}, {"codec": "brotli", "group_size": 3}, {"codec": "none"}):
        anyrecord.convert(source, "b.array_record", overwrite=True, **options)
        assert list(anyrecord.open("b.array_record")) == records
        assert anyrecord.info("b.array_record").options != anyrecord.info(source).options


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("counts", [(6, 6), (6, 4, 5), (5, 6), (1, 1, 1, 6), (12, 0, 3, 3), (2,)], ids=str)
def test_groups_stay_full_when_files_are_joined(counts: tuple[int, ...], threads: int) -> None:
    """Only the last chunk of an ArrayRecord file may hold fewer records than the others."""
    expected = []
    for number, count in enumerate(counts):
        records = [b"%d-%d" % (number, i) for i in range(count)]
        expected += records
        with anyrecord.create(f"{number}.array_record", group_size=3) as out:
            out.write_many(records)
    sources = [f"{number}.array_record" for number in range(len(counts))]
    anyrecord.convert(sources, "all.array_record", group_size=3, threads=threads)
    with anyrecord.create("plain.array_record", group_size=3) as out:
        out.write_many(expected)
    assert Path("all.array_record").read_bytes() == Path("plain.array_record").read_bytes()


@pytest.mark.parametrize("check", [True, False], ids=["verified", "not verified"])
def test_a_damaged_chunk_is_not_carried(check: bool) -> None:
    for name, options in (("a.recordio", {"codec": "snappy"}), ("a.array_record", {"codec": "zstd"})):
        with anyrecord.create(name, **options) as out:  # type: ignore[arg-type]
            out.write_many(os.urandom(1000) for _ in range(100))
        data = bytearray(Path(name).read_bytes())
        data[30_000] ^= 0x20
        Path(name).write_bytes(data)
        with pytest.raises(ChecksumError) as caught:
            anyrecord.convert(name, f"b{name}", verify=check, **options)  # type: ignore[arg-type]
        assert caught.value.path == name
        assert not os.path.exists(f"b{name}")


def test_a_chunk_with_a_right_checksum_around_wrong_contents_is_found_by_verifying(golden: Path) -> None:
    source = golden / "recordio" / "none_extra_payload.recordio"
    with pytest.raises(anyrecord.FormatError, match="after the last record") as caught:
        anyrecord.convert(source, "b.recordio", codec="none")
    assert caught.value.path == str(source)
    assert struct.unpack_from("<I", source.read_bytes(), 0) == (0x01020304,)
    assert os.listdir() == []
