"""The programs on the format pages: they run, they read files that the originals wrote, and they see damage.

Each page holds a whole reader, made from the facts on that page and the standard library. So these tests are about the
pages: a fact that is wrong or missing makes a program fail.
"""

from __future__ import annotations

import json
import re
import runpy
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import anyrecord
import pytest
from golden.digests import digest
from golden.test_array_record import FILES, made
from pages.blocks import blocks

DOCS = Path(__file__).parent.parent / "docs"
GOLDEN = Path(__file__).parent / "golden"
PAGES = sorted(page.name for page in DOCS.glob("format-*.md"))
DAMAGE = (ValueError, EOFError, OSError, zlib.error)
"""How the programs refuse a file: gzip and zlib of the standard library have errors of their own."""

UNDETECTABLE = {"none_trunc_boundary.recordio", "snappy_trunc_boundary.recordio"}
"""Cut exactly between two chunks."""
HARMLESS = {"corrupt_signature_zeroed.array_record"}
"""Damage where no reader of records looks."""

Program = dict[str, Any]


def run(page: str) -> Program:
    """What the code blocks of a page define. All blocks run, in order, in one namespace."""
    text = (DOCS / page).read_text(encoding="utf-8")
    names: Program = {"__name__": "__main__"}
    for block in blocks(text):
        if block.language in {"python", "hidden"}:
            exec(compile("\n" * (block.line - 1) + block.code, str(DOCS / page), "exec"), names)
    return names


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """The programs of the pages, each run once."""
    done: dict[str, Program] = {}

    def named(name: str) -> Program:
        if name not in done:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(tmp_path_factory.mktemp("page"))
                done[name] = run(f"format-{name}.md")
        return done[name]

    return named


def entries(folder: str, *kinds: str) -> list[Any]:
    """The files of a folder of golden files that are of one of these kinds."""
    found = json.loads((GOLDEN / folder / "manifest.json").read_text())["files"]
    return [pytest.param(entry, id=entry["file"]) for entry in found if entry["kind"] in kinds]


@pytest.mark.parametrize("page", PAGES)
def test_the_program_on_the_page_runs_and_reads_and_writes_what_anyrecord_does(page: str) -> None:
    names = run(page)
    assert any(name.startswith(("read", "simple_records")) for name in names)


def test_every_format_has_a_page_that_the_overview_links_to() -> None:
    overview = (DOCS / "formats.md").read_text(encoding="utf-8")
    assert [page for page in PAGES if f"]({page}" not in overview] == []


def test_every_page_has_a_drawing_and_drawings_are_those_of_the_script() -> None:
    drawn = {name: drawing.svg() for name, drawing in runpy.run_path(str(DOCS / "_site" / "drawings.py"))["drawings"]()}
    assert {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("images/format-*.svg")} == drawn, (
        "run python docs/_site/drawings.py"
    )
    shown = {
        page: re.findall(r"\]\(images/([\w-]+\.svg)\)", (DOCS / page).read_text(encoding="utf-8")) for page in PAGES
    }
    assert all(shown.values())
    assert sorted(name for names in shown.values() for name in names) == sorted(drawn)
    for svg in drawn.values():
        assert ElementTree.fromstring(svg).find("{http://www.w3.org/2000/svg}text") is not None


@pytest.mark.parametrize("entry", entries("tfrecord", "valid"))
def test_tfrecord_files_of_tensorflow(entry: Program, program: Callable[[str], Program]) -> None:
    assert digest(program("tfrecord")["read"](GOLDEN / "tfrecord" / entry["file"])) == entry["records_sha256"]


@pytest.mark.parametrize("entry", entries("tfrecord", "corrupt"))
def test_damaged_tfrecord_files(entry: Program, program: Callable[[str], Program]) -> None:
    with pytest.raises(DAMAGE):
        program("tfrecord")["read"](GOLDEN / "tfrecord" / entry["file"])


@pytest.mark.parametrize("entry", entries("ffrecord", "valid", "valid-odd", "old", "packed"))
def test_ffrecord_files_of_the_original(entry: Program, program: Callable[[str], Program]) -> None:
    assert digest(program("ffrecord")["read"](GOLDEN / "ffrecord" / entry["file"])) == entry["records_sha256"]


@pytest.mark.parametrize("entry", entries("ffrecord", "corrupt"))
def test_damaged_ffrecord_files(entry: Program, program: Callable[[str], Program]) -> None:
    with pytest.raises(DAMAGE):
        program("ffrecord")["read"](GOLDEN / "ffrecord" / entry["file"])


@pytest.mark.parametrize("entry", entries("ffrecord", "packed"))
def test_packed_folders_of_the_original(entry: Program, program: Callable[[str], Program]) -> None:
    path = GOLDEN / "ffrecord" / entry["file"]
    found = program("ffrecord")["read_folder"](path)
    assert len(found) == entry["num_files"]
    assert found == dict(anyrecord.Folder(path))


