"""After damage, the next chunk is found from a table where there is one, else by search, and the report says which."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from children import python

from checks.framing import frame
from salvage.saving import file_bytes, saved, saved_and_report

BLOCK = 1 << 16
NESTED = [b"inner %d" % number * 40 for number in range(3)]

PLAIN: list[tuple[str, dict[str, Any]]] = [
    ("tfrecord", {}),
    ("recordio", {"codec": "none", "chunk_bytes": 4000}),
    ("array_record", {"codec": "none", "group_size": 1}),
]


def nested(format: str, options: dict[str, Any], padding: bytes = b"") -> tuple[bytes, list[bytes], int]:
    """A file without a table whose second record contains a file of the same format, its records, and where the chunk
    of that record begins."""
    inner = file_bytes(format, NESTED, **options)
    if format == "array_record":
        inner = inner[: frame(format, inner, NESTED).chunks[-1][1]]
    records = [b"before" * 600, inner + padding, b"after" * 700, b"last" * 900]
    data = file_bytes(format, records, **options)
    framed = frame(format, data, records)
    chunk = next(chunk for chunk in framed.chunks if records[1] in chunk[2])
    assert chunk[2] == (records[1],), "it is alone in its chunk"
    return data[: framed.chunks[-1][1]], records, chunk[0]


@pytest.mark.parametrize(("format", "options"), PLAIN, ids=lambda value: str(value))
@pytest.mark.parametrize("padding", [b"", b"text behind the inner file"])
def test_records_of_a_file_inside_a_damaged_record_are_marked(
    format: str, options: dict[str, Any], padding: bytes
) -> None:
    data, records, chunk = nested(format, options, padding)
    damaged = bytearray(data)
    damaged[chunk] ^= 0xFF  # the first byte of the chunk's header: nothing says how long the chunk is
    found, report = saved_and_report(damaged, format)
    outer = [record for record in found if record not in NESTED]
    assert outer == [records[0], records[2], records[3]]
    assert not report
    marked = [found[number] for first, end in report.found for number in range(first, end)]
    assert [record for record in found if record in NESTED] == [record for record in marked if record in NESTED]
    assert records[0] not in marked
    strictly, strict_report = saved_and_report(damaged, format, strict=True)
    assert not set(NESTED) & set(strictly)
    assert strict_report.found_by_search == 0
    assert strictly[0] == records[0]
    assert len(strictly) + report.found_by_search == len(found)


@pytest.mark.parametrize(("format", "options"), PLAIN, ids=lambda value: str(value))
def test_damage_in_the_data_of_a_chunk_needs_no_search(format: str, options: dict[str, Any]) -> None:
    data, records, chunk = nested(format, options)
    damaged = bytearray(data)
    damaged[chunk + 60] ^= 0xFF
    found, report = saved_and_report(damaged, format, strict=True)
    assert found == [records[0], *records[2:]]
    assert report.found_by_search == 0


def test_with_a_footer_nothing_is_searched_for() -> None:
    records = [b"%d" % number * 100 for number in range(50)]
    data = file_bytes("array_record", records, codec="none", group_size=1)
    framed = frame("array_record", data, records)
    for begin, end, (record,) in framed.chunks[::7]:
        damaged = bytearray(data)
        damaged[begin] ^= 1
        found, report = saved_and_report(damaged, strict=True)
        assert found == [other for other in records if other != record]
        assert (report.found_by_search, report.skipped, report.problems[0].record) == (
            0,
            (("<bytes>", begin, end),),
            records.index(record),
        )


def test_a_block_header_makes_what_follows_certain_again() -> None:
    records = [random.Random(number).randbytes(5000) for number in range(60)]
    data = file_bytes("array_record", records, codec="none", group_size=1)
    framed = frame("array_record", data, records)
    data = data[: framed.chunks[-1][1]]
    damaged = bytearray(data)
    damaged[framed.chunks[2][0] + 3] ^= 1
    found, report = saved_and_report(damaged, "array_record")
    assert found == [*records[:2], *records[3:]]
    # The chunk that the next block header interrupts is certain, and so are those after it.
    crossing = next(number for number, (_, end, _) in enumerate(framed.chunks) if end > BLOCK)
    assert report.found == ((2, crossing - 1),)
    assert saved(damaged, "array_record", strict=True) == [*records[:2], *records[crossing:]]


def test_small_chunks_are_found_without_any_block_header() -> None:
    """Every block header of the file is damaged, and some chunk headers are: no other chunk is lost."""
    records = [b"%06d" % number * 9 for number in range(4000)]
    data = file_bytes("array_record", records, codec="none", group_size=1)
    framed = frame("array_record", data, records)
    damaged = bytearray(data[: framed.chunks[-1][1]])
    assert len(damaged) > 5 * BLOCK
    hits = [*range(BLOCK, len(damaged), BLOCK), *(framed.chunks[number][0] for number in range(100, 4000, 250))]
    for hit in hits:
        damaged[hit + 1] ^= 0x55
    kept = [chunk for chunk in framed.chunks if not any(chunk[0] <= hit + 1 < chunk[1] for hit in hits)]
    assert saved(damaged, "array_record") == [record for _, _, some in kept for record in some]


def test_a_recordio_size_that_points_to_another_chunk_costs_one_chunk() -> None:
    """Chunks of 128 bytes: 0x6c as the size becomes 0xec, which is this chunk and the next one."""
    records = [bytes([number]) * 104 for number in range(20)]
    data = file_bytes("recordio", records, codec="none", chunk_bytes=109)
    assert len(data) == 20 * 128
    for number in range(18):
        damaged = bytearray(data)
        assert damaged[128 * number + 12] == 0x6C
        damaged[128 * number + 12] = 0xEC
        found, report = saved_and_report(damaged, "recordio", strict=True)
        assert found == [*records[:number], *records[number + 1 :]]
        assert (report.skipped_count, report.problems[0].record) == (1, number)


def masked(data: bytes) -> int:
    table = [0] * 256
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table[byte] = value
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_false_tfrecord_header_that_points_to_a_record_hides_none() -> None:
    """The data of a damaged record holds a length with the right checksum, which reaches over other records."""
    records = [b"one", b"x" * 100, b"three" * 9, b"four" * 9, b"five"]
    framed = frame("tfrecord", file_bytes("tfrecord", records), records)
    begin = framed.chunks[1][0] + 12 + 20  # inside the second record
    length = struct.pack("<Q", framed.chunks[4][0] - begin - 16)
    records[1] = b"x" * 20 + length + struct.pack("<I", masked(length)) + b"x" * 68
    damaged = bytearray(file_bytes("tfrecord", records))
    damaged[framed.chunks[1][0]] ^= 1
    assert saved(damaged, "tfrecord") == [records[0], *records[2:]]


def test_a_false_recordio_header_that_points_to_a_chunk_hides_none() -> None:
    records = [b"one" * 30, b"x" * 100, b"three" * 19, b"four" * 29, b"five" * 29]
    options = {"codec": "none", "chunk_bytes": 125}
    framed = frame("recordio", file_bytes("recordio", records, **options), records)
    begin = framed.chunks[1][0] + 24 + 20
    header = b"\x04\x03\x02\x01" + struct.pack("<IIII", 7, 0, framed.chunks[4][0] - begin - 20, 1)
    records[1] = b"x" * 20 + header + b"x" * 60
    damaged = bytearray(file_bytes("recordio", records, **options))
    damaged[framed.chunks[1][0]] ^= 1
    assert saved(damaged, "recordio") == [records[0], *records[2:]]


def test_a_cut_chunk_is_not_searched_for_records() -> None:
    """The header of the last chunk is right and says that it was cut: its records are not taken for others."""
    data, records, chunk = nested("array_record", {"codec": "none", "group_size": 1}, b"and more behind it" * 9)
    end = chunk + len(records[1])  # without its last bytes, but with all records of the inner file
    found, report = saved_and_report(data[:end], "array_record")
    assert (found, report.found_by_search, report.skipped) == ([records[0]], 0, (("<bytes>", chunk, end),))


SLOW = """
import io, struct, sys, zlib, anyrecord
kind = sys.argv[1]
if kind == "recordio":      # after damage, every 20 bytes a header that claims everything after it
    size = 20 << 18
    data = b"".join(b"\\4\\3\\2\\1" + struct.pack("<IIII", 1, 0, size - 20 * n - 20, 1) for n in range(size // 20))
elif kind == "ffrecord":    # every sample claims most of the file
    n = 500_000
    data = struct.pack("<IQ", 9, n) + b"\\1\\2\\3\\4" * n
    data += b"".join(struct.pack("<Q", 12 + 12 * n if i % 2 else 24 * n) for i in range(n)) + b"x" * (12 * n)
else:                       # a copy of a chunk header at every place of a Riegeli file, each with the wrong data
    f = io.BytesIO()
    with anyrecord.create(f, format="array_record", codec="none", group_size=1) as out:
        out.write(b"x" * 60000)
    data = f.getvalue()[:64] + f.getvalue()[64:104] * 30000
report = anyrecord.salvage(b"?" * (kind == "recordio") + data, source_format=kind)
print(report.records, report.skipped_count > 0)
"""


@pytest.mark.parametrize("kind", ["recordio", "ffrecord", "array_record"])
def test_a_file_made_of_false_headers_does_not_take_for_ever(kind: str) -> None:
    assert python(SLOW, kind).split() == ["0", "True"]


def test_many_damaged_places_of_a_large_file_cost_only_their_records() -> None:
    """The work that false headers may cause is bounded. That bound must not cost records of a file like this."""
    generator = random.Random(5)
    records = [generator.randbytes(generator.randrange(2000)) for _ in range(10_000)]
    for format, options in PLAIN:
        data = file_bytes(format, records, **options)
        framed = frame(format, data, records)
        damaged = bytearray(data[: framed.chunks[-1][1]])
        hit = set(generator.sample(range(len(framed.chunks)), len(framed.chunks) // 10))
        for number in hit:
            damaged[framed.chunks[number][0] + generator.randrange(12)] ^= 0x10
        kept = [record for number, chunk in enumerate(framed.chunks) if number not in hit for record in chunk[2]]
        assert saved(damaged, format) == kept, format


def test_a_compressed_file_gives_everything_up_to_the_damage() -> None:
    generator = random.Random(6)
    records = [generator.randbytes(500) for _ in range(2000)]
    for codec in ("gzip", "zlib"):
        data = file_bytes("tfrecord", records, codec=codec)
        framed = frame("tfrecord", data, records)
        for at in (len(data) // 3, len(data) // 2, len(data) - 2000):
            damaged = data[:at] + bytes(64) + data[at + 64 :]
            found, report = saved_and_report(damaged, "tfrecord")
            whole = framed.after_cut(at)
            assert found[: len(whole)] == whole
            assert not report
            assert saved(data[:at], "tfrecord") == whole


def test_the_footer_of_a_file_without_its_first_blocks_is_not_taken_for_records() -> None:
    records = [random.Random(number).randbytes(1000) for number in range(300)]
    data = file_bytes("array_record", records, codec="none", group_size=1)
    for cut in (BLOCK, 2 * BLOCK, 4 * BLOCK):
        found = saved(data[cut:], "array_record")
        assert found == records[-len(found) :], cut
        assert len(found) > 20
