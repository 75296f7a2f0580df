"""Each kind of record by bytes made by hand, so that no encoder is needed."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from anyrecord import _preview_magic
from anyrecord._preview import PREVIEW_BYTES, clip, one_line, preview


def png(width: int = 640, height: int = 480, bits: int = 8, color: int = 2) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + bytes(20)


def jpeg(width: int = 640, height: int = 480, comment: int = 0) -> bytes:
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    comments = b"".join(b"\xff\xe1" + struct.pack(">H", 0xFFFF) + bytes(0xFFFD) for _ in range(comment))
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + comments + frame + b"\xff\xda" + bytes(50)


def riff(chunk: bytes) -> bytes:
    body = b"WEBP" + chunk
    return b"RIFF" + struct.pack("<I", len(body)) + body


def npy(header: str, elements: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + elements


def archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, contents in files.items():
            made.writestr(name.replace("_", "."), contents)
    return out.getvalue()


def field(number: int, contents: bytes) -> bytes:
    length, size = b"", len(contents)
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + contents


def example(**features: bytes) -> bytes:
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, value)) for name, value in features.items()))


FLOATS = field(2, field(1, struct.pack("<3f", 1, 2.5, -3)))
LABEL = field(3, field(1, b"\x07"))
NEGATIVE = field(3, field(1, b"\xff" * 9 + b"\x01" + b"\x80\x01"))
PICTURE = field(1, field(1, jpeg()))
F4 = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
TENSORS = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'

CASES: list[tuple[bytes, str, str]] = [
    (b"", "empty", ""),
    (b"a photo of a cat", "text", "a photo of a cat"),
    (b"two\nlines\t\x0c", "text", r"two\nlines\t\x0c"),
    ("größer 日本".encode(), "text", "größer 日本"),
    ("right\u202eto left".encode(), "text", r"right\u202eto left"),
    (b"x\x1b[31mred", "bytes", "78 1b 5b 33 31 6d 72 65 64"),
    (b"x\xc2\x9b31m", "bytes", "78 c2 9b 33 31 6d"),
    (b"\xff\xfe\x00", "bytes", "ff fe 00"),
    (b"7", "text", "7"),
    (b'{"a": 1,\n   "b": [null, true, -1.5e3, "\\u00e9"]}\n', "json", r'{"a": 1, "b": [null, true, -1.5e3, "\u00e9"]}'),
    (b"[]", "json", "[]"),
    (b" {} ", "json", "{}"),
    (b"[1, 2", "text", "[1, 2"),
    (b"[1, 2]]", "text", "[1, 2]]"),
    (b"[1 2]", "text", "[1 2]"),
    (b"[,]", "text", "[,]"),
    (b'{"a"}', "text", '{"a"}'),
    (b'{"a": 1,}', "text", '{"a": 1,}'),
    (b"{1: 2}", "text", "{1: 2}"),
    (b"[1}", "text", "[1}"),
    (b"[01]", "text", "[01]"),
    (b"[NaN]", "text", "[NaN]"),
    (png(), "png", "640 x 480, RGB"),
    (png(bits=16, color=0), "png", "640 x 480, gray, 16 bits"),
    (png(bits=1, color=3), "png", "640 x 480, palette, 1 bit"),
    (png(width=0), "png", "damaged: its header is not valid"),
    (png().replace(b"IHDR\0", b"IHDR\1"), "png", "damaged: the checksum of its header is wrong"),
    (png()[:20], "png", "damaged: the record ends in its header"),
    (jpeg(), "jpeg", "640 x 480, color"),
    (jpeg(comment=3), "jpeg", "640 x 480, color"),
    (jpeg()[:25], "jpeg", "damaged: the record ends in its header"),
    (b"\xff\xd8\xff\xda" + bytes(20), "bytes", "ff d8 ff da" + " 00" * 16 + "…"),
    (riff(b"VP8 " + bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 31, 17)), "webp", "31 x 17, lossy"),
    (riff(b"VP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 30 | 16 << 14) + bytes(8)), "webp", "31 x 17, lossless"),
    (riff(b"VP8X" + bytes(8) + b"\x1e\0\0\x10\0\0"), "webp", "31 x 17, extended"),
    (riff(b"VP9 " + bytes(20)), "webp", "damaged: its header is not valid"),
    (b"GIF89a" + struct.pack("<HHBBB", 31, 17, 0, 0, 0), "gif", "31 x 17, palette"),
    (b"GIF89a is a format for pictures", "text", "GIF89a is a format for pictures"),
    (b"BM" + struct.pack("<IIIIiiHH", 40, 0, 30, 40, 31, -17, 1, 24) + bytes(10), "bmp", "31 x 17, 24 bits"),
    (b"BMW is a company that makes cars", "text", "BMW is a company that makes cars"),
    (npy(F4, bytes(24)), "npy", "float32 (2, 3)"),
    (npy(F4, bytes(24), version=2), "npy", "float32 (2, 3)"),
    (npy(F4.replace("<", ">").replace("False", "True"), bytes(24)), "npy", "float32 (2, 3), Fortran order, big-endian"),
    (npy(F4.replace("<f4", "|O"), b"\x80\x04."), "npy", "object (2, 3), pickled and not loaded"),
    (npy(F4.replace("<f4", "<M8[ns]"), bytes(48)), "npy", "datetime64[ns] (2, 3)"),
    (npy(F4.replace("'<f4'", "[('x', '<f4'), ('y', '<i8')]")), "npy", "structured (x, y) (2, 3)"),
    (npy(F4, bytes(23)), "npy", "float32 (2, 3); damaged: its shape needs 24 bytes, and it h…"),
    (npy(F4.ljust(20_000), bytes(24), version=2), "npy", "damaged: it claims a header of 20,000 bytes"),
    (npy(F4.replace("(2, 3)", "[2, 3]")), "npy", "damaged: its header is not valid"),
    (archive(x_npy=b"", y_npy=b""), "npz", "2 arrays: x, y"),
    (archive(x_npy=b"", y_txt=b""), "zip", "2 files: x.npy, y.txt"),
    (archive(), "zip", "empty"),
    (struct.pack("<Q", len(TENSORS)) + TENSORS + bytes(4), "safetensors", "1 tensors: w"),
    (gzip.compress(b"x"), "gzip", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd\x20\x01", "zstd", "compressed by zstd"),
    (b"PAR1 is a magic number", "text", "PAR1 is a magic number"),
    (b"\0\0\0\x20ftypavif" + bytes(20), "avif", "a picture"),
    (example(label=LABEL, x=FLOATS), "tf_example", "label: 7, x: float x 3 (1, 2.5, -3)"),
    (example(i=NEGATIVE, image=PICTURE), "tf_example", f"i: int64 x 2 (-1, 128), image: <{len(jpeg())} bytes of JPEG>"),
    (example(s=field(1, field(1, b"cat"))), "tf_example", 's: "cat"'),
    (example(nothing=b""), "tf_example", "nothing: empty x 0"),
    (example(s=LABEL) + field(2, field(1, field(1, b"x") + field(2, field(1, LABEL) * 5))), "tf_sequence_example",
     "s: 7, x: int64, 5 steps"),
    (example(s=LABEL)[:-1], "bytes", "0a 0c 0a 0a 0a 01 73 12 05 1a 03 0a 01"),
    (b"\x82\xa5label\x07\xa4name\xa3cat", "msgpack", '{"label": 7, "name": "cat"}'),
    (b"\x81\xa1x\x93\xcb\x3f\xe0" + bytes(6) + b"\xc0\xc4\x02\xff\xff", "msgpack", '{"x": [0.5, null, <2 bytes>]}'),
    (b"\x92\xa2ab\xd4\x05x", "msgpack", '["ab", <ext 5>]'),
    (b"\x93\x01\x02\x03", "bytes", "93 01 02 03"),
    (b"\x81\x01\x02", "bytes", "81 01 02"),
    (b"\x82\xa5label\x07\xa4name\xa3cat\x00", "bytes", "82 a5 6c 61 62 65 6c 07 a4 6e 61 6d 65 a3 63 61 74 00"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "kind", "summary"), CASES, ids=range(len(CASES)))
def test_a_record_is_named(record: bytes, kind: str, summary: str) -> None:
    found = preview(record)
    assert (found.kind, found.summary) == (kind, summary)
    json.dumps(found.details)


DETAILS: list[tuple[bytes, dict[str, Any]]] = [
    (b"a\nb\n", {"text": "a\nb\n", "lines": 2}),
    (
        b'{"a\\"\\ud800": 1, "b": {"c": 2}}',
        {"type": "object", "items": 2, "keys": ['a"\\ud800', "b"], "complete": True},
    ),
    (b"[[1, 2], 3]", {"type": "array", "items": 2, "complete": True}),
    (png(), {"width": 640, "height": 480, "mode": "RGB"}),
    (npy(F4, bytes(24)), {"dtype": "float32", "shape": [2, 3], "fortran_order": False}),
    (archive(x_npy=b""), {"files": 1, "names": ["x"]}),
    (example(x=FLOATS), {"features": {"x": {"kind": "float", "count": 3, "first": [1, 2.5, -3]}}, "complete": True}),
    (b"\x81\xa1x\x07", {"type": "map", "items": 1, "keys": ["x"], "complete": True}),
]


@pytest.mark.parametrize(("record", "details"), DETAILS, ids=range(len(DETAILS)))
def test_details_are_facts_for_programs(record: bytes, details: dict[str, Any]) -> None:
    assert preview(record).details == details


PICKLED = [({"a": 1}, "dict"), ([1], "list"), ((1, 2), "tuple"), ({"x"}, "set"), ("text", "str"), (b"x", "bytes"),
           (OrderedDict(a=1), "collections.OrderedDict"), (list(range(9999)), "list"), (Exception("x"), "Exception"),
           ]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(("value", "name"), PICKLED, ids=lambda value: str(value)[:20])
def test_pickles_of_every_protocol_are_named(value: object, name: str, protocol: int) -> None:
    found = preview(pickle.dumps(value, protocol))
    assert found.kind == "pickle"
    assert found.details["type"] == name
    assert found.details["protocol"] in (protocol, 0)  # a pickle of protocol 1 may have no opcode of its own
    assert "not loaded" in found.summary


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return exit, (7,)


def test_a_pickle_is_never_loaded() -> None:
    found = preview(pickle.dumps(Bomb()))
    assert found.kind == "pickle"
    assert found.details["globals"] == ["_sitebuiltins.Quitter"] or "exit" in str(found.details["globals"])


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (b"x" * 200_000, "text"),
        ("ü".encode() * 100_000, "text"),
        (json.dumps({"a": list(range(50_000))}).encode(), "json"),
        (json.dumps({"a": 'ü\\"\t' * 20_000}).encode(), "json"),
        (json.dumps({"a": 'ü\\"\t' * 20_000}, ensure_ascii=False).encode(), "json"),
        (b"\x82\xa1x\xc6" + struct.pack(">I", 200_000) + bytes(200_000) + b"\xa1y\x05", "msgpack"),
        (example(label=LABEL, image=field(1, field(1, jpeg(comment=4)))), "tf_example"),
        (pickle.dumps([bytes(9999) for _ in range(50)]), "pickle"),
        (png() + bytes(200_000), "png"),
        (jpeg(comment=2), "jpeg"),
        (npy(F4.replace("2", "20000"), bytes(240_000)), "npy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_beginning_of_a_record_is_enough(record: bytes, kind: str) -> None:
    for cut in (1000, 4097, PREVIEW_BYTES - 1, PREVIEW_BYTES):
        found = preview(memoryview(record)[:cut], size=len(record))
        assert found.kind == kind
        assert "damaged" not in found.details
        assert found.details.get("complete") in (None, kind == "tf_example")  # there all names and sizes were seen
    assert preview(record).kind == kind


def test_every_kind_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reading.md").read_text()
    table = page.partition("| kind | record |")[2].partition("\n\n")[0]
    documented = {
        kind for row in table.splitlines() for kind in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")
    }
    named = {kind for _, kind, _ in CASES} | {kind for _, kind, _ in _preview_magic._MAGIC}
    named |= {"pickle", "wav", "avi", "mp4", "tar", *_preview_magic._BRANDS.values()}
    assert documented == named


def test_a_buffer_of_any_kind_is_taken() -> None:
    assert preview(bytearray(b"abc")).summary == "abc"
    assert preview(memoryview(b"a-b-c-")[::2]).summary == "abc"
    assert preview(memoryview(struct.pack("<2I", 0x64636261, 0x68676665)).cast("I")).summary == "abcdefgh"
    assert preview(memoryview(b"")).kind == "empty"


def test_a_summary_fits_and_says_when_it_was_cut() -> None:
    assert preview(b"x" * 60).summary == "x" * 60
    assert preview(b"x" * 61).summary == "x" * 59 + "…"
    assert preview("日".encode() * 30).summary == "日" * 30
    assert preview("日".encode() * 31).summary == "日" * 29 + "…"
    assert preview(b"abc", width=2).summary == "a…"
    assert preview(b"abc", width=0).summary == ""
    assert clip("", 0) == ""
    assert one_line("a\r\n\x7f\x85\u2028\ufeff\xad\U000e0041") == r"a\r\n\x7f\x85\u2028\ufeff\xad\U000e0041"
    shown = "naïve 日本\u3000क्\u200dष 👩\u200d🚀"
    assert one_line(shown) == shown


def test_nothing_is_imported_that_does_not_come_with_python() -> None:
    code = """
import sys
from anyrecord._preview import preview
for record in (b"x", b"[1]", b"\\x93NUMPY\\1\\0", b"\\x81\\xa1x\\7", b"\\x80\\4N.", b"\\x0a\\x00", b"PK\\3\\4"):
    preview(record)
print(*{name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {"anyrecord", "__main__", "__mp_main__", "_distutils_hack", "sitecustomize", "usercustomize"}
    assert set(ran.stdout.split()) <= ours
