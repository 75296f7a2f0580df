import doctest
import errno
import os
import sys
from pathlib import Path

import pytest
from anyrecord import paths as paths_module
from anyrecord.paths import RECORD_SUFFIXES, FileRange, existing_shards, expand, shard_paths

not_on_windows = pytest.mark.skipif(sys.platform == "win32", reason="the file system refuses such names")


@pytest.fixture(autouse=True)
def inside_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in its own folder, so that relative names can be used throughout."""
    monkeypatch.chdir(tmp_path)


def touch(*names: str) -> list[str]:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    return list(names)


def before(prefix: str, count: int, suffix: str = ".array_record") -> list[str]:
    """Names numbered before the suffix."""
    return [f"{prefix}-{index:05}-of-{count:05}{suffix}" for index in range(count)]


def after(name: str, count: int) -> list[str]:
    """Names numbered after the suffix."""
    return before(name, count, suffix="")


def names(source: object) -> list[str]:
    files = expand(source)  # type: ignore[arg-type]
    assert all(file.start == 0 and file.stop is None for file in files)
    return [file.path.replace(os.sep, "/") for file in files]


def not_found(source: object) -> str:
    with pytest.raises(FileNotFoundError) as caught:
        expand(source)  # type: ignore[arg-type]
    assert caught.value.errno == errno.ENOENT
    return str(caught.value)


def refused(source: object) -> str:
    with pytest.raises(ValueError) as caught:
        expand(source)  # type: ignore[arg-type]
    return str(caught.value)


def test_doctests_pass() -> None:
    result = doctest.testmod(paths_module)
    assert result.attempted > 0
    assert result.failed == 0


# One file


def test_a_plain_file_is_itself_whatever_its_suffix() -> None:
    touch("data/file.bin")
    assert expand("data/file.bin") == [FileRange("data/file.bin", 0, None)]


def test_a_path_object_becomes_a_string() -> None:
    touch("a.recordio")
    (file,) = expand(Path("a.recordio"))
    assert type(file.path) is str
    assert file == FileRange("a.recordio")


def test_one_member_of_a_set_by_its_name_is_that_file_alone() -> None:
    touch("train-00003-of-00010.array_record")
    assert names("train-00003-of-00010.array_record") == ["train-00003-of-00010.array_record"]


@pytest.mark.parametrize("path", ["missing.array_record", "no/such/folder.ffr", "", "user@host", "@3"])
def test_a_missing_plain_file_raises_what_opening_it_raises(path: str) -> None:
    with pytest.raises(FileNotFoundError) as ours:
        expand(path)
    with pytest.raises(FileNotFoundError) as theirs:
        os.close(os.open(path, os.O_RDONLY))
    assert ours.value.args == theirs.value.args
    assert ours.value.filename == theirs.value.filename == path


def test_a_file_used_as_a_folder_raises_not_a_directory() -> None:
    touch("a.recordio")
    with pytest.raises(NotADirectoryError):
        expand("a.recordio/b.recordio")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_without_permission_raises_permission_error() -> None:
    touch("closed/a.recordio")
    os.chmod("closed", 0)
    try:
        with pytest.raises(PermissionError):
            expand("closed/a.recordio")
        with pytest.raises(PermissionError):
            expand("closed/*.recordio")
    finally:
        os.chmod("closed", 0o700)


def test_a_tilde_is_not_expanded() -> None:
    assert "~" in not_found("~")
    touch("~/a.recordio")
    assert names("~") == ["~/a.recordio"]


@not_on_windows
@pytest.mark.parametrize("name", ["a*.recordio", "a?.recordio", "a[b].recordio", "a@3", "a.recordio[0:1]", "a@0"])
def test_an_existing_path_of_that_very_name_wins(name: str) -> None:
    touch("a", "a.recordio", "ab.recordio", "a.recordio0", *before("a", 3, ".recordio"))
    touch(name)
    assert expand(name) == [FileRange(name)]


@not_on_windows
@pytest.mark.parametrize("name", ["x[1]", "x@2", "x*"])
def test_an_existing_folder_of_that_very_name_wins(name: str) -> None:
    touch("x1", *before("x", 2), f"{name}/a.recordio")
    assert expand(name) == [FileRange(f"{name}/a.recordio")]


@pytest.mark.parametrize(
    "url",
    ["s3://bucket/a.ffr", "gs://b/*.recordio", "http://h/a", "https://h/a@3", "file:///a", "S3://a[0:1]"],
)
def test_a_url_is_refused_because_only_local_files_are_read(url: str) -> None:
    message = refused(url)
    assert url in message
    assert "only local files are read" in message


def test_a_drive_letter_is_not_a_url() -> None:
    with pytest.raises(FileNotFoundError):
        expand("Q://no/such.ffr")


def test_a_url_within_a_list_is_refused() -> None:
    touch("a.recordio")
    assert "s3://b/c" in refused(["a.recordio", "s3://b/c"])


# Iterables


def test_a_list_is_expanded_element_by_element_in_its_order() -> None:
    touch("z.ffr", "folder/b.recordio", "folder/a.recordio", "g1.x", "g2.x", *before("s", 2))
    source = ["z.ffr", "folder", "g*.x", "s.array_record@2", Path("z.ffr")]
    assert names(source) == [
        "z.ffr",
        "folder/a.recordio",
        "folder/b.recordio",
        "g1.x",
        "g2.x",
        *before("s", 2),
        "z.ffr",
    ]


def test_a_list_may_hold_ranges() -> None:
    touch("a.ffr")
    assert expand(["a.ffr[5:]", "a.ffr[:5]"]) == [FileRange("a.ffr", 5, None), FileRange("a.ffr", 0, 5)]


@pytest.mark.parametrize("make", [list, tuple, iter, lambda paths: (path for path in paths)])
def test_any_iterable_keeps_its_order(make: type[list[str]]) -> None:
    touch("b", "a", "c")
    assert names(make(["b", "a", "c"])) == ["b", "a", "c"]


def test_a_set_is_read_in_sorted_order_so_that_processes_agree() -> None:
    files = touch(*(f"f{index:03}" for index in range(100)))
    assert names(set(files)) == names(frozenset(files)) == files


@pytest.mark.parametrize("empty", [[], (), set(), iter([])])
def test_an_empty_list_is_refused(empty: object) -> None:
    assert "empty" in refused(empty)


def test_an_explicit_list_may_hold_part_of_a_set_and_repeats() -> None:
    third = touch(*before("train", 10), *after("t.ffr", 4))[3]
    assert names([third, "t.ffr-00001-of-00004", third]) == [third, "t.ffr-00001-of-00004", third]


def test_an_explicit_list_may_mix_counts_numbers_out_of_range_and_formats() -> None:
    files = touch("t-00000-of-00002.ffr", "t-00000-of-00003.ffr", "t-00009-of-00003.ffr", "a.recordio")
    assert names(files) == files


def test_a_glob_within_a_list_is_still_checked() -> None:
    touch(*before("train", 3)[:2], "a.ffr")
    assert "train-00002-of-00003.array_record" in not_found(["a.ffr", "train-*"])


def test_a_missing_file_within_a_list_is_named() -> None:
    touch("a.ffr")
    assert "'b.ffr'" in not_found(["a.ffr", "b.ffr"])


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"a"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (b"a", "bytes"),
        (bytearray(b"a"), "bytearray"),
        (memoryview(b"a"), "memoryview"),
        (7, "int"),
        (None, "NoneType"),
        (BytesPath(), "BytesPath"),
        ([b"a"], "bytes"),
        (["a", 7], "int"),
        ([["a"]], "list"),
        ([BytesPath()], "BytesPath"),
    ],
)
def test_other_types_are_refused_naming_what_is_accepted(source: object, found: str) -> None:
    touch("a")
    with pytest.raises(TypeError, match=rf"str.*os\.PathLike.*iterable.*found {found}$"):
        expand(source)  # type: ignore[arg-type]


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


# file[a:b]


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [("[2:5]", 2, 5), ("[2:]", 2, None), ("[:5]", 0, 5), ("[:]", 0, None), ("[3:3]", 3, 3), ("[0:0]", 0, 0)],
)
def test_a_range_of_an_existing_file(text: str, start: int, stop: int | None) -> None:
    touch("d/a.ffr")
    assert expand(f"d/a.ffr{text}") == [FileRange("d/a.ffr", start, stop)]


@not_on_windows
def test_the_file_of_a_range_may_have_glob_characters_in_its_name() -> None:
    touch("a*.ffr", "ab.ffr")
    assert expand("a*.ffr[1:2]") == [FileRange("a*.ffr", 1, 2)]


def test_a_range_comes_before_the_glob() -> None:
    touch("a", "a1", "a2")
    assert expand("a[1:2]") == [FileRange("a", 1, 2)]


def test_a_range_is_a_glob_where_the_file_does_not_exist() -> None:
    touch("a1", "a2")
    assert names("a[1:2]") == ["a1", "a2"]


@pytest.mark.parametrize("source", ["folder[0:1]", "a*.ffr[0:1]"])
def test_a_range_of_a_folder_or_a_pattern_is_a_glob(source: str) -> None:
    touch("folder/a.ffr", "ab.ffr")
    assert "a range [a:b] needs the name of one existing file" in not_found(source)
    match = touch(source.replace("*", "x").replace("[0:1]", "1"))
    assert names(source) == match


def test_a_range_of_a_missing_file_is_not_found() -> None:
    message = not_found("missing.ffr[0:5]")
    assert "'missing.ffr[0:5]'" in message
    assert "a range [a:b] needs the name of one existing file" in message


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    touch("a.ffr")
    assert "found 5 > 2" in refused("a.ffr[5:2]")


@pytest.mark.parametrize("text", ["[-1:2]", "[1]", "[1:2:3]", "[a:b]", "[1: 2]", "[\u00b2:\u00b3]", "[\u0661:\u0662]"])
def test_what_is_not_two_numbers_is_not_a_range(text: str) -> None:
    touch("a.ffr")
    assert "no file matches" in not_found(f"a.ffr{text}")


# Globs


def test_a_glob_is_sorted_as_strings() -> None:
    touch("d/b.x", "d/a.x", "d/a10.x", "d/a9.x", "d/c.y")
    assert names("d/*.x") == ["d/a.x", "d/a10.x", "d/a9.x", "d/b.x"]


@pytest.mark.parametrize(("pattern", "found"), [("a?", ["a1", "a2"]), ("a[2-9]*", ["a2", "a33"])])
def test_question_marks_and_classes_are_globs(pattern: str, found: list[str]) -> None:
    touch("a", "a1", "a2", "a33")
    assert names(pattern) == found


def test_a_recursive_glob_finds_files_at_any_depth_once() -> None:
    touch("d/a.x", "d/e/b.x", "d/e/f/c.x", "d/e/f/c.y")
    assert names("d/**/*.x") == names("d/**/**/*.x") == ["d/a.x", "d/e/b.x", "d/e/f/c.x"]


def test_a_glob_without_a_match_names_the_pattern() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        expand("no/such/*.x")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == "no/such/*.x"
    assert "no file matches the pattern: 'no/such/*.x'" in str(caught.value)


def test_a_pattern_longer_than_a_file_name_can_be_is_still_a_glob() -> None:
    touch("a5")
    assert names("a[" + "0123456789" * 100 + "]") == ["a5"]


def test_hidden_files_match_only_where_the_pattern_names_them() -> None:
    touch(".tmp.x", "a.x", ".hidden/b.x")
    assert names("*.x") == names("*") == names("**/*.x") == ["a.x"]
    assert names(".*.x") == [".tmp.x"]


def test_folders_that_a_glob_matches_are_ignored() -> None:
    touch("d1/a.ffr", "d2")
    assert names("d*") == ["d2"]


def test_a_glob_that_matches_only_folders_is_explained() -> None:
    touch("d1/a.ffr", "d2/a.ffr")
    message = not_found("d*")
    assert "only folders match" in message
    assert "'d*'" in message


@not_on_windows
def test_a_link_that_leads_nowhere_is_kept_so_that_opening_it_fails() -> None:
    touch("d/a.ffr")
    os.symlink("nowhere", "d/b.ffr")
    assert names("d/*.ffr") == names("d") == ["d/a.ffr", "d/b.ffr"]
    os.symlink("nowhere", "t-00000-of-00001.ffr")
    assert names("t@1") == ["t-00000-of-00001.ffr"]


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
    assert "expected at most 9" in message


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
