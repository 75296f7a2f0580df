"""`Index` and `load_index`, call by call."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat.recordio import Index, Scanner, load_index, new_scanner, new_writer

MANIFEST = json.loads((Path(__file__).parents[2] / "golden" / "recordio" / "manifest.json").read_text())
VALID = [file for file in MANIFEST["files"] if file["kind"] in ("valid", "valid-odd", "old-framing")]


def write(path: str, records: list[bytes], chunk: int = -1) -> str:
    with open(path, "wb") as file:
        writer = new_writer(file, chunk)
        for record in records:
            writer.write(record)
        writer.close()
    return path


@pytest.mark.parametrize("about", VALID, ids=lambda about: about["file"])
def test_counts_and_places_are_the_originals(golden: Path, about: dict[str, Any]) -> None:
    path = golden / "recordio" / about["file"]
    told = about["real_go_library"]["LoadIndex"]
    with open(path, "rb") as file:
        for index in (Index(str(path)), load_index(file)):
            assert index.num_records() == told["num_records"] == about["n"]
            assert index.num_chunks() == told["num_chunks"]
            n = index.num_records()
            found = [list(index.locate(i)) for i in (0, n // 2, n - 1, n)]
            assert found == told["locate(-1,0,n/2,n-1,n)"][1:]


def test_out_of_range_is_minus_one_also_below_zero() -> None:
    index = Index(write("a.recordio", [b"x"]))
    assert [index.locate(i) for i in (-1, 1, 1 << 70)] == [(-1, -1)] * 3
    assert Index(write("empty.recordio", [])).locate(-1) == (-1, -1)


def test_types_of_results() -> None:
    index = Index(write("a.recordio", [b"x"]))
    assert type(index.num_records()) is int
    assert type(index.locate(0)) is tuple
    with pytest.raises(TypeError):
        index.locate("0")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["missing.recordio", "", "a\0b", "folder", "*.recordio", "a.recordio[0:1]"])
def test_what_cannot_be_read_is_a_runtime_error_with_the_reason(path: str) -> None:
    os.mkdir("folder")
    write("a.recordio", [b"x"])
    for kind in (Index, Scanner):
        with pytest.raises(RuntimeError) as error:
            kind(path)
        first, reason = str(error.value).split("\n", 1)
        assert first == f"Failed to read index from recordio file: {path}"
        assert reason


def test_a_file_whose_name_looks_like_a_pattern_is_read() -> None:
    assert Index(write("a[0:1].recordio", [b"x"])).num_records() == 1


@pytest.mark.parametrize("name", ["none_bad_magic_first", "none_bad_magic_mid", "none_trailing", "none_size_plus1"])
def test_garbage_is_refused_with_the_originals_line(golden: Path, name: str) -> None:
    path = golden / "recordio" / f"{name}.recordio"
    with open(path, "rb") as file, pytest.raises(RuntimeError, match=r"^Failed to parse magic number\n") as error:
        load_index(file)
    assert isinstance(error.value, anyrecord.FormatError)
    assert error.value.offset is not None
    with pytest.raises(RuntimeError, match=r"^Failed to read index from recordio file: "):
        Index(str(path))


@pytest.mark.parametrize("cut", [2, 4, 10, 17, 20])
def test_a_cut_header_is_refused(golden: Path, cut: int) -> None:
    path = golden / "recordio" / f"none_trunc_header_{cut}.recordio"
    with pytest.raises(RuntimeError) as error:
        Index(str(path))
    assert isinstance(error.value, anyrecord.TruncatedError)
    with open(path, "rb") as file, pytest.raises(RuntimeError, match=r"^Failed to load index\n"):
        load_index(file)


@pytest.mark.parametrize("name", ["none_size_max", "none_numrec_zero", "none_trunc_payload", "none_bad_compressor"])
def test_what_the_original_loses_silently_is_refused(golden: Path, name: str) -> None:
    with pytest.raises(RuntimeError):
        Index(str(golden / "recordio" / f"{name}.recordio"))


def test_after_close_everything_raises_and_a_second_close_does_nothing() -> None:
    path = write("a.recordio", [b"x"])
    index, other = Index(path), Index(path)
    index.close()
    index.close()
    for use in (index.num_records, index.num_chunks, lambda: index.locate(0), lambda: Scanner(path, index=index)):
        with pytest.raises(RuntimeError, match="this index is closed") as error:
            use()
        assert isinstance(error.value, anyrecord.ClosedError)
    assert other.num_records() == 1


def test_it_is_a_context_manager() -> None:
    with Index(write("a.recordio", [b"x"])) as index:
        assert index.num_records() == 1
    with pytest.raises(ValueError, match="closed"), index:
        pass


def test_a_file_is_read_from_its_beginning_and_stays_open() -> None:
    with open(write("a.recordio", [b"x"]), "rb") as file:
        file.seek(7)
        with load_index(file) as index:
            assert index.num_records() == 1
        assert not file.closed


class Short(io.BytesIO):
    """Reads one byte at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(1 if size else 0)


class Reading:
    """A file without anything that is not needed, not even a hash."""

    __slots__ = ("_file",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, contents: bytes) -> None:
        self._file = Short(contents)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def test_short_reads_are_gone_on_with() -> None:
    file: Any = Reading(Path(write("a.recordio", [b"one", b"two"], 4)).read_bytes())
    index = load_index(file)
    assert (index.num_records(), index.num_chunks()) == (2, 2)
    scanner = new_scanner(file, index, 1, 1)
    assert scanner.scan()
    assert scanner.record() == b"two"


@pytest.mark.parametrize("file", ["a.recordio", None, 7])
def test_an_open_file_is_needed(file: Any) -> None:
    for function in (load_index, new_scanner):
        with pytest.raises(TypeError, match=r"pass an open file with read\(\)"):
            function(file)


def test_a_file_that_fails_is_a_runtime_error() -> None:
    class Broken(io.RawIOBase):
        def seekable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            raise OSError(5, "broken")

        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "broken")

    file: Any = Broken()
    with pytest.raises(RuntimeError, match=r"^Failed to load index\n(.|\n)*broken"):
        load_index(file)
