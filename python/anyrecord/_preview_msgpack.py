"""msgpack maps and arrays.

Most short byte strings are valid msgpack by chance. So we ask for more: one map or array that ends where the record
ends, and enough in it that is not there by chance: names, texts, numbers of several bytes. Keys must be names.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Final

from anyrecord._preview_images import named

__all__ = ["msgpack"]

_MOST_VALUES: Final = 20_000
_MOST_DEPTH: Final = 64
_SHOWN_CHARACTERS: Final = 1000
_SHOWN: Final = 20
_ENOUGH: Final = 2
"""How many findings make it msgpack: a text or a key counts 2, a number of several bytes 1."""

_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_NUMBERS: Final = {
    **{0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"},
    **{0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"},
}
_CONSTANTS: Final = {0xC0: "null", 0xC2: "false", 0xC3: "true"}
_LENGTHS: Final = {
    **{0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4), 0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4)},
    **{0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4)},
    **{0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)},
}


def msgpack(data: memoryview, size: int) -> tuple[str, str, dict[str, Any]] | None:
    """Says that a record is a msgpack map or array."""
    if not (0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF):
        return None
    walk = _Walk(data, size)
    try:
        complete = walk.run()
    except _NotMsgpackError:
        return None
    if walk.evidence < _ENOUGH:
        return None
    is_map = data[0] <= 0x8F or data[0] >= 0xDE
    details: dict[str, Any] = {"type": "map" if is_map else "array", "items": walk.items}
    if is_map:
        details["keys"] = walk.keys
    details["complete"] = complete
    return "msgpack", "".join(walk.shown) + ("" if complete else " …"), details


class _NotMsgpackError(Exception):
    pass


class _CutOffError(Exception):
    """The bytes at hand end, but the record goes on."""


class _Walk:
    """Walks over the values with a stack of the containers that are open."""

    def __init__(self, data: memoryview, size: int) -> None:
        self.data, self.size, self.at = data, size, 0
        self.evidence, self.items = 0, 0
        self.keys: list[str] = []
        self.shown: list[str] = []
        self.room = _SHOWN_CHARACTERS
        self.open: list[list[Any]] = []
        """Of each open container: values that are missing, whether it is a map, whether a value was there."""

    def run(self) -> bool:
        """Whether the whole record was seen."""
        try:
            self._value()
            for _ in range(_MOST_VALUES):
                while self.open and self.open[-1][0] == 0:
                    self._show("}" if self.open.pop()[1] else "]")
                if not self.open:
                    if self.at != self.size:
                        raise _NotMsgpackError
                    return True
                missing, is_map, had_one = self.open[-1]
                is_key = is_map and missing % 2 == 0
                if had_one:
                    self._show(": " if is_map and not is_key else ", ")
                self.open[-1] = [missing - 1, is_map, True]
                self._value(is_key)
        except _CutOffError:
            pass
        return False

    def _value(self, is_key: bool = False) -> None:
        first = self._take(1)[0]
        if first <= 0x7F or first >= 0xE0:
            kind, length = "int", first if first <= 0x7F else first - 256
        elif first in _CONSTANTS:
            kind, length = _CONSTANTS[first], 0
        elif first in _NUMBERS:
            kind, length = "number", 0
        elif first <= 0x8F:
            kind, length = "map", first & 0xF
        elif first <= 0x9F:
            kind, length = "array", first & 0xF
        elif first <= 0xBF:
            kind, length = "str", first & 0x1F
        elif 0xD4 <= first <= 0xD8:
            kind, length = "ext", 1 << first - 0xD4
        elif first in _LENGTHS:
            kind, width = _LENGTHS[first]
            length = int.from_bytes(self._take(width), "big")
        else:  # 0xC1, which is never used
            raise _NotMsgpackError
        if is_key and kind not in ("str", "bin"):
            raise _NotMsgpackError
        if kind in ("map", "array"):
            self._container(kind == "map", length)
        elif kind in ("str", "bin", "ext"):
            self._bytes(kind, length, is_key)
        elif kind == "number":
            self._number(_NUMBERS[first])
        else:
            self._show(str(length) if kind == "int" else kind)

    def _number(self, form: str) -> None:
        width = struct.calcsize(form)
        value = struct.unpack(form, self._take(width))[0]
        self.evidence += width > 1
        self._show(f"{value:.7g}" if isinstance(value, float) else str(value))

    def _container(self, is_map: bool, length: int) -> None:
        values = 2 * length if is_map else length
        if values > self.size - self.at or len(self.open) >= _MOST_DEPTH:
            raise _NotMsgpackError
        if not self.open:
            self.items = length
        self.open.append([values, is_map, False])
        self._show("{" if is_map else "[")

    def _bytes(self, kind: str, length: int, is_key: bool) -> None:
        if kind == "ext":
            code = self._take(1)[0]
        if length > self.size - self.at:
            raise _NotMsgpackError
        head = bytes(self.data[self.at : self.at + min(length, 256)])
        if kind == "str" or is_key:
            text = head.decode("utf-8", "replace")
            if "\ufffd" in (text[:-1] if length > len(head) else text) and b"\xef\xbf\xbd" not in head:
                raise _NotMsgpackError
            is_text = bool(text) and not _CONTROL.search(text)
            if is_key and not is_text:
                raise _NotMsgpackError
            self.evidence += 2 * (is_text and (is_key or len(text) > 1))
            if is_key and len(self.open) == 1 and len(self.keys) < _SHOWN:
                self.keys.append(text[:200])
            self._show(f'"{text}"' if length <= 256 else f'"{text[:200]}…"')
        else:
            self._show(
                f"<{length:,} bytes{named(head)}>" if kind == "bin" else f"<ext {code if code < 128 else code - 256}>"
            )
        self._skip(length)

    def _take(self, length: int) -> bytes:
        begin = self.at
        self._skip(length)
        return bytes(self.data[begin : self.at])

    def _skip(self, length: int) -> None:
        if self.at + length > self.size:
            raise _NotMsgpackError
        self.at += length
        if self.at > len(self.data):
            raise _CutOffError

    def _show(self, text: str) -> None:
        if self.room > 0:
            self.shown.append(text)
            self.room -= len(text)
