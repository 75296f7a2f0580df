"""The listing of a packed folder: the names in it, and the record that holds each file.

The last record of a packed folder is nine magic bytes and the pickle of nested `OrderedDict`s. Each dict maps a name to
the number of a record (a file) or to another such dict (a folder).

`pickle.loads` would run code that the file names, so it is never called. The interpreter here knows only the few
opcodes that such a pickle needs. They make strings, numbers and dicts. Every other opcode is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeAlias

from anyrecord._dataclasses import dataclass
from anyrecord.errors import FormatError

__all__ = ["MAGIC", "MAX_DEPTH", "MAX_NAME_BYTES", "MAX_PATH_BYTES", "Listing", "Tree", "name_bytes", "walk"]

MAGIC: Final = b"piouhjgbr"
"""What the last record of a packed folder begins with."""

MAX_DEPTH: Final = 64
"""The maximum number of names in a path."""
MAX_NAME_BYTES: Final = 255
"""The maximum length of one name."""
MAX_PATH_BYTES: Final = 4096
"""The maximum length of a path."""

Tree: TypeAlias = "dict[str, int | Tree]"
"""A folder in stored order. A file name maps to a record number, a folder name to the tree of that folder."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A checked listing: every name is valid, and every file has its own record."""

    tree: Tree
    num_files: int
    num_folders: int

    @classmethod
    def parse(cls, record: bytes, *, path: str, number: int, offset: int | None) -> Listing:
        """Reads the listing in `record`, which is record `number` of the file `path` and begins at byte `offset`."""
        place = _Place(path, number, offset)
        if not record.startswith(MAGIC) or len(record) == len(MAGIC):
            raise FormatError(
                f"{path} is not a packed folder: expected its last record (record {number}) to begin with "
                f"{MAGIC!r} and a listing, found {record[: len(MAGIC) + 1]!r}; read it with anyrecord.open",
                path=path,
                offset=offset,
                record=number,
                expected=f"{MAGIC!r} and a listing",
                found=repr(record[: len(MAGIC) + 1]),
            )
        tree = _Interpreter(record, place).run()
        return cls(tree, *_check(tree, number, place))


def dump(tree: Tree) -> bytes:
    """The record that stores a listing. The dicts in `tree` must be `OrderedDict`s, as in FFRecord's own listings."""
    import pickle  # imported here because only packing a folder needs it

    return MAGIC + pickle.dumps(tree, protocol=4)


def walk(tree: Tree, prefix: str = "") -> Iterator[tuple[str, int | Tree]]:
    """Yields every path below `tree` with its node, in stored order. A folder comes before its content."""
    levels = [(prefix, iter(tree.items()))]
    while levels:
        prefix, items = levels[-1]
        for name, node in items:
            path = prefix + name
            yield path, node
            if isinstance(node, dict):
                levels.append((path + "/", iter(node.items())))
                break
        else:
            levels.pop()


def name_bytes(name: str) -> int:
    """The length of a name on disk."""
    if name.isascii():
        return len(name)
    try:
        return len(name.encode(errors="surrogateescape"))  # Python decodes a byte that is not UTF-8 to a lone surrogate
    except UnicodeEncodeError:
        return len(name.encode(errors="surrogatepass"))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a listing is stored, for error messages."""

    path: str
    record: int
    offset: int | None

    def refuse(self, what: str, expected: str, found: str, at: int | None = None) -> NoReturn:
        offset = None if self.offset is None else self.offset + (at or 0)
        where = f" at byte {offset}" if offset is not None else ""
        raise FormatError(
            f"{what} in the listing of {self.path}{where} (record {self.record}): expected {expected}, found {found}; "
            "the records themselves can be read with anyrecord.open",
            path=self.path,
            offset=offset,
            record=self.record,
            expected=expected,
            found=found,
        )


def _check(tree: Tree, num_records: int, place: _Place) -> tuple[int, int]:
    """Checks the names and record numbers of a tree. Returns how many files and folders the tree has."""
    named = bytearray(num_records)
    files = folders = 0
    levels: list[tuple[int, Iterator[tuple[str, int | Tree]]]] = [(0, iter(tree.items()))]
    while levels:
        before, items = levels[-1]
        for name, node in items:
            size = before + _check_name(name, place)
            if size > MAX_PATH_BYTES:
                place.refuse("path too long", f"at most {MAX_PATH_BYTES} bytes", f"{size} up to {_short(name)}")
            if isinstance(node, dict):
                if len(levels) == MAX_DEPTH:
                    place.refuse("folders too deep", f"at most {MAX_DEPTH} levels", f"a folder {_short(name)} below")
                folders += 1
                levels.append((size + 1, iter(node.items())))
                break
            if not 0 <= node < num_records:
                place.refuse("no such record", f"the number of one of {num_records} files", f"{_short(name)} at {node}")
            if named[node]:
                place.refuse("two files in one record", "a record for each file", f"record {node} for {_short(name)}")
            named[node] = 1
            files += 1
        else:
            levels.pop()
    return files, folders


def _check_name(name: str, place: _Place) -> int:
    size = name_bytes(name)
    if size > MAX_NAME_BYTES:
        place.refuse("name too long", f"at most {MAX_NAME_BYTES} bytes", f"{size}: {_short(name)}")
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        place.refuse("invalid name", "the name of one file or folder", _short(name))
    return size


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "a folder"  # which may be deeper than the stack, and as large as the listing
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:50]}..."


class _Mark:
    """A placeholder on the stack for a value that is not data."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


