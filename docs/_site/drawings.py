"""Draws the layouts of the format pages: `python docs/_site/drawings.py` writes docs/images/format-*.svg.

A drawing has its own light background, so that it can be read on light and on dark pages. Its text is text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

WIDTH = 800
MARGIN = 20
HEIGHT = 44
"""Of a row of boxes."""

HEADER, NUMBER, CHECK, DATA, SPARE, DARK = "#cfe3f7", "#e4ddf6", "#fbe3c0", "#d9efd7", "#ececec", "#5d6b7a"
"""Colours of boxes: headers, numbers, checksums, data, unused bytes, block headers."""

STYLE = """
text { font: 13px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1b2733; }
.small { font-size: 11px; fill: #4a5866; }
.title { font-weight: 600; }
.light { fill: #ffffff; }
.code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px; }
"""


class Box(NamedTuple):
    """A field: its name, what stands below the name, its width in pixels, and its colour."""

    name: str
    below: str
    width: float
    colour: str = DATA
    at: str = ""
    """What stands above its left edge: an offset."""


class Place(NamedTuple):
    """Where a box was drawn."""

    left: float
    right: float
    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2


@dataclass
class Drawing:
    """The parts of a drawing."""

    title: str
    height: int
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        style = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(text)}</text>')

    def row(
        self, y: float, boxes: list[Box], *, left: float = MARGIN, height: float = HEIGHT, end: str = ""
    ) -> list[Place]:
        """Boxes one after the other, as bytes are in a file. `end` stands above the right edge of the last one."""
        places = []
        for box in boxes:
            place = Place(left, left + box.width, y, y + height)
            light = " light" if box.colour == DARK else ""
            self.parts.append(
                f'<rect x="{left:g}" y="{y:g}" width="{box.width:g}" height="{height:g}" fill="{box.colour}" '
                'stroke="#5d6b7a"/>'
            )
            middle = y + height / 2
            self.text(place.middle, middle + (-3 if box.below else 5), box.name, light.strip())
            if box.below:
                self.text(place.middle, middle + 14, box.below, "small" + light)
            if box.at:
                self.text(left, y - 6, box.at, "small", "start" if left <= MARGIN else "middle")
            places.append(place)
            left += box.width
        if end:
            self.text(left, y - 6, end, "small", "end")
        return places

    def zoom(self, source: Place, left: float, right: float, y: float) -> None:
        """Shows that what is drawn at `y` is what is in `source`."""
        points = f"{source.left:g},{source.bottom:g} {source.right:g},{source.bottom:g} {right:g},{y:g} {left:g},{y:g}"
        self.parts.append(f'<polygon points="{points}" fill="#5d6b7a" fill-opacity="0.10"/>')

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        path = " L".join(f"{x:g} {y:g}" for x, y in points)
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<path d="M{path}" fill="none" stroke="#1b2733" stroke-width="1.3"{dashes} marker-end="url(#head)"/>'
        )

    def brace(self, left: float, right: float, y: float, text: str) -> None:
        """A line below boxes, from `left` to `right`, that says something of them."""
        self.parts.append(f'<path d="M{left + 2:g} {y:g} v6 H{right - 2:g} v-6" fill="none" stroke="#4a5866"/>')
        self.text((left + right) / 2, y + 20, text, "small")

    def svg(self) -> str:
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
                f'height="{self.height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="#1b2733"/></marker></defs>',
                f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1}" rx="8" fill="#ffffff" '
                'stroke="#c4ccd4"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def tfrecord() -> Drawing:
    drawing = Drawing("A TFRecord file", 222)
    drawing.text(MARGIN, 24, "the file", "title", "start")
    records = [Box(f"record {i}", "", 190, HEADER) for i in range(3)]
    places = drawing.row(40, [*records, Box("…", "", 190, HEADER)], end="end of the file")
    drawing.zoom(places[1], MARGIN, WIDTH - MARGIN, 138)
    drawing.text(MARGIN, 114, "a record", "title", "start")
    fields = [
        Box("length", "8 bytes", 190, NUMBER, "0"),
        Box("CRC of length", "4 bytes", 110, CHECK, "8"),
        Box("data", "length bytes", 340, DATA, "12"),
        Box("CRC of data", "4 bytes", 120, CHECK, "12 + length"),
    ]
    length, crc, data, last = drawing.row(138, fields)
    for covered, check in ((length, crc), (data, last)):
        drawing.brace(covered.left, covered.right, 186, "masked CRC-32C of these bytes")
        drawing.arrow((covered.right - 2, 192), (check.middle, 192), (check.middle, 184))
    return drawing


def ffrecord() -> Drawing:
    drawing = Drawing("An FFRecord file", 166)
    boxes = [
        Box("CRC", "4 bytes", 60, CHECK, "0"),
        Box("n", "8 bytes", 60, NUMBER, "4"),
        Box("CRC of each sample", "4 bytes each", 140, CHECK, "12"),
        Box("offset of each sample", "8 bytes each", 160, NUMBER, "12 + 4n"),
        Box("sample 0", "", 90, DATA, "12 + 12n"),
        Box("sample 1", "", 120),
        Box("…", "", 40),
        Box("sample n - 1", "", 90),
    ]
    crc, n, _, offsets, first, second, _, last = drawing.row(64, boxes)
    drawing.brace(n.left, offsets.right, 112, "the CRC-32 at byte 0 is of these bytes")
    drawing.arrow((n.left + 2, 118), (crc.middle, 118), (crc.middle, 110))
    for place, height in ((first, 40), (second, 30), (last, 20)):
        start = offsets.right - 90 + height
        drawing.arrow((start, 64), (start, height), (place.middle, height), (place.middle, 62))
    drawing.text(last.right, 124, "end of the file", "small", "end")
    below = "a sample ends where the next one begins, the last one where the file ends"
    drawing.text(last.right, 152, below, "small", "end")
    return drawing


def folder() -> Drawing:
    drawing = Drawing("A packed folder", 300)
    drawing.text(MARGIN, 24, "an FFRecord file", "title", "start")
    boxes = [
        Box("header, table", "", 110, HEADER),
        Box("sample 0", "bytes of cat.txt", 130),
        Box("sample 1", "bytes of dogs/rex.txt", 150),
        Box("sample 2, the last", "the listing", 370, NUMBER),
    ]
    _, cat, rex, listing = drawing.row(38, boxes)
    drawing.zoom(listing, 430, WIDTH - MARGIN, 118)
    boxes = [Box("piouhjgbr", "9 bytes", 100, HEADER), Box("pickle", "nested OrderedDicts", 250, NUMBER)]
    drawing.row(118, boxes, left=430)
    drawing.text(430, 192, "what the pickle holds", "title", "start")
    inner = drawing.row(206, [Box("rex.txt", "", 80, SPARE), Box("1", "", 40, NUMBER)], left=600, height=30)
    boxes = [
        Box("cat.txt", "", 80, SPARE),
        Box("0", "", 40, NUMBER),
        Box("dogs", "", 80, SPARE),
        Box("a dict", "", 80, NUMBER),
    ]
    outer = drawing.row(254, boxes, left=430, height=30)
    drawing.arrow((outer[3].middle, 254), (outer[3].middle, 238))
    drawing.arrow((inner[0].left, 221), (rex.middle, 221), (rex.middle, 84), dashed=True)
    drawing.arrow((outer[0].left, 269), (cat.middle, 269), (cat.middle, 84), dashed=True)
    return drawing


def recordio() -> Drawing:
    drawing = Drawing("A RecordIO file", 306)
    drawing.text(MARGIN, 24, "the file", "title", "start")
    chunks = [Box(name, "", 190, HEADER) for name in ("chunk 0", "chunk 1", "chunk 2", "…")]
    places = drawing.row(36, chunks, end="end of the file")
    drawing.zoom(places[1], MARGIN, WIDTH - MARGIN, 130)
    drawing.text(MARGIN, 108, "a chunk", "title", "start")
    boxes = [
        Box("04 03 02 01", "magic number, 4", 110, HEADER, "0"),
        Box("CRC-32", "4 bytes", 80, CHECK, "4"),
        Box("codec", "4 bytes", 80, NUMBER, "8"),
        Box("size", "4 bytes", 80, NUMBER, "12"),
        Box("records", "4 bytes", 80, NUMBER, "16"),
        Box("payload", "size bytes, may be compressed", 330, DATA, "20"),
    ]
    _, crc, *_, payload = drawing.row(130, boxes, end="20 + size")
    drawing.arrow((payload.left + 24, 176), (payload.left + 24, 190), (crc.middle, 190), (crc.middle, 176))
    drawing.text((crc.middle + payload.left) / 2, 205, "CRC-32 of the payload as it is stored", "small")
    drawing.zoom(Place(payload.left + 50, payload.right, 0, payload.bottom), 200, WIDTH - MARGIN, 238)
    drawing.text(200, 230, "the payload, decompressed", "title", "start")
    boxes = [
        Box("length", "4 bytes", 70, NUMBER),
        Box("record 0", "length bytes", 150),
        Box("length", "4 bytes", 70, NUMBER),
        Box("record 1", "length bytes", 210),
        Box("…", "", 80),
    ]
    drawing.row(244, boxes, left=200)
    return drawing


def index() -> Drawing:
    drawing = Drawing("An index file", 176)
    boxes = [
        Box("anyr-idx", "8 bytes", 76, HEADER),
        Box("1", "version", 54, HEADER),
        Box("l", "1 byte", 50, NUMBER),
        Box("recordio", "format, l bytes", 96, HEADER),
        Box("detail", "1 byte", 56, NUMBER),
        Box("numbers", "1 byte", 66, NUMBER),
        Box("data size", "varint", 74, NUMBER),
        Box("entries", "varint", 66, NUMBER),
        Box("all entries", "", 150, DATA),
        Box("CRC-32", "4 bytes", 72, CHECK),
    ]
    places = drawing.row(24, boxes)
    drawing.zoom(places[8], 130, WIDTH - MARGIN, 118)
    boxes = []
    for distance, records in (("0", "2"), ("36", "1"), ("29", "2")):
        boxes += [Box(distance, "distance", 110, NUMBER), Box(records, "records", 80, NUMBER)]
    entries = drawing.row(118, [*boxes, Box("…", "", 80, NUMBER)], left=130)
    drawing.text(118, 138, "entries of", "small", "end")
    drawing.text(118, 152, "chunks", "small", "end")
    for entry, offset in ((0, "at byte 0"), (2, "at byte 36"), (4, "at byte 65")):
        drawing.text(entries[entry].left + 4, 112, offset, "small", "start")
    return drawing


def blocks(drawing: Drawing, y: float, height: float, lefts: list[float]) -> None:
    """Block headers across a row, with the offset of each."""
    for number, left in enumerate(lefts):
        drawing.row(y, [Box("", "", 12, DARK)], left=left, height=height)
        label = "0" if number == 0 else f"{number * 65536:,}"
        drawing.text(left, y - 6, label, "small", "start" if number == 0 else "middle")


def riegeli() -> Drawing:
    drawing = Drawing("A Riegeli file", 196)
    drawing.text(MARGIN, 26, "chunks, and a block header at every multiple of 65,536", "title", "start")
    boxes = [
        Box("", "", 50, HEADER),
        Box("chunk r", "", 92, DATA),
        Box("", "", 128, DATA),
        Box("", "", 230, DATA),
        Box("p", "padding", 52, SPARE),
        Box("", "", 208, DATA),
    ]
    places = drawing.row(56, boxes)
    blocks(drawing, 56, HEIGHT, [MARGIN, 204, 388, 572])
    for x, name in ((51, "s"), (253, "chunk r"), (339, "chunk r"), (460, "it goes on"), (682, "chunk r")):
        drawing.text(x, 83, name)
    drawing.zoom(places[1], MARGIN, WIDTH - MARGIN, 140)
    boxes = [
        Box("hash", "8 bytes", 80, CHECK, "0"),
        Box("data_size", "8 bytes", 90, NUMBER, "8"),
        Box("hash of data", "8 bytes", 100, CHECK, "16"),
        Box("type", "1 byte", 60, HEADER, "24"),
        Box("num_records", "7 bytes", 100, NUMBER, "25"),
        Box("decoded_size", "8 bytes", 110, NUMBER, "32"),
        Box("data", "data_size bytes", 220, DATA, "40"),
    ]
    drawing.row(140, boxes)
    return drawing


def riegeli_block() -> Drawing:
    drawing = Drawing("A chunk that a block header interrupts", 214)
    boxes = [
        Box("chunk header", "40 bytes", 120, HEADER),
        Box("data", "first part", 200, DATA),
        Box("block header", "24 bytes", 110, DARK),
        Box("data", "second part", 150, DATA),
        Box("next chunk", "", 120, SPARE),
    ]
    header, _, block, data, _ = drawing.row(72, boxes, left=50)
    drawing.text(header.left, 62, "chunk begins", "small", "middle")
    drawing.text(block.left, 62, "multiple of 65,536", "small", "middle")
    drawing.text(data.right, 62, "chunk ends", "small", "middle")
    drawing.parts.append(f'<path d="M{block.left} 36 V54" stroke="#4a5866" stroke-dasharray="3 3"/>')
    drawing.arrow((block.left, 34), (header.left, 34))
    drawing.text((block.left + header.left) / 2, 28, "previous", "small")
    drawing.arrow((block.left, 34), (data.right, 34))
    drawing.text((block.left + data.right) / 2, 28, "next", "small")
    drawing.zoom(block, 240, 620, 150)
    boxes = [
        Box("hash", "8 bytes", 120, CHECK, "0"),
        Box("previous", "8 bytes", 130, NUMBER, "8"),
        Box("next", "8 bytes", 130, NUMBER, "16"),
    ]
    drawing.row(154, boxes, left=240)
    return drawing


def riegeli_simple() -> Drawing:
    drawing = Drawing("The data of a simple chunk", 232)
    boxes = [
        Box("chunk header", "40 bytes", 120, HEADER),
        Box("codec", "1 byte", 70, NUMBER),
        Box("length", "varint", 80, NUMBER),
        Box("sizes of records", "length bytes", 170, DATA),
        Box("records", "the rest", 320, DATA),
    ]
    _, codec, _, sizes, values = drawing.row(24, boxes)
    drawing.brace(codec.left, values.right, 72, "the data: data_size bytes, one hash")
    drawing.zoom(sizes._replace(bottom=96), MARGIN, 360, 128)
    drawing.zoom(values._replace(bottom=96), 400, WIDTH - MARGIN, 128)
    drawing.text(MARGIN, 124, "decompressed", "small", "start")
    drawing.row(132, [Box("5", "varint", 110, NUMBER), Box("3", "varint", 110, NUMBER), Box("…", "", 120, NUMBER)])
    drawing.row(132, [Box("hello", "record 0", 150), Box("abc", "record 1", 110), Box("…", "", 120)], left=400)
    below = "a compressed part: its size as a varint, and then what the codec made; with codec 0 just the bytes"
    drawing.text(WIDTH / 2, 204, below, "small")
    return drawing


def array_record() -> Drawing:
    drawing = Drawing("An ArrayRecord file", 214)
    boxes = [
        Box("s", "signature", 70, HEADER),
        Box("chunk 0", "group_size records", 122),
        Box("chunk 1", "group_size records", 122),
        Box("chunk 2", "the rest", 90),
        Box("footer", "list of chunks", 96, NUMBER),
        Box("p", "padding", 70, SPARE),
        Box("postscript", "", 84, NUMBER),
        Box("p", "padding", 106, SPARE),
    ]
    _, one, two, three, footer, _, postscript, last = drawing.row(92, boxes)
    for place, height in ((one, 36), (two, 48), (three, 60)):
        start = footer.left + 20 + (60 - height)
        drawing.arrow((start, 92), (start, height), (place.left + 14, height), (place.left + 14, 90))
    drawing.text((one.left + footer.left) / 2, 30, "chunk_offset of each chunk", "small")
    drawing.arrow((postscript.middle, 136), (postscript.middle, 160), (footer.left + 12, 160), (footer.left + 12, 138))
    drawing.text((postscript.middle + footer.left) / 2, 176, "footer_offset", "small")
    drawing.parts.append(f'<path d="M{postscript.left} 56 V148" stroke="#1b2733" stroke-dasharray="3 3"/>')
    drawing.text(postscript.left + 4, 52, "multiple of 65,536", "small", "start")
    drawing.text(postscript.left + 4, 66, "65,536 before the end", "small", "start")
    drawing.text(last.right, 86, "end", "small", "end")
    below = "block headers, every 65,536 bytes, are not shown; the postscript begins with one"
    drawing.text(MARGIN, 202, below, "small", "start")
    return drawing


def transposed() -> Drawing:
    drawing = Drawing("A transposed chunk", 330)
    drawing.text(MARGIN, 24, "the data of the chunk", "title", "start")
    boxes = [
        Box("codec", "1 byte", 60, NUMBER),
        Box("length", "varint", 70, NUMBER),
        Box("header", "states, sizes", 150, HEADER),
        Box("bucket 0", "numbers", 130),
        Box("bucket 1", "texts", 190),
        Box("transitions", "the rest", 160, NUMBER),
    ]
    _, _, _, first, second, _ = drawing.row(36, boxes)
    drawing.text(MARGIN, 124, "buffers: the values of each field, the last value first", "title", "start")
    boxes = [Box("9 · 8 · 7", "numbers of field 1", 170), Box("c · b · a", "texts of field 2", 170)]
    one, two = drawing.row(134, boxes, left=300)
    drawing.zoom(first, one.left, one.right, 134)
    drawing.zoom(second, two.left, two.right, 134)
    drawing.text(MARGIN, 214, "states: each writes in front of what is there", "title", "start")
    names = (("text", "field 2"), ("number", "field 1"), ("begin", "of the message"))
    states = []
    for number, (name, below) in enumerate(names):
        states += drawing.row(226, [Box(name, below, 110, HEADER)], left=40 + 160 * number)
    for a, b in pairwise(states):
        drawing.arrow((a.right, 248), (b.left - 1, 248))
    drawing.arrow((states[2].middle, 270), (states[2].middle, 288), (states[0].middle, 288), (states[0].middle, 272))
    drawing.text(255, 304, "then the record before it, until no transition is left", "small")
    out = drawing.row(226, [Box(value, "", 24) for value in "7a8b9c"], left=590, height=30)
    drawing.text(out[0].left, 218, "the records", "small", "start")
    drawing.arrow((out[5].right, 272), (out[0].left, 272))
    drawing.text((out[0].left + out[5].right) / 2, 290, "written from back to front", "small")
    return drawing


def drawings() -> Iterator[tuple[str, Drawing]]:
    """All drawings, with the names of their files."""
    made = (array_record, ffrecord, folder, index, recordio, riegeli, riegeli_block, riegeli_simple, tfrecord)
    for draw in made:
        name = draw.__name__ if draw is array_record else draw.__name__.replace("_", "-")
        yield f"format-{name}.svg", draw()
    yield "format-riegeli-transposed.svg", transposed()


if __name__ == "__main__":
    for file, drawing in drawings():
        (Path(__file__).parent.parent / "images" / file).write_text(drawing.svg(), encoding="utf-8")