@pytest.mark.parametrize("entry", entries("ffrecord", "packed-odd", "packed-hostile"))
def test_packed_folders_to_refuse(entry: Program, program: Callable[[str], Program]) -> None:
    with pytest.raises(ValueError):
        program("ffrecord")["read_folder"](GOLDEN / "ffrecord" / entry["file"])


@pytest.mark.parametrize("entry", entries("recordio", "valid", "valid-odd", "old-framing"))
def test_recordio_files_of_the_original(entry: Program, program: Callable[[str], Program]) -> None:
    assert digest(program("recordio")["read"](GOLDEN / "recordio" / entry["file"])) == entry["records_sha256"]


@pytest.mark.parametrize("entry", entries("recordio", "corrupt"))
def test_damaged_recordio_files(entry: Program, program: Callable[[str], Program]) -> None:
    path = GOLDEN / "recordio" / entry["file"]
    if entry["file"] in UNDETECTABLE:
        assert program("recordio")["read"](path) == list(anyrecord.open(path))
        return
    with pytest.raises(DAMAGE):
        program("recordio")["read"](path)


@pytest.mark.parametrize("entry", entries("recordio", "valid"))
def test_the_index_has_the_chunks_of_the_file(
    entry: Program, program: Callable[[str], Program], tmp_path: Path
) -> None:
    data = (GOLDEN / "recordio" / entry["file"]).read_bytes()
    (tmp_path / "data.recordio").write_bytes(data)
    anyrecord.build_index(tmp_path / "data.recordio")
    names = program("index")
    index = (tmp_path / ".data.recordio.index").read_bytes()
    detail, found = names["read_index"](index, "recordio", len(data))
    assert found == [(chunk["offset"], chunk["num_records"]) for chunk in entry["chunks"]]
    assert names["write_index"]("recordio", len(data), detail, found, numbers=2 if found else 1) == index
    for at in range(len(index)):
        damaged = bytearray(index)
        damaged[at] ^= 1
        assert names["read_index"](bytes(damaged), "recordio", len(data)) is None


def array_record_reader(program: Callable[[str], Program]) -> Callable[[Path], list[bytes]]:
    """The reader of the page on ArrayRecord, with what other pages say of snappy and of transposed chunks."""
    names, transposed = program("array_record"), program("riegeli-transposed")["transposed_records"]
    names["DECODERS"]["t"] = transposed
    for function in (names["read_chunk"], transposed.__globals__["decompress"]):
        function.__globals__["CODECS"][ord("s")] = program("recordio")["snappy_block"]
    read: Callable[[Path], list[bytes]] = names["read"]
    return read


def compressed_by_a_library(entry: Program) -> bool:
    options = entry.get("options_string_in_footer") or ""
    return "zstd" in options or "brotli" in options


@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, id=entry["file"]) for entry in FILES if entry["status"] in ("valid", "crafted")],
)
def test_array_record_files_of_the_original(entry: Program, program: Callable[[str], Program]) -> None:
    read, path = array_record_reader(program), GOLDEN / "array_record" / entry["file"]
    if compressed_by_a_library(entry):
        # The standard library has no zstd and no brotli. All up to there is checked: every chunk and block header.
        kinds = "".join(kind for _, (kind, *_) in program("riegeli")["chunks"](path.read_bytes()))
        assert kinds.startswith("s")
        assert kinds.count("r") + kinds.count("t") == entry["num_chunks"] + 2
        with pytest.raises(NotImplementedError):
            read(path)
    elif entry.get("num_records") is None:
        with pytest.raises(DAMAGE):
            read(path)
    else:
        assert digest(read(path)) == entry["records_sha256"]


@pytest.mark.parametrize(
    "entry", [pytest.param(entry, id=entry["file"]) for entry in FILES if entry["status"] == "corrupt"]
)
def test_damaged_array_record_files(entry: Program, program: Callable[[str], Program], tmp_path: Path) -> None:
    read, path = array_record_reader(program), tmp_path / "file"
    path.write_bytes(made(entry))
    if entry["file"] in HARMLESS:
        assert read(path) == read(GOLDEN / "array_record" / entry["base"])
        return
    with pytest.raises(DAMAGE):
        read(path)


@pytest.mark.parametrize("past", [0, 1, 24, 25])
def test_a_chunk_with_a_byte_for_each_record_ends_where_the_page_says(
    past: int, program: Callable[[str], Program], tmp_path: Path
) -> None:
    num_records = 65536 - 64 + past  # empty records that compress to almost nothing, up to `past` bytes into a block
    with anyrecord.create(tmp_path / "file.array_record", codec="zstd", group_size=num_records) as out:
        out.write_many([b""] * num_records)
    data = (tmp_path / "file.array_record").read_bytes()
    begins = [begin for begin, _ in program("riegeli")["chunks"](data)]
    assert begins[:3] == [0, 64, 65536 + (25 if 1 <= past <= 24 else past)]