_DICT_CLASS = _Mark("the class OrderedDict")
_NO_ARGUMENTS = _Mark("an empty tuple")
_NUMBER = re.compile(rb"[0-9]{1,19}")


class _Interpreter:
    """A pickle interpreter that can make only strings, numbers and dicts."""

    def __init__(self, record: bytes, place: _Place) -> None:
        self.data, self.place = record, place
        self.at = self.begin = len(MAGIC)  # the next byte
        self.opcode_at = self.at
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks below each MARK
        self.memo: dict[int, Any] = {}
        self.in_a_folder: set[int] = set()  # ids of dicts that are in a folder; no dict is freed before the end

    def run(self) -> Tree:
        data, end = self.data, len(self.data)
        while True:
            if self.at >= end:
                self.refuse("truncated listing", "a STOP opcode", "the end of the record")
            self.opcode_at = self.at
            opcode = data[self.at]
            self.at += 1
            if opcode == 0x2E:  # STOP
                return self.stop()
            method = _OPCODES.get(opcode)
            if method is None:
                self.refuse("forbidden opcode", "one of those that a listing needs", f"{opcode:#04x} {chr(opcode)!a}")
            method(self)

    def refuse(self, what: str, expected: str, found: str) -> NoReturn:
        self.place.refuse(what, expected, found, self.opcode_at)

    # -- bytes --

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            self.refuse("truncated listing", f"{size} more bytes", f"{len(self.data) - self.at}")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            self.refuse("truncated listing", "a line", "no end of line")
        line = self.data[self.at : end]
        self.at = end + 1
        return line

    def decimal(self) -> int:
        line = self.line()
        # Pickle protocol 0 writes False and True as 00 and 01.
        if not _NUMBER.fullmatch(line) or (len(line) > 1 and line.startswith(b"0")):
            self.refuse("invalid number", "a whole number", _short(line))
        return int(line)

    # -- the stack --

    def pop(self) -> Any:
        if not self.stack:
            self.refuse("broken listing", "a value", "an empty stack")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack:
            self.refuse("broken listing", "a value", "an empty stack")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        if not self.below:
            self.refuse("broken listing", "a mark", "none")
        items, self.stack = self.stack, self.below.pop()
        return items

    # -- opcodes --

    def proto(self) -> None:
        version = self.number(1)
        if self.opcode_at != self.begin or version > 5:
            self.refuse("invalid protocol", "at most 5, and only at the beginning", f"{version}")

    def frame(self) -> None:
        size = self.number(8)
        if size > len(self.data) - self.at:
            self.refuse("truncated listing", f"a frame of {size} bytes", f"{len(self.data) - self.at}")

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def text(self, size: int) -> None:
        if size > 3 * MAX_NAME_BYTES:  # a byte that is not UTF-8 takes three bytes in a pickle
            self.refuse("name too long", f"at most {MAX_NAME_BYTES} bytes", f"{size}")
        raw = self.take(size)
        try:
            self.stack.append(raw.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            self.refuse("invalid name", "UTF-8", _short(raw))

    def unicode_line(self) -> None:
        raw = self.line()
        if len(raw) > 10 * MAX_NAME_BYTES:  # at most ten bytes for a character: \U0001F600
            self.refuse("name too long", f"at most {MAX_NAME_BYTES} bytes", f"{len(raw)}")
        try:
            self.stack.append(raw.decode("raw-unicode-escape"))
        except UnicodeDecodeError:
            self.refuse("invalid name", "escaped text", _short(raw))

    def long(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.number(1)), "little", signed=True))

    def put(self, index: int) -> None:
        self.memo[index] = self.top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            self.refuse("broken listing", "an index into the memo", f"{index}")
        self.stack.append(self.memo[index])

    def name_class(self, module: object, name: object) -> None:
        if (module, name) != ("collections", "OrderedDict"):
            self.refuse("forbidden class", "collections.OrderedDict", f"{_short(module)} {_short(name)}")
        self.stack.append(_DICT_CLASS)

    def named_class(self) -> None:
        self.name_class(self.line().decode("latin-1"), self.line().decode("latin-1"))

    def stack_class(self) -> None:
        name, module = self.pop(), self.pop()
        self.name_class(module, name)

    def empty_tuple(self) -> None:
        self.stack.append(_NO_ARGUMENTS)

    def tuple(self) -> None:
        if items := self.since_mark():
            self.refuse("forbidden arguments", "an empty tuple", f"{len(items)} values")
        self.stack.append(_NO_ARGUMENTS)

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if function is not _DICT_CLASS or arguments is not _NO_ARGUMENTS:
            self.refuse("forbidden call", "OrderedDict()", f"{_short(function)} with {_short(arguments)}")
        self.stack.append({})

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.store([key, value])

    def set_items(self) -> None:
        self.store(self.since_mark())

    def store(self, items: list[Any]) -> None:
        folder = self.top()
        if type(folder) is not dict or len(items) % 2:
            self.refuse("broken listing", "a folder and pairs", f"{_short(type(folder))} and {len(items)} values")
        for position in range(0, len(items), 2):
            name, node = items[position], items[position + 1]
            if type(name) is not str:
                self.refuse("invalid name", "text", _short(name))
            if name in folder:
                self.refuse("duplicate name", "different names in a folder", _short(name))
            if type(node) is dict:
                if id(node) in self.in_a_folder:
                    self.refuse("folder in two places", "one place for each folder", _short(name))
                self.in_a_folder.add(id(node))
            elif type(node) is not int:
                self.refuse("invalid entry", "a number or a folder", _short(node))
            folder[name] = node

    def stop(self) -> Tree:
        if self.at != len(self.data):
            self.refuse("bytes after the listing", "the end of the record", f"{len(self.data) - self.at} bytes")
        if self.below or len(self.stack) != 1:
            self.refuse("broken listing", "one folder", f"{len(self.stack)} values and {len(self.below)} marks")
        tree = self.stack[0]
        if type(tree) is not dict or id(tree) in self.in_a_folder:
            self.refuse("broken listing", "a top-level folder", _short(type(tree)))
        return tree


