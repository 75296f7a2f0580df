"""Arrays: `.npy`, archives of them, and safetensors. numpy is not used, and no member is decompressed."""

from __future__ import annotations

import re
import struct
from math import prod
from typing import Any, Final

from anyrecord._preview_json import json

__all__ = ["npy", "safetensors", "zip_archive"]

Found = tuple[str, str, dict[str, Any]]

_MOST_HEADER_BYTES: Final = 16 << 10
_MOST_DEPTH: Final = 16
_MOST_NAMES: Final = 20
_HEADER: Final = re.compile(
    r"(?:'[^'\\\n]*+'|\"[^\"\\\n]*+\"|[0-9]{1,19}(?![0-9A-Za-z_])|True\b|False\b|[][(){},: \n])*+"
)
"""What a header may be made of. Only such text is given to the parser of Python literals."""
_NAMES: Final = {
    "b": "bool",
    "i": "int",
    "u": "uint",
    "f": "float",
    "c": "complex",
    "M": "datetime64",
    "m": "timedelta64",
}
_DTYPE: Final = re.compile(r"([<>|=]?)([biufcMmSUVO])([0-9]{0,9})(\[[0-9A-Za-z]{1,16}\])?")


def npy(data: memoryview, size: int) -> Found | None:
    """
    at byte   0  signature of 6 bytes, version (major, minor)
              8  length of the header: 2 bytes, since version 2: 4 bytes
             10  the header: a Python literal of a dict; then the elements
    """
    if bytes(data[:6]) != b"\x93NUMPY":
        return None
    if len(data) < 12 or data[6] not in (1, 2, 3):
        return _damaged("its header is not valid")
    begin = 10 if data[6] == 1 else 12
    length = int.from_bytes(data[8:begin], "little")
    if length > _MOST_HEADER_BYTES or begin + length > size:
        return _damaged(f"it claims a header of {length:,} bytes")
    if begin + length > len(data):
        return "npy", "its header comes later in the record", {"dtype": None, "shape": None, "fortran_order": None}
    header = _literal(bytes(data[begin : begin + length]).decode("utf-8" if data[6] == 3 else "latin-1", "replace"))
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        return _damaged("its header is not valid")
    shape, order = header["shape"], header["fortran_order"]
    is_shape = isinstance(shape, tuple) and len(shape) <= 64 and all(type(extent) is int for extent in shape)
    described = _dtype(header["descr"])
    if not is_shape or type(order) is not bool or described is None:
        return _damaged("its header is not valid")
    dtype, item_bytes = described
    details: dict[str, Any] = {"dtype": dtype, "shape": list(shape), "fortran_order": order}
    summary = f"{dtype} {shape}" + (", Fortran order" if order and len(shape) > 1 else "")
    if dtype == "object":
        summary += ", pickled and not loaded"
    elif header["descr"][0] == ">":
        summary += ", big-endian"
    asked, held = prod(shape) * (item_bytes or 0), size - begin - length
    if item_bytes is not None and asked != held:
        details["damaged"] = f"its shape needs {asked:,} bytes, and it has {held:,}"
        summary += f"; damaged: {details['damaged']}"
    return "npy", summary, details


def _literal(text: str) -> object:
    """Evaluates a Python literal that is short, flat, and made of nothing but strings, numbers and brackets."""
    if _HEADER.fullmatch(text) is None:
        return None
    depth = 0
    for bracket in re.findall(r"'[^']*'|\"[^\"]*\"|[][(){}]", text):
        depth += 1 if bracket in "[({" else -1 if bracket in "])}" else 0
        if not 0 <= depth <= _MOST_DEPTH:
            return None
    from ast import literal_eval

    try:
        value: object = literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value


def _dtype(described: object) -> tuple[str, int | None] | None:
    """The name of a type, and how many bytes one element takes if that is known."""
    if isinstance(described, list):
        names = [field[0] for field in described if isinstance(field, tuple) and 2 <= len(field) <= 3]
        if len(names) != len(described) or not all(isinstance(name, str | tuple) for name in names):
            return None
        shown = ", ".join(str(name)[:40] for name in names[:_MOST_NAMES])
        return f"structured ({shown}{', …' if len(names) > _MOST_NAMES else ''})", None
    if not isinstance(described, str) or (found := _DTYPE.fullmatch(described)) is None:
        return None
    _, kind, digits, unit = found.groups()
    if kind == "O":
        return "object", None
    if not digits:
        return None
    width = int(digits)
    if kind in _NAMES:
        bits = "" if kind in "bMm" else str(8 * width)
        return _NAMES[kind] + bits + (unit or ""), width
    return f"{kind}{width}", width * 4 if kind == "U" else width


def zip_archive(data: memoryview, size: int) -> Found | None:
    """A zip archive; `npz` if it holds arrays. Names come from the directory at its end, or from its first member."""
    if bytes(data[:4]) not in (b"PK\x03\x04", b"PK\x05\x06"):
        return None
    count, names = _directory(data) if len(data) == size else (None, [])
    if not names and len(data) > 30 and bytes(data[:4]) == b"PK\x03\x04":
        length = struct.unpack_from("<H", data, 26)[0]
        names = [_name(data[30 : 30 + length])]
    kind = "npz" if names and all(name.endswith(".npy") for name in names) else "zip"
    if kind == "npz":
        names = [name.removesuffix(".npy") for name in names]
    what = "arrays" if kind == "npz" else "files"
    shown = ", ".join(names) + (", …" if count is None or count > len(names) else "")
    summary = shown if count is None else f"{count:,} {what}: {shown}" if names else "empty"
    return kind, summary, {"files": count, "names": names}


def _directory(data: memoryview) -> tuple[int | None, list[str]]:
    """The number of members and the first names, from the directory at the end."""
    tail = bytes(data[-(22 + 0xFFFF) :])
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or end + 22 > len(tail):
        return None, []
    count, _, at = struct.unpack_from("<HII", tail, end + 10)
    names: list[str] = []
    while len(names) < min(count, _MOST_NAMES) and at + 46 <= len(data) and bytes(data[at : at + 4]) == b"PK\x01\x02":
        lengths = struct.unpack_from("<HHH", data, at + 28)
        names.append(_name(data[at + 46 : at + 46 + lengths[0]]))
        at += 46 + sum(lengths)
    return (count if count < 0xFFFF else None), names


def _name(raw: memoryview) -> str:
    return bytes(raw[:200]).decode("utf-8", "backslashreplace")


def safetensors(data: memoryview, size: int) -> Found | None:
    """The length of a JSON object in 8 bytes, the object with the names of tensors, then their elements."""
    if len(data) < 10 or bytes(data[8:9]) != b"{":
        return None
    length = int.from_bytes(data[:8], "little")
    if length > size - 8:
        return None
    header = bytes(data[8 : min(8 + length, 64 << 10)]).decode("utf-8", "replace")
    found = json(header, complete=len(header) == length)
    if found is None:
        return None
    names = [name for name in found[2]["keys"] if name != "__metadata__"]
    items = found[2]["items"]
    count = None if items is None else items - ('"__metadata__"' in header)
    shown = ", ".join(names) + (", …" if count is None or count > len(names) else "")
    return "safetensors", shown if count is None else f"{count:,} tensors: {shown}", {"tensors": count, "names": names}


def _damaged(why: str) -> Found:
    return "npy", f"damaged: {why}", {"dtype": None, "shape": None, "fortran_order": None, "damaged": why}
