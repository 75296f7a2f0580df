"""Pickles are named, and never loaded: loading one runs code that it names.

The opcodes are walked with a stack of type names instead of objects, so that the type of the whole can be said.
"""

from __future__ import annotations

import io
from typing import Any, Final

__all__ = ["pickle"]

_MOST_OPCODES: Final = 2000
_MOST_BYTES: Final = 64 << 10
_SHOWN_GLOBALS: Final = 20
_LINES: Final = {b"S": 1, b"P": 1, b"c": 2, b"i": 2}
"""Opcodes with lines of text. The readers of pickletools decode escapes in them, and warn if one is not valid."""
_USUAL: Final = {
    "int_or_bool": "int",
    "_codecs.encode": "bytes",
    "numpy._core.multiarray._reconstruct": "numpy.ndarray",
    "numpy.core.multiarray._reconstruct": "numpy.ndarray",
    "numpy._core.numeric._frombuffer": "numpy.ndarray",
    "numpy.core.numeric._frombuffer": "numpy.ndarray",
    "torch._utils._rebuild_tensor_v2": "torch.Tensor",
}
"""What usual functions make."""


def pickle(data: memoryview, size: int) -> tuple[str, str, dict[str, Any]] | None:
    """Says that a record is a pickle."""
    is_whole = len(data) == size
    has_stop = not is_whole or data[-1] == 0x2E  # the opcode that ends every pickle
    if bytes(data[:1]) == b"\x80" and len(data) > 2 and 2 <= data[1] <= 5:
        protocol = data[1]
    elif has_stop and (b"p0\n" in bytes(data[:4096]) or b"q\x00" in bytes(data[:64])):
        protocol = 0
    else:
        return None
    walk = _Walk(bytes(data[:_MOST_BYTES]))
    ended_at = walk.run()
    if ended_at is None and not has_stop:
        return None
    if ended_at is None and not walk.is_tired and (protocol == 0 or (is_whole and size <= _MOST_BYTES)):
        return None
    if ended_at is not None and ended_at != size and bytes(data[ended_at : ended_at + 1]) != b"\x80":  # another pickle
        return None
    protocol = 1 if protocol == 0 and walk.is_binary else protocol
    type_name = walk.result if ended_at is not None else walk.begun()
    names = ", ".join(walk.globals[:_SHOWN_GLOBALS])
    summary = f"{type_name or 'an object'}, protocol {protocol}, not loaded" + (f"; names {names}" if names else "")
    return "pickle", summary, {"protocol": protocol, "type": type_name, "globals": walk.globals[:_SHOWN_GLOBALS]}


def _lines(file: io.BytesIO, count: int) -> str:
    return " ".join(file.readline(4096).decode("latin-1").rstrip("\n") for _ in range(count))


class _Walk:
    """A stack of what each opcode leaves: a type name, or the text of a string."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.stack: list[str] = []
        self.memo: dict[int, str] = {}
        self.globals: list[str] = []
        self.result: str | None = None
        self.is_tired = self.is_binary = False

    def run(self) -> int | None:
        """Where the pickle ends; None if that is not known."""
        from pickletools import opcodes

        by_code = {opcode.code: opcode for opcode in opcodes}
        file = io.BytesIO(self.raw)
        for _ in range(_MOST_OPCODES):
            code = file.read(1)
            opcode = by_code.get(code.decode("latin-1"))
            if opcode is None:
                return None
            self.is_binary |= code in b"q})]hKMJGUTX"
            try:
                argument = _lines(file, _LINES[code]) if code in _LINES else opcode.arg and opcode.arg.reader(file)
                if code == b".":
                    self.result = self._named(self.stack.pop())
                    return file.tell() if not self.stack else None
                self._apply(opcode, argument)
            except (ValueError, IndexError, KeyError, OverflowError):
                return None
        self.is_tired = True
        return None

    def _apply(self, opcode: Any, argument: Any) -> None:
        name = opcode.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL", "INST"):
            if name == "STACK_GLOBAL":
                last, module = self.stack.pop(), self.stack.pop()
                argument = f"{module[1:]} {last[1:]}"
            if name == "INST":
                self._to_mark()
            self._global(str(argument).replace(" ", ".")[:200])
        elif name in ("REDUCE", "NEWOBJ", "BUILD"):
            del self.stack[-1]
            self.stack[-1] = self.stack[-1]  # there must be a second one
        elif name == "NEWOBJ_EX":
            del self.stack[-2:]
        elif name == "OBJ":
            made = self._to_mark()
            self.stack.append(made[0])
        elif name == "DUP":
            self.stack.append(self.stack[-1])
        elif isinstance(argument, str) and opcode.stack_after:
            self.stack.append("=" + argument[:200])
        else:
            self._generic(opcode)

    def _generic(self, opcode: Any) -> None:
        before = [item.name for item in opcode.stack_before]
        if "stackslice" in before:
            self._to_mark()
            before = before[: before.index("mark")]
        kept = self.stack[-len(before) :] if before else []
        if len(kept) < len(before):
            raise IndexError
        del self.stack[len(self.stack) - len(before) :]
        after = [item.name for item in opcode.stack_after]
        is_changed = opcode.name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS")
        self.stack += kept[:1] if is_changed else after

    def _to_mark(self) -> list[str]:
        position = len(self.stack) - 1 - self.stack[::-1].index("mark")
        items = self.stack[position + 1 :]
        del self.stack[position:]
        return items

    def _global(self, name: str) -> None:
        if name not in self.globals and len(self.globals) <= _SHOWN_GLOBALS:
            self.globals.append(name)
        self.stack.append("@" + name)

    def begun(self) -> str | None:
        """What the part that was walked begins: lists, dicts and objects come before what is in them."""
        first = self.stack[0] if self.stack else "mark"
        return self._named(first) if first in ("list", "dict", "set") or first.startswith("@") else None

    @staticmethod
    def _named(item: str) -> str:
        if item.startswith("="):
            return "str"
        item = item.removeprefix("@")
        for module in ("builtins.", "__builtin__.", "exceptions."):
            item = item.removeprefix(module)
        return _USUAL.get(item, item)
