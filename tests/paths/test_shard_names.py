"""Names for shards to be written, and the ones they would replace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from anyrecord._shard_names import existing_shards, shard_paths

from paths.naming import not_on_windows, touch

# Names for writing


def test_shard_paths_numbers_before_a_known_suffix() -> None:
    assert shard_paths("out.d/train.array_record", 16) == [
        os.path.join("out.d", f"train-{index:05}-of-00016.array_record") for index in range(16)
    ]


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("train", "train-00000-of-00002"),
        ("train.bin", "train.bin-00000-of-00002"),
        ("train.v1.ffr", "train.v1-00000-of-00002.ffr"),
        ("train.tfrecord.gz", "train-00000-of-00002.tfrecord.gz"),
        ("train.ffr.bak", "train.ffr.bak-00000-of-00002"),
        (".ffr", ".ffr-00000-of-00002"),
    ],
)
def test_shard_paths_keeps_an_unknown_suffix_in_the_name(path: str, first: str) -> None:
    assert shard_paths(path, 2)[0] == first


@pytest.mark.parametrize(
    ("count", "last"),
    [(99999, "t-99998-of-99999.ffr"), (100000, "t-099999-of-100000.ffr"), (100001, "t-100000-of-100001.ffr")],
)
def test_shard_paths_uses_more_digits_for_all_where_five_are_too_few(count: int, last: str) -> None:
    files = shard_paths("t.ffr", count)
    assert len(files) == len(set(files)) == count
    assert files[-1] == last
    assert files == sorted(files)


@pytest.mark.parametrize("count", [0, -1])
def test_shard_paths_needs_at_least_one_shard(count: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        shard_paths("t.ffr", count)


@pytest.mark.parametrize("path", ["", "folder/"])
def test_shard_paths_needs_a_file_name(path: str) -> None:
    with pytest.raises(ValueError, match="no file name"):
        shard_paths(path, 2)


# What overwriting would replace


@pytest.mark.parametrize("path", ["t.ffr", "d/t.ffr", "d/t", "d/t.bin", "d/t.tfrecord.gz"])
def test_existing_shards_finds_every_count_sorted_by_count_and_number(path: str) -> None:
    files = [*shard_paths(path, 2), *shard_paths(path, 11)[3:], shard_paths(path, 100000)[7]]
    touch(*reversed(files))
    assert existing_shards(path) == files


def test_existing_shards_leaves_out_what_shard_paths_could_not_have_written() -> None:
    touch(
        "t.ffr",
        "t.ffr-00000-of-00002",
        "t-00000-of-00002",
        "t-00000-of-00002.recordio",
        "t-00000-of-00002.ffr.bak",
        "tt-00000-of-00002.ffr",
        "x-t-00000-of-00002.ffr",
        ".t-00000-of-00002.ffr",
        "t-00002-of-00002.ffr",
        "t-000000-of-00002.ffr",
        "t-000000-of-000002.ffr",
        "t-00000-of-100000.ffr",
        "d/t-00000-of-00002.ffr",
    )
    Path("t-00001-of-00002.ffr").mkdir()
    assert existing_shards("t.ffr") == []


def test_existing_shards_of_a_missing_folder_are_none() -> None:
    assert existing_shards("no/such/t.ffr") == []


@not_on_windows
def test_existing_shards_takes_the_path_literally_and_counts_broken_links() -> None:
    touch("a1-00000-of-00002.ffr", "a[1]-00000-of-00002.ffr")
    os.symlink("nowhere", "a[1]-00001-of-00002.ffr")
    assert existing_shards("a[1].ffr") == shard_paths("a[1].ffr", 2)
