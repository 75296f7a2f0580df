"""Hostile records: `preview` never raises, and its time, its memory and what it returns are bounded."""

from __future__ import annotations

import json
import pickle
import random
import struct
import tracemalloc
import unicodedata
from collections import Counter

import pytest
from anyrecord._preview import PREVIEW_BYTES, Preview, preview
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_kinds import CASES, F4, example, field, npy

BEGINNINGS = sorted({record[:length] for record, _, _ in CASES for length in (2, 4, 8, 12, 40)}) + [
    pickle.dumps({"a": [1.5, (2, "x")], "b": {3}}, protocol) for protocol in range(6)
]


def check(record: bytes, size: int | None = None, width: int = 60) -> Preview:
    """Asserts what is true of every preview."""
    found = preview(record, size=size, width=width)
    assert found.kind.isascii()
    assert found.kind == found.kind.lower()
    assert len(found.summary) <= max(width, 0)
    assert not [character for character in found.summary if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")]
    found.summary.encode()
    assert len(json.dumps(found.details).encode()) < 100_000
    return found


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 10_000), st.integers(-1, 90))
def test_any_bytes_have_a_preview(record: bytes, more: int, width: int) -> None:
    check(record, width=width)
    check(record, len(record) + more, width)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(BEGINNINGS), st.binary(max_size=100), st.integers(0, 1 << 40))
def test_any_bytes_after_a_known_beginning_have_a_preview(beginning: bytes, rest: bytes, more: int) -> None:
    check(beginning + rest)
    check(beginning + rest, len(beginning + rest) + more)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_a_record_with_changed_bytes_has_a_preview(case: tuple[bytes, str, str], data: st.DataObject) -> None:
    record = bytearray(case[0][:2000])
    for _ in range(data.draw(st.integers(1, 4))):
        if record:
            record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(record[: data.draw(st.integers(0, len(record)))]))
    check(bytes(record), data.draw(st.integers(0, 1 << 70)))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_has_a_preview_of_one_line(text: str) -> None:
    try:
        record = text.encode()
    except UnicodeEncodeError:
        return
    check(record)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@settings(max_examples=100, deadline=None)
@given(VALUES, st.sampled_from([None, 1]))
def test_what_json_writes_is_json(value: object, indent: int | None) -> None:
    found = check(json.dumps([value], indent=indent).encode())
    assert (found.kind, found.details["complete"]) == ("json", True)


@settings(max_examples=300, deadline=None)
@given(st.text('[]{},:" \\tfun01.e-', max_size=12))
def test_only_json_is_json(text: str) -> None:
    text = text.strip()
    try:
        is_json = isinstance(json.loads(text), list | dict)
    except ValueError:
        is_json = False
    assert (check(text.encode()).kind == "json") == is_json


def test_random_bytes_and_numbers_are_not_taken_for_something_else() -> None:
    numbers = random.Random(7)
    named = Counter(check(numbers.randbytes(numbers.choice([1, 2, 4, 8, 16, 64, 500]))).kind for _ in range(10_000))
    assert named["bytes"] + named["text"] >= 9_998
    for form in ("<i", "<q", ">i", "<d"):
        named = Counter(check(struct.pack(form, number)).kind for number in range(0, 66_000, 7))
        assert set(named) <= {"bytes", "text"}


