"""One file, lists of files, ranges and globs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from anyrecord._paths import FileRange, expand
from children import forked

from paths.naming import after, before, names, not_found, not_on_windows, refused, touch

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


def test_a_folder_without_permission_raises_permission_error(tmp_path: Path) -> None:
    touch("closed/a.recordio")
    (tmp_path / "closed").chmod(0)
    os.chmod(tmp_path, 0o755)

    def refused_to_others() -> list[str]:
        if os.geteuid() == 0:
            os.setuid(65534)  # root may enter every folder
        found = []
        for source in ("closed/a.recordio", "closed/*.recordio"):
            with pytest.raises(PermissionError) as caught:
                expand(source)
            found.append(type(caught.value).__name__)
        return found

    assert forked(refused_to_others) == 2 * ["PermissionError"]
    (tmp_path / "closed").chmod(0o700)


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
    ["ftp://bucket/a.ffr", "hdfs://b/*.recordio", "ssh+x://h/a@3", "HDFS://a[0:1]"],
)
def test_an_unknown_scheme_is_refused_by_name_whatever_local_folders_there_are(url: str) -> None:
    scheme = url.partition(":")[0]
    touch(f"{scheme}:/bucket/a.ffr", f"{scheme}:/h/a", f"{scheme}:/a")
    message = refused(url)
    assert url in message
    assert f'the scheme "{scheme}"' in message


@pytest.mark.parametrize(
    "url", ["s3://bucket/a.ffr", "S3://b/a.ffr", "gs://b/a.recordio", "http://h/a", "abfss://c@h/a.ffr"]
)
def test_the_url_of_an_object_is_not_looked_up(url: str) -> None:
    assert expand(url) == [FileRange(url)]
    assert expand(OwnPath(url)) == [FileRange(url)]
    assert expand(f"{url}[2:5]") == [FileRange(url, 2, 5)]


def test_the_url_of_a_local_file_is_a_local_path() -> None:
    touch("a b.recordio", *before("s", 2))
    here = os.getcwd()
    assert names(f"file://{here}/a%20b.recordio") == [f"{here}/a b.recordio"]
    assert names(f"file://localhost{here}/s@2") == [f"{here}/{name}" for name in before("s", 2)]
    assert "is not the URL of a local file" in refused("file://host/a.ffr")


def test_a_drive_letter_is_not_a_url() -> None:
    with pytest.raises(FileNotFoundError):
        expand("Q://no/such.ffr")


def test_a_list_can_mix_local_paths_and_urls() -> None:
    touch("a.recordio")
    assert names(["a.recordio", "s3://b/c.recordio"]) == ["a.recordio", "s3://b/c.recordio"]
    assert "ftp" in refused(["a.recordio", "ftp://b/c"])


# Path objects


class OwnPath:
    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path


@pytest.mark.parametrize("kind", [Path, OwnPath])
@pytest.mark.parametrize("name", ["a*.ffr", "?.ffr", "[ab].ffr", "a.ffr[0:1]", "s.ffr@2", "s@2", "**"])
def test_a_path_object_is_no_pattern(kind: type[Path], name: str) -> None:
    touch("a.ffr", "ab.ffr", *before("s", 2, ".ffr"))
    assert expand(name), "a str is one"
    for source in (kind(name), [kind(name)], ["a.ffr", kind(name)]):
        message = not_found(source)
        assert f"'{name}'" in message
        assert "a path object is always one file or folder: pass a str" in message


@not_on_windows
@pytest.mark.parametrize("kind", [str, Path, OwnPath])
@pytest.mark.parametrize("name", ["a*.ffr", "a[b].ffr", "a@3", "a.ffr[0:1]"])
def test_a_path_object_is_the_file_of_that_very_name(kind: type[Path], name: str) -> None:
    touch("ab.ffr", "a.ffr", *before("a", 3, ".ffr"), name)
    assert expand(kind(name)) == expand([kind(name)]) == [FileRange(name)]


def test_a_path_object_may_be_a_folder() -> None:
    touch("folder/a.ffr", "folder/b.ffr")
    assert names(Path("folder")) == ["folder/a.ffr", "folder/b.ffr"]
    touch(*before("set/s", 3)[:2])
    assert "shard 2 of 3 is missing" in not_found(Path("set"))


@pytest.mark.parametrize("url", ["gs://b/x.ffr", "s3://b/x", "https://h/a.ffr"])
def test_a_url_that_a_path_object_has_changed_is_refused_and_asked_for_as_a_string(url: str) -> None:
    touch(str(Path(url)))
    for source in (Path(url), [Path(url)], {Path(url)}):
        message = refused(source)
        assert str(Path(url)) in message
        assert "pass a URL as a str" in message


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
        ({"a": 1}, "dict"),
        (["a", 7], "int"),
        ([["a"]], "list"),
        ([BytesPath()], "BytesPath"),
    ],
)
def test_other_types_are_refused_naming_what_is_accepted(source: object, found: str) -> None:
    touch("a")
    with pytest.raises(TypeError, match=rf"str.*os\.PathLike.*iterable.*found {found}$"):
        expand(source)  # type: ignore[arg-type]


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
    assert "for a range, pass the name of an existing file before [a:b]" in not_found(source)
    match = touch(source.replace("*", "x").replace("[0:1]", "1"))
    assert names(source) == match


def test_a_range_of_a_missing_file_is_not_found() -> None:
    message = not_found("missing.ffr[0:5]")
    assert "'missing.ffr[0:5]'" in message
    assert "for a range, pass the name of an existing file before [a:b]" in message


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    touch("a.ffr")
    assert "ends before it starts: 5 > 2" in refused("a.ffr[5:2]")


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
    assert "matches only folders" in message
    assert "'d*'" in message


@not_on_windows
def test_a_link_that_leads_nowhere_is_kept_so_that_opening_it_fails() -> None:
    touch("d/a.ffr")
    os.symlink("nowhere", "d/b.ffr")
    assert names("d/*.ffr") == names("d") == ["d/a.ffr", "d/b.ffr"]
    os.symlink("nowhere", "t-00000-of-00001.ffr")
    assert names("t@1") == ["t-00000-of-00001.ffr"]
