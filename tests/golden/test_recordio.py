"""Files that the original Go RecordIO library wrote, and damaged copies of them.

The damaged ones are listed here by name with the error that they must raise, so that a new file cannot go untested.
All but three are made from `*_chunk200.recordio`: 40 records in 6 chunks, of which chunk 1 holds records 10 to 20.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyrecord
import pytest
from anyrecord import ChecksumError, FormatError, RecordError, TruncatedError

from golden.digests import digest

FOLDER = Path(__file__).parent / "recordio"
ENTRIES: dict[str, dict[str, Any]] = {
    entry["file"]: entry for entry in json.loads((FOLDER / "manifest.json").read_text())["files"]
}
CODECS = {0: "none", 1: "snappy", 2: "gzip", -1: "snappy"}
CHUNKS = {
    codec: [chunk["offset"] for chunk in ENTRIES[f"{codec}_chunk200.recordio"]["chunks"]]
    for codec in ("none", "snappy")
}
"""Where the chunks of the whole files begin, by codec."""
RECORDS, DAMAGED = 40, range(10, 21)


def of_kind(*kinds: str) -> list[str]:
    return [file for file, entry in ENTRIES.items() if entry["kind"] in kinds]


@dataclass(frozen=True)
class Damage:
    """How a damaged file must be refused, whichever codec it has."""

    when: Literal["open", "read"]
    error: type[RecordError]
    chunk: int
    """The chunk that the error points into."""
    within: int = 0
    """How far behind the beginning of that chunk."""


DAMAGES = {
    # The payload: only that chunk cannot be read.
    "bad_crc": Damage("read", ChecksumError, 1),
    "bad_payload": Damage("read", ChecksumError, 1),
    "bad_payload_first": Damage("read", ChecksumError, 1),
    "reclen_huge": Damage("read", ChecksumError, 1),
    "numrec_plus1": Damage("read", FormatError, 1),
    "numrec_minus1": Damage("read", FormatError, 1),
    "inner_crc": Damage("read", ChecksumError, 1, 20 + 10),  # behind the identifier of the snappy stream
    # A header: what comes behind it cannot be found.
    "bad_magic_first": Damage("open", FormatError, 0),
    "bad_magic_mid": Damage("open", FormatError, 1),
    "bad_compressor": Damage("open", FormatError, 1, 8),
    "numrec_zero": Damage("open", FormatError, 1, 16),
    "size_plus1": Damage("open", FormatError, 2, 1),
    "size_max": Damage("open", TruncatedError, 1, 20),
    # Cut files, of which the original reads three without a word, and bytes too many.
    "trunc_payload": Damage("open", TruncatedError, 5, 20),
    "trunc_header_2": Damage("open", TruncatedError, 5),
    "trunc_header_4": Damage("open", TruncatedError, 5),
    "trunc_header_10": Damage("open", TruncatedError, 5),
    "trunc_header_17": Damage("open", TruncatedError, 5),
    "trunc_header_20": Damage("open", TruncatedError, 5, 20),
    "trailing": Damage("open", FormatError, 6),
    "trailing_zeros": Damage("open", FormatError, 6),
}
UNSEEN = {"none_trunc_boundary.recordio", "snappy_trunc_boundary.recordio"}
"""Cut exactly between two chunks, which nobody can see: the format stores no end."""
LONE = {"none_reclen_past_end.recordio", "none_extra_payload.recordio", "snappy_padding_tail.recordio"}
"""Files of one bad chunk whose checksum is right."""


def codec_and_damage(file: str) -> tuple[str, Damage]:
    codec, _, name = file.removesuffix(".recordio").partition("_")
    return codec, DAMAGES[name]


DAMAGED_FILES = [file for file in of_kind("corrupt") if file not in UNSEEN | LONE]


def test_every_file_of_the_manifest_is_known_here() -> None:
    on_disk = {str(path.relative_to(FOLDER)) for path in FOLDER.iterdir()} - {"manifest.json"}
    assert on_disk == set(ENTRIES)
    assert {entry["kind"] for entry in ENTRIES.values()} == {"valid", "valid-odd", "old-framing", "filelist", "corrupt"}
    assert {codec_and_damage(file)[1] for file in DAMAGED_FILES} == set(DAMAGES.values())
    assert set(of_kind("corrupt")) >= UNSEEN | LONE


@pytest.mark.parametrize("file", of_kind("valid", "valid-odd", "old-framing"))
def test_a_valid_file_yields_exactly_its_records(file: str) -> None:
    entry = ENTRIES[file]
    records = anyrecord.open(FOLDER / file)
    assert (records.format, len(records)) == ("recordio", entry["n"])
    # In order, at random before and after the chunks are known, and as a whole.
    one_by_one = [records[index] for index in reversed(range(len(records)))][::-1]
    assert digest(one_by_one) == digest(records) == digest(records[[*range(len(records))]]) == entry["records_sha256"]
    assert digest(records[index] for index in range(len(records))) == entry["records_sha256"]


@pytest.mark.parametrize("file", of_kind("valid", "valid-odd", "old-framing"))
def test_verify_and_info_agree_with_the_manifest(file: str) -> None:
    entry = ENTRIES[file]
    report = anyrecord.verify(FOLDER / file)
    assert report.ok, report
    assert (report.records, report.file_bytes) == (entry["n"], entry["size"])
    if "chunks" in entry:
        assert report.chunks == anyrecord.info(FOLDER / file).chunks == len(entry["chunks"])
        payloads = sum(chunk["raw_size"] for chunk in entry["chunks"])
        assert report.decoded_bytes == payloads - 4 * entry["n"]
        assert report.meta_bytes == 20 * report.chunks
        assert report.record_bytes + report.meta_bytes == report.file_bytes


@pytest.mark.parametrize("file", [file for file in of_kind("valid") if "writer_args" in ENTRIES[file]])
def test_writing_the_same_records_gives_the_same_bytes(file: str, tmp_path: Path) -> None:
    """Gzip apart, where the original's encoder ends its data in a way of its own."""
    entry, records = ENTRIES[file], list(anyrecord.open(FOLDER / file))
    codec, chunk_bytes = CODECS[entry["writer_args"]["compressor"]], entry["writer_args"]["maxChunkSize"]
    given = {"chunk_bytes": chunk_bytes} if chunk_bytes > 0 else {}
    with anyrecord.create(tmp_path / "ours.recordio", codec=codec, **given) as out:  # type: ignore[arg-type]
        out.write_many(records)
    ours = (tmp_path / "ours.recordio").read_bytes()
    theirs = (FOLDER / file).read_bytes()
    if codec != "gzip":
        assert ours == theirs
    assert digest(anyrecord.open(tmp_path / "ours.recordio")) == entry["records_sha256"]
    assert anyrecord.info(tmp_path / "ours.recordio").chunks == anyrecord.info(FOLDER / file).chunks


