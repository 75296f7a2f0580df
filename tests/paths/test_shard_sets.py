"""Sets of N shards: by count, in a folder, complete or not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyrecord
import pytest
from anyrecord._paths import expand
from anyrecord._shard_names import RECORD_SUFFIXES, shard_paths

from paths.naming import after, before, names, not_found, not_on_windows, refused, touch

# name@N


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("points.array_record@2", before("points", 2)),
        ("points@2", before("points", 2)),
        ("points-train.array_record@3", after("points-train.array_record", 3)),
        ("points-train@3", after("points-train.array_record", 3)),
        ("points@2", after("points", 2)),
        ("points.v1@2", before("points.v1", 2, ".ffr")),
        ("points.bin@2", after("points.bin", 2)),
        ("points.bin@2", before("points", 2, ".bin")),
        ("points.tfrecord.gz@2", before("points", 2, ".tfrecord.gz")),
        ("points@2", before("points", 2, ".tfrecord.zlib")),
        ("deep/er/points@00002", before("deep/er/points", 2, ".recordio")),
        ("a@b@1", before("a@b", 1, ".recordio")),
    ],
)
def test_name_at_n_finds_the_shards_of_either_convention(source: str, files: list[str]) -> None:
    touch(*files)
    assert names(source) == files


@pytest.mark.parametrize("suffix", RECORD_SUFFIXES)
def test_name_at_n_reads_back_what_shard_paths_names(suffix: str) -> None:
    files = touch(*shard_paths(f"out/train{suffix}", 3))
    assert names(f"out/train{suffix}@3") == names("out/train@3") == names("out") == files


def test_name_at_n_ignores_other_names_and_other_counts() -> None:
    touch(*before("train", 3), *before("train2", 4), *before("x-train", 4), *before("train", 4, ".json"))
    touch(*before(".train", 4), "train-00000-of-00004.array_record.tmp", "train-0000-of-00004.array_record")
    files = touch(*before("train", 4))
    assert names("train.array_record@4") == files


def test_name_at_n_accepts_wider_numbers_and_reads_in_number_order() -> None:
    files = touch(*(f"t-{index:06}-of-0000012.ffr" for index in range(12)))
    assert names("t.ffr@12") == files


def test_name_at_n_orders_by_number_where_the_strings_would_not() -> None:
    files = touch("t-00000-of-00003.ffr", "t-00001-of-00003.ffr", "t-000002-of-00003.ffr")
    assert sorted(files) != files
    assert names("t.ffr@3") == files


@pytest.mark.parametrize(
    ("source", "one", "other", "patterns"),
    [
        (
            "p.array_record@2",
            before("p", 2),
            after("p.array_record", 2),
            ["p-*-of-00002.array_record", "p.array_record-*-of-00002"],
        ),
        (
            "p@1",
            before("p", 1, ".ffr"),
            before("p", 1, ".recordio"),
            ["p-*-of-00001.ffr", "p-*-of-00001.recordio"],
        ),
        ("p@1", after("p", 1), before("p", 1, ".ffr"), ["p-*-of-00001", "p-*-of-00001.ffr"]),
        (
            "p.ffr@1",
            before("p", 1, ".ffr"),
            ["p-000000-of-000001.ffr"],
            ["p-*-of-00001.ffr", "p-*-of-000001.ffr"],
        ),
    ],
)
def test_name_at_n_of_both_conventions_is_refused_naming_both(
    source: str, one: list[str], other: list[str], patterns: list[str]
) -> None:
    touch(*one, *other)
    message = refused(source)
    for pattern in patterns:
        assert repr(pattern) in message
        assert names(pattern) in (one, other)


def test_name_at_n_with_a_partial_second_convention_is_still_refused() -> None:
    touch(*before("p", 3), after("p.array_record", 3)[2])
    assert "more than one set" in refused("p.array_record@3")


def test_name_at_n_names_the_missing_member() -> None:
    files = before("d/train", 10)
    touch(*files[:3], *files[4:])
    assert not_found("d/train.array_record@10") == (
        "[Errno 2] shard 3 of 10 is missing: train-00003-of-00010.array_record (9 of 10 found in d); "
        "pass an explicit list of files to read an incomplete set"
    )


def test_name_at_n_names_the_first_missing_members_and_counts_the_rest() -> None:
    touch("t.ffr-00001-of-00010", "t.ffr-00004-of-00010")
    assert (
        "8 of 10 shards are missing: t.ffr-00000-of-00010, t.ffr-00002-of-00010, t.ffr-00003-of-00010 "
        "and 5 more (2 of 10 found in .)"
    ) in not_found("t.ffr@10")


def test_a_missing_member_is_named_with_the_digits_of_the_others() -> None:
    touch("t-000001-of-0000002.ffr")
    assert "t-000000-of-0000002.ffr (1 of 2" in not_found("t.ffr@2")


def test_name_at_n_without_any_member_names_both_first_names() -> None:
    message = not_found("t.ffr@3")
    assert "'t-00000-of-00003.ffr'" in message
    assert "'t.ffr-00000-of-00003'" in message
    message = not_found("no/such/t@3")
    assert repr(os.path.join("no/such", "t-00000-of-00003")) in message
    assert repr(os.path.join("no/such", "t-00000-of-00003.array_record")) in message
    assert "another record suffix" in message


def test_name_at_n_without_any_member_tells_which_counts_there_are() -> None:
    touch(*before("t", 4), *before("t", 2), *before("other", 6))
    assert not_found("t@3").endswith("other counts: 2, 4")


@pytest.mark.parametrize(
    ("files", "missing", "passed"),
    [
        (before("s", 4, ".tfrecord"), "s.tfrecord", ["s.tfrecord@4"]),
        (after("s.tfrecord", 4), "s.tfrecord", ["s.tfrecord@4"]),
        (before("s", 4, ".tfrecord"), "s", ["s@4"]),
        (after("s.tfrecord", 4), "s", ["s@4"]),
        (before("s", 2, ".bin"), "s.bin", ["s.bin@2"]),
        (before("d/e/s", 4, ".ffr"), "d/e/s.ffr", ["d/e/s.ffr@4"]),
        ([*before("s", 2, ".ffr"), *before("s", 10, ".ffr")], "s.ffr", ["s.ffr@2", "s.ffr@10"]),
        ([*before("s", 2, ".ffr"), *after("s.ffr", 3)], "s.ffr", ["s.ffr@2", "s.ffr@3"]),
        ([*before("s", 2, ".ffr"), *after("s.ffr", 2)], "s.ffr", ["s-*-of-00002.ffr", "s.ffr-*-of-00002"]),
        ([*before("s", 2, ".ffr"), *before("s", 2, ".recordio")], "s", ["s-*-of-00002.ffr", "s-*-of-00002.recordio"]),
    ],
)
def test_a_missing_file_that_is_there_as_shards_says_what_to_pass(
    files: list[str], missing: str, passed: list[str]
) -> None:
    touch(*files)
    for source in (missing, Path(missing), [missing], [Path(missing)]):
        with pytest.raises(FileNotFoundError) as caught:
            expand(source)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, missing)
        told = " or ".join(map(repr, passed))
        assert str(caught.value).endswith(f"there are shards of that name; to read them, pass {told}: {missing!r}")
    for way in passed:
        assert set(names(way)) <= set(files)


def test_of_very_many_sets_a_few_are_named() -> None:
    touch(*(before("s", count, ".ffr")[0] for count in range(1, 9)))
    assert "pass 's.ffr@1' or 's.ffr@2' or 's.ffr@3' (and 5 more sets)" in not_found("s.ffr")


@pytest.mark.parametrize("other", ["t-00000-of-00004.ffr", "s-00000-of-00004.recordio", "s-0-of-4.ffr", "s2.ffr"])
def test_a_missing_file_that_is_there_under_other_names_is_plainly_missing(other: str) -> None:
    touch(other)
    with pytest.raises(FileNotFoundError) as caught:
        expand("s.ffr")
    assert caught.value.args == (errno.ENOENT, os.strerror(errno.ENOENT))


def test_a_range_of_a_name_that_is_there_as_shards_says_so() -> None:
    touch(*before("s", 4, ".ffr"))
    assert "pass 's.ffr@4', and slice the records" in not_found("s.ffr[0:5]")


def test_every_function_that_reads_says_that_there_are_shards() -> None:
    with anyrecord.create("s.tfrecord", shards=4) as out:
        out.write_many(b"%d" % i for i in range(8))
    for source in ("s.tfrecord", Path("s.tfrecord"), ["s.tfrecord"]):
        for function in (
            anyrecord.open,
            anyrecord.info,
            anyrecord.verify,
            anyrecord.build_index,
            lambda path: anyrecord.convert(path, "new.ffr"),
        ):
            with pytest.raises(FileNotFoundError, match=r"pass 's.tfrecord@4'"):
                function(source)
    for path in ("s.tfrecord", Path("s.tfrecord")):
        with pytest.raises(FileNotFoundError, match=r"pass 's.tfrecord@4'"):
            anyrecord.Folder(path)
        with pytest.raises(FileNotFoundError, match=r"pass 's.tfrecord@4'"):
            anyrecord.unpack(path, "folder")


@pytest.mark.parametrize("suffix", [".tfrecords", ".tfrecords.gz", ".tfrecords.zlib"])
def test_the_other_spelling_of_tfrecord_is_known_everywhere(suffix: str) -> None:
    for folder in ("d", "d2"):
        os.mkdir(folder)
    with anyrecord.create(f"d/s{suffix}") as out:
        out.write_many([b"a", b"b"])
    codec = {".gz": "gzip", ".zlib": "zlib"}.get(suffix.removeprefix(".tfrecords"), "none")
    for source in (f"d/s{suffix}", "d", f"d/*{suffix}"):
        about = anyrecord.info(source)
        assert (about.format, about.records, about.codec) == ("tfrecord", 2, codec)
    with anyrecord.create(f"d2/s{suffix}", shards=2) as out:
        out.write_many([b"a", b"b"])
    assert sorted(os.listdir("d2")) == [f"s-00000-of-00002{suffix}", f"s-00001-of-00002{suffix}"]
    assert list(anyrecord.open(f"d2/s{suffix}@2")) == list(anyrecord.open("d2/s@2")) == [b"a", b"b"]
    assert anyrecord.convert("d2", "d3/", format="ffrecord").paths == (
        "d3/s-00000-of-00002.ffr",
        "d3/s-00001-of-00002.ffr",
    )
    Path(f"empty{suffix}").touch()
    if codec == "none":
        assert len(anyrecord.open(f"empty{suffix}")) == 0


@pytest.mark.parametrize("source", ["t@0", "t.ffr@00000"])
def test_zero_shards_are_refused(source: str) -> None:
    assert "at least 1" in refused(source)


def test_a_folder_is_not_a_member() -> None:
    touch("t-00000-of-00002.ffr")
    Path("t-00001-of-00002.ffr").mkdir()
    assert "shard 1 of 2 is missing" in not_found("t.ffr@2")


@not_on_windows
def test_name_at_n_in_a_folder_whose_name_has_glob_characters() -> None:
    files = touch(*before("run[1]/t", 2))
    assert names("run[1]/t@2") == files


def test_a_pattern_that_ends_like_name_at_n_is_a_glob_where_no_shards_are() -> None:
    touch("xa@2", "xb@2", "xc@3")
    assert names("x?@2") == ["xa@2", "xb@2"]


# Folders


@pytest.mark.parametrize("suffix", RECORD_SUFFIXES)
def test_a_folder_is_its_record_files_in_the_order_of_their_names(suffix: str) -> None:
    touch(
        "d/README",
        "d/features.json",
        f"d/.tmp{suffix}",
        f"d/{suffix}",
        f"d/sub/c{suffix}",
        f"d/old{suffix}.bak",
    )
    Path(f"d/folder{suffix}").mkdir()
    sharded = touch(*after(f"d/a{suffix}", 2), *before("d/b", 2, suffix))
    single = touch(f"d/d{suffix}", f"d/c{suffix}")
    expected = [*sharded, *sorted(single)]
    assert names("d") == names("d/") == names(Path("d")) == expected


def test_the_suffixes_are_the_known_ones() -> None:
    assert RECORD_SUFFIXES == {
        ".array_record": "array_record",
        ".arrayrecord": "array_record",
        ".ffr": "ffrecord",
        ".recordio": "recordio",
        ".tfrecord": "tfrecord",
        ".tfrecord.gz": "tfrecord",
        ".tfrecord.zlib": "tfrecord",
        ".tfrecords": "tfrecord",
        ".tfrecords.gz": "tfrecord",
        ".tfrecords.zlib": "tfrecord",
    }


def test_the_current_folder_can_be_named() -> None:
    touch("a.ffr")
    assert names(".") == ["./a.ffr"]


@pytest.mark.parametrize(
    "content",
    [
        [],
        ["README"],
        [".a.ffr"],
        ["sub/a.ffr"],
        ["ffr"],
        ["x.json-00000-of-00001"],
        ["x.ffr-00000-of-00001.json"],
    ],
)
def test_a_folder_without_record_files_says_what_was_looked_for(content: list[str]) -> None:
    Path("d").mkdir()
    touch(*(f"d/{name}" for name in content))
    message = not_found("d")
    assert "'d'" in message
    for suffix in RECORD_SUFFIXES:
        assert suffix in message


def test_spellings_of_one_format_are_not_a_mixture() -> None:
    tfrecord = touch("t/a.tfrecord", "t/b.tfrecord.gz", "t/c.tfrecord.zlib")
    array_record = touch("a/a.array_record", "a/b.arrayrecord")
    assert names(["t", "a"]) == [*tfrecord, *array_record]


def test_a_folder_of_several_formats_is_refused_and_the_suggested_glob_works() -> None:
    ours = touch("d/a.ffr", *after("d/b.ffr", 2))
    touch("d/a.recordio", "d/b.recordio")
    message = refused("d")
    assert "ffrecord, recordio" in message
    suggested = os.path.join("d", "*.ffr*")
    assert repr(suggested) in message
    assert names(suggested) == ours


@not_on_windows
def test_suggested_globs_work_where_the_names_have_glob_characters() -> None:
    touch("run[1]/a.ffr", "run[1]/b.recordio")
    assert repr("run[[]1]/*.ffr*") in refused("run[1]")
    touch(*before("run[2]/t", 2), *before("run[2]/t", 3))
    assert repr("run[[]2]/t-*-of-00002.array_record") in refused("run[2]")
    assert names("run[[]2]/t-*-of-00002.array_record") == before("run[2]/t", 2)


# Complete sets


@pytest.mark.parametrize("source", ["d", "d/*", "**/*-of-*"])
@pytest.mark.parametrize("files", [before("d/train", 10), after("d/train.array_record", 10)])
def test_a_folder_and_a_glob_need_every_member(source: str, files: list[str]) -> None:
    touch("d/other.array_record", "d/other-of-it.array_record", *files[:3], *files[4:])
    message = not_found(source)
    assert message == (
        f"[Errno 2] shard 3 of 10 is missing: {files[3].removeprefix('d/')} (9 of 10 found in d); "
        "pass an explicit list of files to read an incomplete set"
    )
    touch(files[3])
    assert set(names(source)) >= set(files)


@pytest.mark.parametrize("missing", [0, 9])
def test_the_first_and_the_last_member_are_needed(missing: int) -> None:
    files = before("d/t", 10)
    touch(*files[:missing], *files[missing + 1 :])
    assert f"shard {missing} of 10 is missing" in not_found("d")


def test_a_glob_that_selects_part_of_a_set_is_refused() -> None:
    touch(*before("train", 10))
    message = not_found("train-0000[0-4]-of-00010*")
    assert "5 of 10 shards are missing: train-00005-of-00010" in message
    assert "and 2 more (5 of 10 found in .)" in message


def test_each_set_of_a_folder_is_checked_by_itself() -> None:
    files = touch(*before("d/test", 2), *before("d/train", 4), *after("d/x.array_record", 3))
    assert names("d") == files
    os.unlink(files[-1])
    assert "x.array_record-00002-of-00003" in not_found("d")


def test_equal_names_in_different_folders_are_different_sets() -> None:
    touch(before("a/t", 2)[0], before("b/t", 2)[1])
    assert "t-00001-of-00002.array_record (1 of 2 found in a)" in not_found("*/t-*")
    touch(*before("a/t", 2), *before("b/t", 2), *before("c/t", 3))
    assert names("*/t-*") == [*before("a/t", 2), *before("b/t", 2), *before("c/t", 3)]


@pytest.mark.parametrize(
    "name", ["t-0000-of-0002.ffr", "t-00000-of-2.ffr", "t-00000-of-00002x.ffr", "t00000-of-00002.ffr"]
)
def test_names_that_are_not_quite_shards_are_plain_files(name: str) -> None:
    touch(f"d/{name}")
    assert names("d") == names("d/t*") == [f"d/{name}"]


def test_the_last_numbers_in_a_name_are_the_shard() -> None:
    files = touch(*before("d/a-00000-of-00009", 2))
    assert names("d") == files


@pytest.mark.parametrize("source", ["d", "d/*"])
@pytest.mark.parametrize(("prefix", "suffix"), [("t", ".ffr"), ("t.ffr", "")])
def test_sets_of_different_counts_are_refused_naming_both(source: str, prefix: str, suffix: str) -> None:
    newer = touch(*before(f"d/{prefix}", 4, suffix))
    touch(*before(f"d/{prefix}", 8, suffix)[:3])
    message = refused(source)
    pattern = os.path.join("d", f"{prefix}-*-of-00004{suffix}")
    leftover = os.path.join("d", f"{prefix}-*-of-00008{suffix}")
    assert f"{pattern!r} (4 of 4 found)" in message
    assert f"{leftover!r} (3 of 8 found)" in message
    assert names(pattern) == newer


@pytest.mark.parametrize("source", ["d", "d/*", "d/t.ffr@10"])
def test_a_number_out_of_range_is_refused(source: str) -> None:
    touch(*before("d/t", 10, ".ffr"), "d/t-00010-of-00010.ffr")
    message = refused(source)
    assert "t-00010-of-00010.ffr" in message
    assert "the largest is 9" in message


@pytest.mark.parametrize("source", ["d", "d/*", "d/t.ffr@2"])
def test_one_number_written_in_two_ways_is_refused(source: str) -> None:
    touch("d/t-00000-of-00002.ffr", "d/t-000000-of-00002.ffr")
    message = refused(source)
    assert "both shard 0 of 2" in message
    assert "t-00000-of" in message
    assert "t-000000-of" in message


def test_an_enormous_count_is_reported_at_once() -> None:
    touch("d/t-00000-of-99999999999999999999.ffr")
    assert "and 99999999999999999995 more" in not_found("d")
    assert "and 99999999999999999995 more" in not_found("d/t@99999999999999999999")
