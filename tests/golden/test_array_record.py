"""Files that the real `array_record` package wrote, whole and damaged, and files made to deceive.

`manifest.json` says what each holds; damaged ones are made from whole ones by the recipe given there.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyrecord
import pytest

FOLDER = Path(__file__).parent / "array_record"
FILES: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text())["files"]
SHARDED: list[dict[str, Any]] = json.loads((FOLDER / "sharded" / "manifest.json").read_text())["sets"]


def of_status(*statuses: str) -> list[Any]:
    return [pytest.param(file, id=file["file"]) for file in FILES if file["status"] in statuses]


def digest(records: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for record in records:
        found.update(struct.pack("<Q", len(record)) + record)
    return found.hexdigest()


def made(file: dict[str, Any]) -> bytes:
    """The bytes of a file: stored, or made from another by its recipe."""
    if file.get("stored", True):
        return FOLDER.joinpath(file["file"]).read_bytes()
    content = bytearray(FOLDER.joinpath(file["base"]).read_bytes())
    for step in file["recipe"]:
        match step["op"]:
            case "xor":
                content[step["offset"]] ^= step["value"]
            case "zero":
                content[step["offset"] : step["offset"] + step["length"]] = bytes(step["length"])
            case "truncate":
                del content[step["size"] :]
            case "append_zeros":
                content += bytes(step["length"])
            case "append_self":
                content += content
            case other:
                raise AssertionError(f"unknown step {other}")
    assert hashlib.sha256(content).hexdigest() == file["sha256"]
    return bytes(content)


def outcome(path: Path) -> tuple[str | None, anyrecord.RecordError | None]:
    """The digest of all records, or the error that came instead."""
    try:
        return digest(anyrecord.open(path)), None
    except anyrecord.RecordError as error:
        return None, error


def generated(file: dict[str, Any]) -> list[bytes]:
    """The records that the file was written from."""
    sys.path.insert(0, str(FOLDER))
    try:
        import generators

        return list(generators.make(file["generator"]))
    finally:
        sys.path.remove(str(FOLDER))


def keywords(options: str) -> dict[str, Any]:
    """The original's option string as ours."""
    found: dict[str, Any] = {}
    for part in filter(None, options.split(",")):
        name, _, value = part.partition(":")
        match name:
            case "uncompressed":
                found["codec"] = "none"
            case "brotli" | "zstd" | "snappy":
                found["codec"] = name
                if value:
                    found["level"] = int(value)
            case "transpose" | "pad_to_block_boundary":
                found[name] = value != "false"
            case "group_size" | "transpose_bucket_size" | "window_log":
                found[name] = int(value)
            case other:
                raise AssertionError(f"unknown option {other}")
    return found


@pytest.mark.parametrize("table", ["memory", "disk"])
@pytest.mark.parametrize("file", of_status("valid"))
def test_a_valid_file_yields_exactly_its_records(file: dict[str, Any], table: Any) -> None:
    records = anyrecord.open(FOLDER / file["file"], table=table)
    assert len(records) == file["num_records"]
    assert digest(records) == file["records_sha256"]
    assert digest(records[[*range(len(records))]]) == file["records_sha256"]
    about = anyrecord.info(FOLDER / file["file"])
    assert (about.format, about.records, about.chunks) == ("array_record", file["num_records"], file["num_chunks"])
    assert about.options == file["options_string_in_footer"]
    assert about.decoded_bytes == file["decoded_bytes"]


@pytest.mark.parametrize("file", of_status("valid"))
def test_verify_accounts_for_every_byte_of_a_valid_file(file: dict[str, Any]) -> None:
    report = anyrecord.verify(FOLDER / file["file"])
    assert report.ok, report
    assert report.records == file["num_records"]


@pytest.mark.parametrize("file", of_status("valid"))
def test_writing_the_same_records_gives_the_same_file_where_nothing_is_compressed(
    file: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "ours.array_record"
    records = generated(file)
    with anyrecord.create(path, **keywords(file["writer_options"])) as out:
        out.write_many(records)
    assert list(anyrecord.open(path)) == records
    assert anyrecord.info(path).options == file["options_string_in_footer"]
    if file["byte_exact_reproducible"]:
        assert path.read_bytes() == (FOLDER / file["file"]).read_bytes()


@pytest.mark.parametrize("file", of_status("corrupt"))
def test_damage_is_a_named_error_or_harmless_and_verify_always_sees_it(file: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / file["file"]
    path.write_bytes(made(file))
    found, error = outcome(path)
    if error is None:
        assert found == file["base_records_sha256"], "fewer or other records, in silence"
    else:
        assert error.path == str(path)
        assert error.offset is not None
        assert error.expected is not None or error.found is not None
    report = anyrecord.verify(path)
    assert not report.ok
    assert report.problems[0].offset is not None


@pytest.mark.parametrize("file", of_status("corrupt"))
def test_records_in_undamaged_chunks_can_be_read_one_by_one(file: dict[str, Any]) -> None:
    try:
        records = anyrecord.open(made(file), format="array_record")
    except anyrecord.FormatError:
        return  # the footer is damaged, and says where the chunks are
    whole = anyrecord.open(FOLDER / file["base"])
    failed = []
    for index in range(len(whole)):
        try:
            found = records[index]
        except anyrecord.FormatError as error:
            failed.append(error.record == index)
        else:
            assert found == whole[index]
    assert all(failed)
    assert len(failed) <= 2, "one damaged byte costs at most its chunk of two"


@pytest.mark.parametrize("file", of_status("crafted"))
def test_a_crafted_file_is_read_whole_or_refused(file: dict[str, Any]) -> None:
    path = FOLDER / file["file"]
    if "records_sha256" in file:
        assert digest(anyrecord.open(path)) == file["records_sha256"]
        return
    with pytest.raises(anyrecord.FormatError) as caught:
        anyrecord.open(path)
    assert caught.value.path == str(path)
    assert caught.value.offset is not None


@pytest.mark.parametrize("shards", SHARDED, ids=lambda shards: shards["style"])
def test_a_sharded_set_is_one_sequence_by_folder_glob_list_and_count(shards: dict[str, Any]) -> None:
    folder = FOLDER / "sharded" / shards["style"]
    paths = [folder / file["file"] for file in shards["files"]]
    name = {"tfds": "points-train.array_record", "beam": "points.array_record"}[shards["style"]]
    for source in (folder, str(folder / "points*"), paths, f"{folder / name}@{len(paths)}"):
        records = anyrecord.open(source)
        assert len(records) == shards["num_records"]
        assert digest(records) == shards["records_sha256_in_shard_order"]
        assert records.paths == [str(path) for path in paths]


@pytest.mark.parametrize("shards", SHARDED, ids=lambda shards: shards["style"])
def test_a_missing_shard_is_named(shards: dict[str, Any], tmp_path: Path) -> None:
    missing = shards["files"][1]["file"]
    for file in shards["files"]:
        if file["file"] != missing:
            content = (FOLDER / "sharded" / shards["style"] / file["file"]).read_bytes()
            (tmp_path / file["file"]).write_bytes(content)
    name = {"tfds": "points-train.array_record", "beam": "points.array_record"}[shards["style"]]
    for source in (tmp_path, str(tmp_path / "points*"), f"{tmp_path / name}@{len(shards['files'])}"):
        with pytest.raises(FileNotFoundError, match=missing):
            anyrecord.open(source)
    assert len(anyrecord.open(sorted(tmp_path.iterdir()))) > 0