@pytest.mark.parametrize("size", [10, 11])
def test_a_record_as_large_as_a_chunk_is_refused_as_the_original_does(tmp_path: Path, size: int) -> None:
    with anyrecord.create(tmp_path / "a.recordio", chunk_bytes=10) as out:
        with pytest.raises(ValueError, match="too large: with chunk_bytes=10 the largest has 9"):
            out.write(bytes(size))
        out.write(bytes(9))
    assert list(anyrecord.open(tmp_path / "a.recordio")) == [bytes(9)]


@pytest.mark.parametrize("file", DAMAGED_FILES)
def test_damage_is_a_named_error_at_its_place(file: str) -> None:
    codec, damage = codec_and_damage(file)
    whole = list(anyrecord.open(FOLDER / f"{codec}_chunk200.recordio"))
    at = [*CHUNKS[codec], ENTRIES[f"{codec}_chunk200.recordio"]["size"]][damage.chunk] + damage.within
    if damage.when == "open":
        with pytest.raises(damage.error) as caught:
            anyrecord.open(FOLDER / file)
        assert (caught.value.path, caught.value.offset) == (str(FOLDER / file), at)
        assert caught.value.expected is not None
        return
    records = anyrecord.open(FOLDER / file)
    # A wrong count moves the numbers of the records behind it, and no record is ever another one.
    shift = {"numrec_plus1": 1, "numrec_minus1": -1}.get(file.removesuffix(".recordio").partition("_")[2], 0)
    assert len(records) == RECORDS + shift
    for index in range(len(records)):
        if index in range(DAMAGED.start, DAMAGED.stop + shift):
            with pytest.raises(damage.error) as caught:
                records[index]
            assert (caught.value.offset, caught.value.record) == (at, index)
        else:
            assert records[index] == whole[index if index < DAMAGED.start else index - shift]


@pytest.mark.parametrize("file", sorted(LONE))
def test_a_chunk_that_holds_too_much_or_too_little_is_an_error(file: str) -> None:
    with pytest.raises(FormatError) as caught:
        list(anyrecord.open(FOLDER / file))
    assert caught.value.path == str(FOLDER / file)
    assert caught.value.offset is not None


@pytest.mark.parametrize("file", [*DAMAGED_FILES, *sorted(LONE)])
def test_verify_reports_every_damage(file: str) -> None:
    report = anyrecord.verify(FOLDER / file)
    assert not report.ok
    assert report.problems[0].path == str(FOLDER / file)


@pytest.mark.parametrize("file", sorted(UNSEEN))
def test_a_cut_between_chunks_is_seen_by_the_expected_number_of_records(file: str) -> None:
    whole = list(anyrecord.open(FOLDER / f"{file.split('_')[0]}_chunk200.recordio"))
    found = list(anyrecord.open(FOLDER / file))
    assert found == whole[: len(found)]
    assert 0 < len(found) < len(whole) == RECORDS
    assert anyrecord.verify(FOLDER / file).ok
    with pytest.raises(FormatError, match="wrong number of records") as caught:
        anyrecord.open(FOLDER / file, expected_records=RECORDS)
    assert (caught.value.expected, caught.value.found) == (str(RECORDS), str(len(found)))


def test_a_list_of_files_locates_and_slices_every_record_as_the_original_should() -> None:
    """The original's own `FileList` gets all but the first file wrong; the manifest has what is right."""
    entry = ENTRIES["filelist"]
    real = entry["real_go_library"]
    paths = [FOLDER / file["file"] for file in entry["files"]]
    for source in (paths, FOLDER / "filelist", str(FOLDER / "filelist" / "*.recordio")):
        records = anyrecord.open(source)
        assert len(records) == entry["n"]
        for _ in ("not read yet", "read before"):
            found = [records.locate(index) for index in range(len(records))]
            numbers = [[paths.index(Path(place.path)), place.chunk, place.row] for place in found]
            assert numbers == real["correct_locate(0..n-1)"]
            assert digest(records) == entry["records_sha256"]
    scans = {key: value for key, value in real.items() if key.startswith("FileListScanner") and "real" in value}
    assert len(scans) > 5
    for key, scan in scans.items():
        start, length = map(int, key.removeprefix("FileListScanner(").removesuffix(")").split(","))
        part = records[start : None if length < 0 else start + length]
        assert digest(part) == scan["correct_sha256"]
        assert (part[0].decode() if len(part) else None) == scan["correct_first"]
