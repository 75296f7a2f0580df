"""RecordIO in several small chunks: damage is an error or costs one chunk, and never gives another record."""

from __future__ import annotations

import io
import struct
from typing import Any

import anyrecord
import pytest
from anyrecord import FormatError, LimitError, Limits, TruncatedError

from hostile.chunks import CLAIMS, chunk, record
from hostile.small import read_all
from hostile.test_damage import damaged

RECORDS = (b"first", b"second", b"", b"third", b"a longer one", b"x", b"last")
CODECS: tuple[Any, ...] = ("none", "snappy", "gzip")
CHUNK_BYTES = 14


@pytest.fixture(params=CODECS)
def data(request: pytest.FixtureRequest) -> bytes:
    """`RECORDS` in four chunks."""
    file = io.BytesIO()
    with anyrecord.create(file, format="recordio", codec=request.param, chunk_bytes=CHUNK_BYTES) as out:
        out.write_many(RECORDS)
    assert anyrecord.info(file.getvalue()).chunks == 4
    return file.getvalue()


def test_one_damaged_byte_costs_at_most_its_chunk(data: bytes) -> None:
    for offset, bad in damaged(data):
        if not read_all(bad, "recordio").opened:
            continue
        records = anyrecord.open(bad, format="recordio")
        # No checksum covers the count in a header. A wrong one makes its own chunk unreadable and moves the numbers
        # of the records behind it; going through them in order stops at that chunk, and the total is another one.
        shift = len(records) - len(RECORDS)
        lost = {records.locate(index).chunk for index in range(len(records)) if read_all(bad, "recordio", index).error}
        assert len(lost) == 1, f"byte {offset}"
        for index in range(len(records)):
            place = records.locate(index).chunk
            if place not in lost:
                expected = RECORDS[index - shift] if place > min(lost) else RECORDS[index]
                assert records[index] == expected, f"byte {offset}, record {index}"
        assert not anyrecord.verify(bad, format="recordio").ok, f"byte {offset}"
        with pytest.raises(FormatError):
            list(anyrecord.open(bad, format="recordio", expected_records=len(RECORDS)))


def test_a_cut_is_an_error_or_exactly_between_two_chunks(data: bytes) -> None:
    ends = {0}
    while max(ends) < len(data):
        at = max(ends)
        ends.add(at + 20 + struct.unpack_from("<I", data, at + 12)[0])
    for size in range(len(data)):
        outcome = read_all(data[:size], "recordio")
        assert outcome.records == RECORDS[: len(outcome.records)]
        if size in ends:
            assert outcome.error is None
        else:
            assert isinstance(outcome.error, TruncatedError), f"cut at {size}: {outcome.error!r}"


@pytest.mark.parametrize(
    ("bad", "says"),
    CLAIMS,
)
def test_a_chunk_whose_checksum_is_right_and_whose_claims_are_not_is_refused(bad: bytes, says: str) -> None:
    for data in (bad, chunk(record(b"before"), 1) + bad + chunk(record(b"after"), 1)):
        with pytest.raises(FormatError, match=says):
            list(anyrecord.open(data, format="recordio"))
        assert not anyrecord.verify(data, format="recordio").ok


@pytest.mark.parametrize("codec", ["snappy", "gzip"])
def test_a_chunk_that_unpacks_to_more_than_the_limit_is_refused(codec: Any) -> None:
    file = io.BytesIO()
    with anyrecord.create(file, format="recordio", codec=codec) as out:
        out.write(bytes(10_000_000))
    with pytest.raises(LimitError):
        anyrecord.open(file, limits=Limits(decoded_chunk_bytes=1_000_000))[0]
    assert anyrecord.open(file)[0] == bytes(10_000_000)