_OPCODES: Final[dict[int, Callable[[_Interpreter], None]]] = {
    opcode[0]: method
    for opcode, method in {
        b"\x80": _Interpreter.proto,
        b"\x95": _Interpreter.frame,
        b"(": _Interpreter.mark,
        b"c": _Interpreter.named_class,
        b"\x93": _Interpreter.stack_class,
        b")": _Interpreter.empty_tuple,
        b"t": _Interpreter.tuple,
        b"R": _Interpreter.reduce,
        b"\x8c": lambda machine: machine.text(machine.number(1)),
        b"X": lambda machine: machine.text(machine.number(4)),
        b"V": _Interpreter.unicode_line,
        b"K": lambda machine: machine.stack.append(machine.number(1)),
        b"M": lambda machine: machine.stack.append(machine.number(2)),
        b"J": lambda machine: machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True)),
        b"I": lambda machine: machine.stack.append(machine.decimal()),
        b"\x8a": _Interpreter.long,
        b"\x94": lambda machine: machine.put(len(machine.memo)),
        b"q": lambda machine: machine.put(machine.number(1)),
        b"r": lambda machine: machine.put(machine.number(4)),
        b"p": lambda machine: machine.put(machine.decimal()),
        b"h": lambda machine: machine.get(machine.number(1)),
        b"j": lambda machine: machine.get(machine.number(4)),
        b"g": lambda machine: machine.get(machine.decimal()),
        b"s": _Interpreter.set_item,
        b"u": _Interpreter.set_items,
    }.items()
}
"""PROTO FRAME MARK GLOBAL STACK_GLOBAL EMPTY_TUPLE TUPLE REDUCE, strings, numbers, memo, SETITEM SETITEMS; and STOP."""
