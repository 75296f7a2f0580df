"""What a notebook shows of records, `info` and reports."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from html.parser import HTMLParser
from pathlib import Path

import anyrecord
import pytest
from anyrecord import _notebook
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_kinds import jpeg, png

TAGS = {"div", "table", "tr", "th", "td", "b", "span", "code", "img"}


class Shown(HTMLParser):
    """The text that a browser shows, and the pictures. Fails on anything that we do not write."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.pictures: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= {"style", "src", "alt"}
        if tag == "img":
            source = dict(attrs)["src"]
            assert source
            assert source.startswith(("data:image/png;base64,", "data:image/jpeg;base64,"))
            self.pictures.append(source)
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError("a declaration")

    @property
    def text(self) -> str:
        return "|".join(self.texts)


def written(records: list[bytes], path: str = "a.ffr") -> anyrecord.Records:
    with anyrecord.create(path, overwrite=True) as out:
        out.write_many(records)
    return anyrecord.open(path)


def test_records_show_what_they_are() -> None:
    records = written([b"a cat", b'{"label": 7}', png(), b"\xff\x00", b"", b"sixth"])
    shown = Shown(records._repr_html_())
    assert shown.text == (
        "Records|: 6 records, ffrecord, 1 file (|a.ffr|)|bytes|kind|preview"
        '|0|5|text|a cat|1|12|json|{"label": 7}|2|53|png| |640 x 480, RGB|3|2|bytes|ff 00|4|0|empty|and 1 more'
    )
    assert len(shown.pictures) == 1


def test_views_show_their_own_order() -> None:
    records = written([b"record %d" % i for i in range(100)])
    shown = Shown(records.shuffle(seed=1)[10:13]._repr_html_()).text
    assert "3 records" in shown
    assert all(record.decode() in shown for record in records.shuffle(seed=1)[10:13])


def test_closed_and_empty_records_are_shown() -> None:
    records = written([])
    assert Shown(records._repr_html_()).text.endswith("|no records")
    records = written([b"x"])
    records.close()
    assert Shown(records._repr_html_()).text.endswith("|closed")


def test_records_whose_file_is_gone_are_shown() -> None:
    records = pickle.loads(pickle.dumps(written([b"x"])))
    Path("a.ffr").unlink()
    assert "FileNotFoundError" in Shown(records._repr_html_()).text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.text("<>&\"'/=! scriptimg", max_size=40).map(str.encode), max_size=6))
def test_nothing_in_a_record_becomes_html(records: list[bytes]) -> None:
    Shown(written(records)._repr_html_())


def test_nothing_in_a_name_becomes_html() -> None:
    name = "<img src=x onerror=alert(1)>'\"&\x1b[1m\n" + "x" * 150 + ".ffr"
    shown = Shown(written([b"x"], name)._repr_html_())
    assert "<img src=x onerror=alert(1)>'\"&\\x1b[1m\\n" in shown.text
    assert "<img src=x" in Shown(anyrecord.info(Path(name))._repr_html_()).text
    assert "<img src=x" in Shown(anyrecord.verify(Path(name))._repr_html_()).text
    odd = os.fsdecode(b"\xff.ffr")
    assert r"\udcff" in Shown(written([b"x"], odd)._repr_html_()).text


def test_only_small_and_valid_pictures_are_shown() -> None:
    pictures = {
        "small": (jpeg(), True),
        "large": (jpeg() + bytes(_notebook._PICTURE_BYTES), False),
        "claims too many pixels": (png(100_000, 100_000), False),
        "damaged": (png()[:20] + b"\1" + png()[21:], False),
        "not a picture": (b"\x89PNG", False),
        "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", False),
    }
    for name, (record, is_shown) in pictures.items():
        assert len(Shown(written([record])._repr_html_()).pictures) == is_shown, name
    large = png() + bytes(_notebook._PICTURE_BYTES - 100)
    assert len(Shown(written([large] * 5)._repr_html_()).pictures) == 2


def test_damage_is_shown_where_it_is() -> None:
    written([b"one", b"two", b"three"])
    data = bytearray(Path("a.ffr").read_bytes())
    data[data.index(b"two")] ^= 1
    Path("a.ffr").write_bytes(data)
    for on_error in ("raise", "skip", "replace"):
        records = anyrecord.open("a.ffr", on_error=on_error)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shown = Shown(records._repr_html_()).text
        assert "|1|3|damaged|ChecksumError: sample checksum mismatch in a.ffr at byte" in shown
        assert "|one|" in shown
        assert "|three" in shown
        assert caught == []
        assert records.skipped == []


@pytest.mark.parametrize("suffix", ["ffr", "array_record", "recordio", "tfrecord"])
def test_large_records_are_not_read(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_notebook, "_LOCAL_BYTES", 10_000)
    records = written([b"small", os.urandom(100_000), b"small"] * 3, f"a.{suffix}")
    before = records.stats().bytes
    shown = Shown(records._repr_html_()).text
    assert "too large to be read here" in shown
    assert records.stats().bytes - before < 20_000


def test_info_shows_facts_files_and_records() -> None:
    with anyrecord.create("a.array_record", shards=12) as out:
        out.write_many([b"x" * 1000] * 12)
    shown = Shown(anyrecord.info("a.array_record@12")._repr_html_()).text
    for part in (
        "records|12|",
        "files|12|",
        "codec|zstd|",
        "decoded bytes|12,000 (",
        "and 2 more files",
        "|0|1,000|text|xxx",
    ):
        assert part in shown
    assert "The first records of |a-00000-of-00012.array_record|:" in shown
    file = anyrecord.info("a.array_record@12").files[3]
    assert "a-00003-of-00012.array_record" in Shown(file._repr_html_()).text


def test_info_without_its_file_shows_facts_alone() -> None:
    written([b"first", b"second"])
    about = anyrecord.info("a.ffr")
    in_memory = anyrecord.info(Path("a.ffr").read_bytes())
    written([b"other records"])
    assert "first" not in about._repr_html_()
    assert "other" not in about._repr_html_()
    Path("a.ffr").unlink()
    for gone in (about, in_memory):
        assert "records|2|" in Shown(gone._repr_html_()).text
        assert "preview" not in Shown(gone._repr_html_()).text


def test_info_of_a_name_that_looks_like_a_pattern_shows_that_file() -> None:
    written([b"right"], "a[0-1].ffr")
    written([b"wrong"], "a0.ffr")
    assert "|right" in Shown(anyrecord.info(Path("a[0-1].ffr"))._repr_html_()).text


def test_a_report_shows_problems() -> None:
    written([b"record %d" % i for i in range(50)])
    assert "ok|, every byte is accounted for" in Shown(anyrecord.verify("a.ffr")._repr_html_()).text
    data = bytearray(Path("a.ffr").read_bytes())
    for number in range(20):
        data[data.index(b"record %d" % (2 * number + 10))] ^= 1
    shown = Shown(anyrecord.verify(bytes(data))._repr_html_()).text
    assert "20 problems" in shown
    assert shown.count("ChecksumError") == 10
    assert "and 10 more" in shown


def test_what_is_shown_is_small() -> None:
    records = written([json.dumps({"x": "y" * 1_000_000}).encode()] * 5)
    assert len(records._repr_html_()) < 10_000
