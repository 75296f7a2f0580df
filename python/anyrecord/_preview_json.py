"""JSON objects and arrays, checked token by token, so that the beginning of a large one is recognised, too."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["json"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_SCALAR: Final = re.compile(_STRING + r'"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null')
_CUT: Final = re.compile(_STRING + r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?|-|[a-z]{1,4}")
"""A token that is cut off. Whether the letters are of `true` does not matter much."""
_LINE_END: Final = re.compile(r"[ \t]*[\n\r][ \t\n\r]*+")
_MOST_TOKENS: Final = 20_000
_SHOWN: Final = 20


def json(text: str, complete: bool) -> tuple[str, str, dict[str, Any]] | None:
    """Says that a text is a JSON object or array, or the beginning of one if it is not `complete`."""
    text = text.removeprefix("\ufeff").strip(" \t\n\r") if complete else text.removeprefix("\ufeff").lstrip(" \t\n\r")
    if text[:1] not in ("{", "["):
        return None
    scan = _Scan(text)
    if not scan.run() and complete and not scan.is_tired:
        return None
    if scan.is_wrong:
        return None
    is_object = text[0] == "{"
    items = scan.items if scan.is_done else None
    found: dict[str, Any] = {"type": "object" if is_object else "array", "items": items}
    if is_object:
        found["keys"] = scan.keys
    found["complete"] = scan.is_done
    return "json", _LINE_END.sub(" ", text[:4096]) + ("" if scan.is_done else " …"), found


class _Scan:
    """Walks over the tokens with a stack of open brackets."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0
        self.open: list[str] = []
        self.items = 0
        self.keys: list[str] = []
        self.is_done = self.is_wrong = self.is_tired = False

    def run(self) -> bool:
        """Whether the text ends where the value ends."""
        expects = "value"
        for _ in range(_MOST_TOKENS):
            self.position = _SPACE.match(self.text, self.position).end()  # type: ignore[union-attr]
            if self.position == len(self.text):
                return self.is_done
            if self.is_done:
                return self._wrong()
            expects = self._token(self.text[self.position], expects)
            if not expects:
                return False
        self.is_tired = True
        return False

    def _token(self, character: str, expects: str) -> str:
        """Takes one token and returns what may follow; nothing if the text ends or is wrong here."""
        if character in "}]" and expects in ("after", "first value" if character == "]" else "first key"):
            if self.open.pop() != character:
                return self._failed()
            return self._closed()
        if character == "," and expects == "after":
            self.position += 1
            return "key" if self.open[-1] == "}" else "value"
        if character == ":" and expects == "colon":
            self.position += 1
            return "value"
        if expects in ("after", "colon"):
            return self._failed()
        if character in "{[" and "value" in expects:
            self._count()
            self.open.append("}" if character == "{" else "]")
            self.position += 1
            return "first key" if character == "{" else "first value"
        return self._scalar(expects)

    def _scalar(self, expects: str) -> str:
        found = _SCALAR.match(self.text, self.position)
        if found is None:
            cut = _CUT.match(self.text, self.position)
            if cut is None or cut.end() != len(self.text):
                self.is_wrong = True
            return ""
        if "key" in expects:
            if not found[0].startswith('"'):
                return self._failed()
            if len(self.open) == 1 and len(self.keys) < _SHOWN:
                self.keys.append(_key(found[0]))
            self.position = found.end()
            return "colon"
        self._count()
        self.position = found.end()
        return "after"

    def _count(self) -> None:
        self.items += len(self.open) == 1

    def _closed(self) -> str:
        self.position += 1
        self.is_done = not self.open
        return "after"

    def _failed(self) -> str:
        self.is_wrong = True
        return ""

    def _wrong(self) -> bool:
        self.is_wrong = True
        return False


def _key(quoted: str) -> str:
    """The text of a key. Half of a surrogate pair, which UTF-8 does not have, stays escaped."""
    if "\\" not in quoted:
        return quoted[1:-1][:200]
    from json import loads

    text: str = loads(quoted)
    return text[:200].encode("utf-8", "backslashreplace").decode()