LARGE = 2 << 20
HOSTILE = {
    "json: deep": b"[" * LARGE,
    "json: deep objects": b'{"a":' * (LARGE // 5),
    "json: long number": b"[" + b"9" * LARGE + b"]",
    "json: long string": b'["' + b"\\u0041" * (LARGE // 6) + b'"]',
    "json: spaces": b"[" + b" " * LARGE + b"]",
    "json: line ends": b"[" + b"\n" * LARGE + b"]",
    "json: tabs that end no line": b"[" + b"\t" * LARGE,
    "text: combining": b"a" + "\u0301".encode() * (LARGE // 2),
    "text: escapes": "\u202e".encode() * (LARGE // 3),
    "msgpack: deep": b"\x91" * LARGE,
    "msgpack: deep maps": b"\x81\xa1a" * (LARGE // 3),
    "msgpack: long array": b"\xdd" + struct.pack(">I", LARGE - 5) + b"\xa2ab" + bytes(LARGE),
    "msgpack: long map": b"\xdf" + struct.pack(">I", (1 << 32) - 1) + b"\xa2ab" * (LARGE // 3),
    "msgpack: long string": b"\x81\xdb" + struct.pack(">I", LARGE) + b"x" * LARGE + b"\x01",
    "example: many features": field(1, field(1, field(1, b"x") + field(2, b"")) * (LARGE // 8)),
    "example: many names": field(1, b"".join(field(1, field(1, b"%d" % i) + field(2, b"")) for i in range(30_000))),
    "example: long name": field(1, field(1, field(1, b"x" * LARGE) + field(2, b""))),
    "example: many values": example(x=field(1, field(1, b"x") * (LARGE // 3))),
    "example: many numbers": example(x=field(3, field(1, b"\x01" * LARGE))),
    "example: many single numbers": example(x=field(3, b"\x08\x01" * (LARGE // 2))),
    "example: long number": example(x=field(3, field(1, b"\xff" * LARGE))),
    "npy: huge header": b"\x93NUMPY\x02\0" + struct.pack("<I", LARGE) + b" " * LARGE,
    "npy: deep header": npy("{'descr': " + "(" * 9000 + ")" * 9000 + "}", version=2),
    "npy: huge shape": npy(F4.replace("(2, 3)", "(" + "9999999999999999999," * 700 + ")"), bytes(24), version=2),
    "npy: signs": npy("{'shape': " + "-" * 15_000 + "1}", version=2),
    "npy: code": npy("{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': ()}"),
    "zip: many files": b"PK\3\4" + b"PK\1\2" + bytes(42) + (b"PK\1\2" + bytes(42)) * 99_999 + b"PK\5\6" + bytes(18),
    "pickle: many": b"\x80\x04" + b"]" * LARGE + b".",
    "pickle: marks": b"\x80\x04" + b"(" * LARGE + b".",
    "pickle: long number": b"\x80\x04\x8b" + struct.pack("<I", LARGE) + b"\x7f" * LARGE + b".",
    "pickle: huge claim": b"\x80\x04\x8e" + b"\xff" * 8 + b"x" * 100 + b".",
    "pickle: long digits": b"p0\nI" + b"9" * LARGE + b"\n.",
    "pickle: bad escapes": b"\x80\x02S'" + b"\\q" * 100 + b"'\n.",
    "pickle: bad escapes in a name": b"\x80\x02cos\\9\nsystem\\9\n.",
    "jpeg: many segments": b"\xff\xd8" + b"\xff\xe0\x00\x02" * (LARGE // 4),
    "jpeg: fill bytes": b"\xff\xd8" + b"\xff" * LARGE,
    "safetensors: deep": struct.pack("<Q", LARGE) + b'{"a":' * (LARGE // 5),
    "magic and nothing else": b"\x89PNG\r\n\x1a\n",
}


@pytest.mark.parametrize("record", HOSTILE.values(), ids=HOSTILE)
def test_hostile_records_cost_little_memory(record: bytes) -> None:
    tracemalloc.start()
    try:
        for cut in (len(record), PREVIEW_BYTES):
            check(record[:cut] if cut < len(record) else record, len(record))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 << 20


def lines_run(record: bytes) -> int:
    """How many lines of Python run. Unlike a time, this is the same on a busy machine."""
    import sys
    from types import FrameType
    from typing import Any

    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        preview(record)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("record", HOSTILE.values(), ids=HOSTILE)
def test_hostile_records_cost_little_time(record: bytes) -> None:
    assert lines_run(record) < 1_500_000
