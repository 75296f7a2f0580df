"""Damages every byte of small files, and cuts them at every byte: `salvage` returns exactly the whole records."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterable, Iterator

import anyrecord

from checks.figures import Figure
from checks.framing import Framed, frame

__all__ = ["WAYS", "file_of", "places", "run", "saved"]

WAYS: tuple[tuple[str, dict[str, object]], ...] = (
    ("ffrecord", {}),
    ("tfrecord", {}),
    ("tfrecord", {"codec": "gzip"}),
    ("tfrecord", {"codec": "zlib"}),
    ("recordio", {"codec": "none", "chunk_bytes": 40}),
    ("recordio", {"codec": "snappy", "chunk_bytes": 40}),
    ("recordio", {"codec": "gzip", "chunk_bytes": 40}),
    ("array_record", {"codec": "none", "group_size": 1}),
    ("array_record", {"codec": "zstd", "group_size": 3}),
    ("array_record", {"codec": "brotli", "group_size": 2}),
    ("array_record", {"codec": "snappy", "group_size": 2, "transpose": True}),
)
"""How the small files are written."""

_RECORDS = (b"first", b"", b"\x00\xff\x80", b"a little longer than the others", b"five", b"", b"seven" * 5, b"last")


def file_of(format: str, options: dict[str, object], records: Iterable[bytes] = _RECORDS) -> Framed:
    """A file of the records."""
    file, records = io.BytesIO(), list(records)
    with anyrecord.create(file, format=format, **options) as out:  # type: ignore[arg-type]  # options of the format
        out.write_many(records)
    return frame(format, file.getvalue(), records)


def places(file: Framed, most: int | None = None) -> list[int]:
    """Offsets to damage or to cut at: all, but of the zeros between the footer and the end only some."""
    last = max((end for _, end, _ in file.chunks), default=0)
    edges = [at + step for begin, end, _ in file.chunks for at in (begin, end) for step in range(-2, 45)]
    everything: Iterable[int] = range(len(file.data))
    if len(file.data) > 4096:
        tail = len(file.data) - (1 << 16)
        everything = {*range(min(last + 400, 2000)), *edges, *range(last, last + 300), *range(tail, tail + 300)}
        everything |= set(range(0, len(file.data), 4099))
    found = sorted(at for at in set(everything) if 0 <= at < len(file.data))
    return found if most is None or len(found) <= most else sorted(random.Random(0).sample(found, most))


def saved(data: bytes, format: str | None, *, strict: bool = False) -> tuple[list[bytes], anyrecord.Salvaged]:
    """The records that `salvage` returns."""
    out = io.BytesIO()
    report = anyrecord.salvage(data, out, source_format=format, strict=strict, format="tfrecord", threads=1)
    records, stored, at = [], out.getvalue(), 0
    while at < len(stored):
        (length,) = struct.unpack_from("<Q", stored, at)
        records.append(stored[at + 12 : at + 12 + length])
        at += 16 + length
    return records, report


def _damaged(file: Framed, offset: int, every_bit: bool) -> Iterator[bytes]:
    flips = [1 << bit for bit in range(8)] if every_bit else [1 << offset % 8]
    for flip in {*flips, 0xFF, file.data[offset] or 0xFF}:  # the last one makes a zero
        yield file.data[:offset] + bytes([file.data[offset] ^ flip]) + file.data[offset + 1 :]


def _is_right(file: Framed, found: list[bytes], expected: list[bytes], prefix: int) -> bool:
    if file.wrapper is None:
        return found == expected
    # Damage in a compressed stream may cost everything after it, and often does not.
    rest = iter(file.records)
    return found[:prefix] == file.records[:prefix] and all(record in rest for record in found)


def _flips(file: Framed, name: str, short: bool, figure: Figure) -> None:
    for offset in places(file, 400 if short else None):
        expected = file.after_damage(offset)
        prefix = 0
        if file.wrapper:
            header, trailer = (10, 8) if file.wrapper == "gzip" else (2, 4)
            is_around = offset < header or offset >= len(file.data) - trailer
            prefix = len(file.records) if is_around else len(file.after_cut(offset))
        for data in _damaged(file, offset, every_bit=not short):
            found, _ = saved(data, file.format)
            figure.tried += 1
            if not _is_right(file, found, expected, prefix):
                figure.violations.append(f"{name}, byte {offset} is {data[offset]:#04x}: {len(found)} saved: {found}")


def _cuts(file: Framed, name: str, short: bool, figure: Figure) -> None:
    for size in places(file, 400 if short else None):
        found, report = saved(file.data[:size], file.format)
        figure.tried += 1
        expected = file.after_cut(size)
        if found != expected:
            figure.violations.append(f"{name}, cut to {size} bytes: saved {found}, not {expected}")
        if report and expected != file.records and size not in {end for _, end, _ in file.chunks} and size > 0:
            figure.violations.append(f"{name}, cut to {size} bytes: the report says that nothing was lost")


def _large(count: int, figure: Figure) -> None:
    """Damages a few places of a larger file at once: only their chunks are lost. With and without its end."""
    generator = random.Random(1)
    records = [generator.randbytes(generator.choice([0, 10, 100, 3000, 30_000])) for _ in range(80)]
    for format, options in WAYS:
        if format == "tfrecord" and options:
            continue
        file = file_of(format, {**options, "chunk_bytes": 40_000} if format == "recordio" else options, records)
        for number in range(count):
            size = file.chunks[-1][1] if number % 2 else len(file.data)  # without the footer, or with it
            hits = [generator.randrange(file.table_end, size) for _ in range(generator.randint(1, 6))]
            if format == "array_record":
                hits.append(generator.randrange(size >> 16) << 16 | generator.randrange(24))  # a block header
            data = bytearray(file.data[:size])
            for hit in hits:
                data[hit] ^= generator.randint(1, 255)
            is_hit = [any(begin <= hit < end for hit in hits) for begin, end, _ in file.chunks]
            expected = [r for hit, (_, _, some) in zip(is_hit, file.chunks, strict=True) if not hit for r in some]
            found, _ = saved(bytes(data), format)
            figure.tried += 1
            if found != expected:
                what = f"{format} {options}, {size} bytes, damaged at {sorted(hits)}"
                figure.violations.append(f"{what}: {len(found)} saved of {len(expected)}")


def run(short: bool) -> list[Figure]:
    """Flips, cuts, and several damages at once."""
    flips = Figure("damaged bytes of small files, salvaged", at_least=7_000 if short else 20_000)
    cuts = Figure("cuts of small files, salvaged", at_least=2_000)
    several = Figure("larger files damaged at several places, salvaged", at_least=90)
    for format, options in WAYS:
        file, name = file_of(format, options), f"{format} {options}"
        _flips(file, name, short, flips)
        _cuts(file, name, short, cuts)
    _large(10 if short else 200, several)
    return [flips, cuts, several]
