"""tf.train.Example and SequenceExample, read without TensorFlow.

    Example          1: Features
    SequenceExample  1: Features (the context)   2: FeatureLists
    Features         1: map entry, repeated      entry: 1 name, 2 Feature
    FeatureLists     1: map entry, repeated      entry: 1 name, 2 FeatureList
    FeatureList      1: Feature, repeated
    Feature          1: BytesList  2: FloatList  3: Int64List; one of them
    a list           1: value, repeated; numbers are packed or single

Only these fields are accepted, so other protocol buffers are not taken for examples.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["tf_example"]

_MOST_FIELDS: Final = 20_000
_MOST_COUNTED_BYTES: Final = 1 << 20
_SHOWN_FEATURES: Final = 100
_SHOWN_VALUES: Final = 4
_CONTINUED: Final = bytes(range(128, 256))
_KINDS: Final = {1: "bytes", 2: "float", 3: "int64"}
_TEXT_BYTES: Final = 40


def tf_example(data: memoryview, size: int) -> tuple[str, str, dict[str, Any]] | None:
    """Says that a record is an example, with the names, kinds, counts and first values of its features."""
    if data[0] not in (0x0A, 0x12):
        return None
    reader = _Reader(data, size)
    try:
        for field, begin, end in reader.messages(0, size, (1, 2)):
            reader.features(begin, end, is_list=field == 2)
        complete = True
    except _NotExampleError:
        return None
    except _CutOffError:
        complete = False
    if not reader.found and not reader.lists:
        return None
    details: dict[str, Any] = {"features": reader.found, "complete": complete}
    if not reader.lists:
        return "tf_example", _summary(reader.found, complete), details
    details = {"features": reader.found, "feature_lists": reader.lists, "complete": complete}
    return "tf_sequence_example", _summary(reader.found | reader.lists, complete), details


def _summary(features: dict[str, dict[str, Any]], complete: bool) -> str:
    shown = ", ".join(f"{name}: {_shown(feature)}" for name, feature in list(features.items())[:50])
    return shown if complete else shown + ", …"


def _shown(feature: dict[str, Any]) -> str:
    if "steps" in feature:
        return f"{feature['kind']}, {feature['steps']} steps"
    count, first = feature["count"], feature["first"]
    values = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in first)
    if count == 1 and first:
        return values
    return f"{feature['kind'] or 'empty'} x {'?' if count is None else count}" + (
        f" ({values}{', …' if count != len(first) else ''})" if first else ""
    )


class _NotExampleError(Exception):
    pass


class _CutOffError(Exception):
    """The bytes at hand end, or the limit is reached, but the record goes on."""


class _Reader:
    """Reads fields between two bytes of a record. `end` may be after the bytes at hand, never after the record."""

    def __init__(self, data: memoryview, size: int) -> None:
        self.data, self.size = data, size
        self.fields = _MOST_FIELDS
        self.uncounted = _MOST_COUNTED_BYTES
        self.found: dict[str, dict[str, Any]] = {}
        self.lists: dict[str, dict[str, Any]] = {}

    def features(self, begin: int, end: int, is_list: bool) -> None:
        for _, entry, entry_end in self.messages(begin, end, (1,)):
            name, value = "", None
            for field, part, part_end in self.messages(entry, entry_end, (1, 2)):
                if field == 1:
                    name = self._name(part, part_end)
                else:
                    value = (part, part_end)
            feature = {"kind": None, "count": 0, "first": []} if value is None else self._value(*value, is_list)
            shown = self.lists if is_list else self.found
            if len(shown) < _SHOWN_FEATURES:
                shown[name] = feature

    def _value(self, begin: int, end: int, is_list: bool) -> dict[str, Any]:
        if not is_list:
            return self._feature(begin, end)
        steps, kind = 0, None
        for _, step, step_end in self.messages(begin, end, (1,)):
            kind = self._feature(step, step_end)["kind"] or kind
            steps += 1
        return {"kind": kind, "steps": steps}

    def _feature(self, begin: int, end: int) -> dict[str, Any]:
        feature: dict[str, Any] = {"kind": None, "count": 0, "first": []}
        for field, part, part_end in self.messages(begin, end, (1, 2, 3)):
            feature["kind"] = _KINDS[field]
            {1: self._texts, 2: self._floats, 3: self._integers}[field](feature, part, part_end)
        return feature

    def _texts(self, feature: dict[str, Any], begin: int, end: int) -> None:
        for _, part, part_end in self.messages(begin, end, (1,)):
            feature["count"] += 1
            if len(feature["first"]) < _SHOWN_VALUES:
                feature["first"].append(_text(bytes(self.data[part : min(part_end, part + 64)]), part_end - part))

    def _floats(self, feature: dict[str, Any], begin: int, end: int) -> None:
        for _, part, part_end in self._fields(begin, end, {1: (2, 5)}):
            if (part_end - part) % 4:
                raise _NotExampleError
            feature["count"] += (part_end - part) // 4
            while len(feature["first"]) < _SHOWN_VALUES and part < part_end:
                value = struct.unpack("<f", self._bytes(part, 4))[0]
                feature["first"].append(value if abs(value) < float("inf") else str(value))
                part += 4

    def _integers(self, feature: dict[str, Any], begin: int, end: int) -> None:
        for _, part, part_end in self._fields(begin, end, {1: (2, 0)}):
            at = part
            while len(feature["first"]) < _SHOWN_VALUES and at < part_end:
                value, at = self._varint(at, part_end)
                feature["first"].append(value - (1 << 64) if value >> 63 else value)
            self.uncounted -= part_end - part
            held = bytes(self.data[part:part_end]) if self.uncounted >= 0 else b""
            if len(held) < part_end - part or feature["count"] is None:
                feature["count"] = None
            elif held and held[-1] >= 128:
                raise _NotExampleError
            else:
                feature["count"] += len(held.translate(None, _CONTINUED))

    def messages(self, begin: int, end: int, allowed: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
        """The number, begin and end of each field between two bytes. All have a length."""
        return self._fields(begin, end, dict.fromkeys(allowed, (2,)))

    def _fields(self, begin: int, end: int, allowed: dict[int, tuple[int, ...]]) -> Iterator[tuple[int, int, int]]:
        while begin < end:
            self.fields -= 1
            if self.fields < 0:
                raise _CutOffError
            tag, begin = self._varint(begin, end)
            wire = tag & 7
            if wire not in allowed.get(tag >> 3, ()):
                raise _NotExampleError
            if wire == 2:
                length, begin = self._varint(begin, end)
            elif wire == 5:
                length = 4
            else:
                length = self._varint(begin, end)[1] - begin
            if begin + length > end:
                raise _NotExampleError
            yield tag >> 3, begin, begin + length
            begin += length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise _NotExampleError
            byte = self._bytes(at, 1)[0]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (1 << 64) - 1, at
        raise _NotExampleError

    def _bytes(self, at: int, length: int) -> bytes:
        if at + length > len(self.data):
            raise _CutOffError if at + length <= self.size else _NotExampleError
        return bytes(self.data[at : at + length])

    def _name(self, begin: int, end: int) -> str:
        if end - begin > 4096:
            raise _NotExampleError
        try:
            return self._bytes(begin, end - begin).decode()[:200]
        except UnicodeDecodeError:
            raise _NotExampleError from None


def _text(head: bytes, length: int) -> str:
    """A short text as it is, and the size of everything else."""
    if length <= _TEXT_BYTES:
        try:
            text = head.decode()
        except UnicodeDecodeError:
            text = "\0"
        if text.isprintable():
            return f'"{text}"'
    from anyrecord._preview_images import named

    return f"<{length:,} bytes{named(head)}>"
