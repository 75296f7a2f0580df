"""Listings that no honest writer makes: each is refused at open, nothing runs, nothing is written."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyrecord
import pytest
from anyrecord._listing import Listing

from folder.listings import CLASS, HOSTILE, NEW, UNSAFE_TO_UNPACK, deep, file, folder, name, tree

PackWith = Callable[..., Path]


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_listings_are_refused_and_nothing_runs(case: str, pack_with: PackWith, tmp_path: Path) -> None:
    path = pack_with(HOSTILE[case])
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(anyrecord.FormatError) as caught:
        anyrecord.Folder(path)
    assert sorted(os.listdir(tmp_path)) == before
    assert caught.value.path == str(path)
    assert caught.value.record == 2
    assert caught.value.offset is not None
    assert caught.value.expected
    assert caught.value.found
    assert str(path) in str(caught.value)


def test_the_same_pieces_make_a_listing_that_is_read(pack_with: PackWith) -> None:
    listing = tree(file("a", 1), name("d") + folder(file("b", 0)), name("e") + NEW)
    assert pickle.loads(listing) == OrderedDict(a=1, d=OrderedDict(b=0), e=OrderedDict())
    assert dict(anyrecord.Folder(pack_with(listing))) == {"a": b"y", "d/b": b"x"}
    assert len(anyrecord.Folder(pack_with(deep(64)))) == 1
    assert list(anyrecord.Folder(pack_with(tree(file("n" * 255))))) == ["n" * 255]


def test_a_huge_memo_number_takes_no_memory(pack_with: PackWith) -> None:
    path = pack_with(b"\x80\x04" + NEW + b"r\xff\xff\xff\xff.")
    tracemalloc.start()
    with anyrecord.Folder(path) as packed:
        assert list(packed) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_offset_points_at_the_opcode(pack_with: PackWith) -> None:
    listing = b"\x80\x04" + NEW + b"}."
    path = pack_with(listing)
    with pytest.raises(anyrecord.FormatError) as caught:
        anyrecord.Folder(path)
    offset = caught.value.offset
    assert offset is not None
    assert path.read_bytes()[offset:] == b"}."


@pytest.mark.parametrize("protocol", range(6))
def test_every_cut_and_every_changed_byte_is_refused_or_read(protocol: int) -> None:
    def parse(listing: bytes) -> Listing:
        return Listing.parse(b"piouhjgbr" + listing, path="x.ffr", number=2, offset=0)

    good = pickle.dumps(OrderedDict(a=0, d=OrderedDict(b=1), e=OrderedDict()), protocol=protocol)
    assert parse(good).tree == {"a": 0, "d": {"b": 1}, "e": {}}
    broken = [good[:end] for end in range(len(good))]
    broken += [good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :] for at in range(len(good)) for bit in range(1, 256)]
    opened = 0
    for listing in broken:
        try:
            found = parse(listing)
        except anyrecord.FormatError:
            continue
        opened += 1
        assert found.num_files <= 2
    assert opened < len(broken) / 2


def test_a_listing_cannot_take_much_more_memory_than_it_has_bytes(pack_with: PackWith) -> None:
    empty_folders = b"\x80\x04" + CLASS + b"q\x00)R(" + b"".join(b"\x8c\x04%04xh\x00)R" % i for i in range(20_000))
    path = pack_with(empty_folders + b"u.")
    tracemalloc.start()
    folder = anyrecord.Folder(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(folder.list()) == 20_000
    assert peak < 64 * path.stat().st_size


def test_golden_hostile_files_are_refused(golden: Path) -> None:
    for stem in ("packed_hostile", "packed_hostile2", "packed_pydict", "packed_badindex", "packed_badmagic", "basic"):
        with pytest.raises(anyrecord.FormatError):
            anyrecord.Folder(golden / "ffrecord" / f"{stem}.ffr")
    for stem in ("n0", "one"):
        with pytest.raises(anyrecord.FormatError, match="not a packed folder"):
            anyrecord.Folder(golden / "ffrecord" / f"{stem}.ffr")


@pytest.mark.parametrize("case", UNSAFE_TO_UNPACK)
def test_unsafe_names_are_refused_before_the_first_write(case: str, pack_with: PackWith, tmp_path: Path) -> None:
    path = pack_with(pickle.dumps(UNSAFE_TO_UNPACK[case]))
    with anyrecord.Folder(path) as folder:
        assert all(folder[name] in (b"x", b"y") for name in folder)  # reading is safe
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(anyrecord.FormatError, match="not safe to unpack") as caught:
            folder.unpack(tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == before
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "bad", ["a\\b", "..\\..\\evil", "con", "NUL.txt", "com1.log", "ab:stream", "a.", "a ", "a*", "tab\t", "lpt¹"]
)
def test_names_that_windows_reads_differently_are_refused_there(bad: str) -> None:
    from anyrecord._unpacking import check_names

    check = partial(check_names, {"d": {bad: 0}}, "x.ffr")
    check(windows=False)
    with pytest.raises(anyrecord.FormatError, match="Windows"):
        check(windows=True)


@pytest.mark.parametrize("good", ["console", "a.b", ".hidden", "com10", "nulls", "a b", "日本"])
def test_ordinary_names_are_fine_on_windows(good: str) -> None:
    from anyrecord._unpacking import check_names

    check_names({"d": {good: 0}}, "x.ffr", windows=True)
