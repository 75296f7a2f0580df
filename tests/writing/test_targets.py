"""What can be known about a target before the first record is refused then, not after the last one."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import _core
from children import LIMIT_SECONDS, forked

from writing.folders import names, temporary

SHARDINGS: list[dict[str, Any]] = [{}, {"shards": 3}, {"shard_bytes": 10}, {"shard_records": 10}]


@pytest.fixture(params=SHARDINGS, ids=str)
def sharding(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def make(name: str = "source.tfrecord") -> str:
    with anyrecord.create(name, durable=False) as out:
        out.write_many([b"one", b"two", b"three"])
    return name


CREATORS: dict[str, Callable[..., object]] = {
    "create": lambda target, **keywords: anyrecord.create(target, **keywords),
    "create to overwrite": lambda target, **keywords: anyrecord.create(target, overwrite=True, **keywords),
    "convert": lambda target, **keywords: anyrecord.convert(
        "source.tfrecord", target, map=no_record_is_read, overwrite=True, **keywords
    ),
}
"""What writes a file, or shards."""


def no_record_is_read(record: bytes) -> bytes:
    raise AssertionError("a target that cannot be is refused before anything is read")


@pytest.fixture(params=CREATORS.values(), ids=list(CREATORS))
def creator(request: pytest.FixtureRequest) -> Callable[..., object]:
    make()
    found: Callable[..., object] = request.param
    return found


# Folders and formats


def test_a_missing_folder_is_named(creator: Callable[..., object], sharding: dict[str, Any]) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder '.*a.b'; make it first: '.*c\.ffr'$") as raised:
        creator("a/b/c.ffr", **sharding)
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(NotADirectoryError, match=r"source\.tfrecord"):
        creator("source.tfrecord/c.ffr", **sharding)


def test_only_formats_that_can_be_written_are_offered(creator: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="pass format=, one of ") as raised:
        creator("x.bin")
    offered = str(raised.value).partition("one of ")[2].split(", ")
    assert {*offered} == {*_core.formats()} - {"riegeli"}
    for format in offered:
        anyrecord.create(f"x.{format}", format=format).close()


# Names


LONGEST = 255
"""Bytes in a name on every file system that matters."""


@pytest.mark.parametrize("letter", ["x", "é", "字"])
def test_a_name_is_too_long_if_the_file_or_its_shards_could_not_have_it(
    creator: Callable[..., object], sharding: dict[str, Any], letter: str
) -> None:
    before = names(Path())
    most = LONGEST - (len("-00000-of-00003") if sharding else 0)
    for extra in (0, 1, 100):
        size = most + extra - len(".ffr")
        name = letter * (size // len(letter.encode()))
        name += "x" * (size - len(name.encode())) + ".ffr"
        if extra == 0:
            anyrecord.create(name, overwrite=True, **sharding).close()
            for path in Path().glob("*.ffr"):
                path.unlink()
            continue
        with pytest.raises(OSError) as caught:
            creator(name, **sharding)
        assert caught.value.errno == errno.ENAMETOOLONG
        assert names(Path()) == before


def test_a_path_is_too_long_if_a_hidden_name_in_its_folder_would_be(creator: Callable[..., object]) -> None:
    """The longest path has 4095 bytes; the folder leaves a few for names."""
    top = Path.cwd()
    if sum(1 for _ in top.parts) > 30:
        pytest.skip("the working directory is too deep")
    folder = str(top)
    while len(os.fsencode(folder)) < 4095 - 20:
        folder += "/" + "d" * min(200, 4095 - 20 - len(os.fsencode(folder)) - 1)
    parts, at = folder.removeprefix(str(top)).strip("/").split("/"), os.open(".", os.O_RDONLY)
    for part in parts:
        os.mkdir(part, dir_fd=at)
        deeper = os.open(part, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    try:
        with pytest.raises(OSError) as caught:
            creator(f"{folder}/a.ffr", shards=1)
        assert caught.value.errno == errno.ENAMETOOLONG
        assert os.listdir(at) == []
    finally:
        os.close(at)


@pytest.mark.parametrize("name", ["x.ffr/", "./x.ffr//", "sub/x.ffr/", "/x.ffr/"])
def test_a_name_that_ends_in_a_slash_is_a_folder(sharding: dict[str, Any], name: str) -> None:
    for overwrite in (False, True):
        with pytest.raises(IsADirectoryError, match="ends in a slash") as caught:
            anyrecord.create(name, overwrite=overwrite, **sharding)
        assert caught.value.filename == name
    assert names(Path()) == []


@pytest.mark.parametrize("name", ["folder.ffr", ".", "", ".."])
def test_a_folder_is_not_written_over(sharding: dict[str, Any], name: str) -> None:
    os.mkdir("folder.ffr")
    for overwrite in (False, True):
        with pytest.raises(OSError) as caught:
            anyrecord.create(name, format="ffrecord", overwrite=overwrite, **sharding)
        assert caught.value.errno == errno.EISDIR
    assert names(Path()) == ["folder.ffr"]


@pytest.mark.parametrize("name", ["missing/x.ffr", "missing/there/x.ffr", "link.ffr", "source.tfrecord/x.ffr"])
def test_a_folder_that_is_not_there_is_not_made(
    creator: Callable[..., object], sharding: dict[str, Any], name: str
) -> None:
    if name == "link.ffr" and sharding:
        return  # shards are beside the link
    os.symlink("missing/x.ffr", "link.ffr")
    before = names(Path())
    with pytest.raises(OSError) as caught:
        creator(name, **sharding)
    assert caught.value.errno == (errno.ENOTDIR if name.startswith("source") else errno.ENOENT)
    assert names(Path()) == before


def test_a_folder_that_may_not_be_written_to_is_refused(
    creator: Callable[..., object], sharding: dict[str, Any], tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    for part in (tmp_path, *tmp_path.parents):
        if part.stat().st_uid == os.getuid() and part != Path("/"):
            part.chmod(part.stat().st_mode | 0o011)

    def act() -> int | None:
        if os.geteuid() == 0:
            os.setuid(65534)
        with pytest.raises(PermissionError) as caught:
            creator(str(closed / "x.ffr"), **sharding)
        return caught.value.errno

    os.chmod("source.tfrecord", 0o644)
    assert forked(act) == errno.EACCES
    assert names(closed) == []


# URLs

URLS = ["hdfs://bucket/x.ffr", "FTP://bucket/x.ffr", "hdfs+x://bucket/x.ffr"]
WRITERS: dict[str, Callable[[Any], object]] = {
    "create": lambda target: anyrecord.create(target),
    "create shards": lambda target: anyrecord.create(target, shards=2),
    "convert": lambda target: anyrecord.convert("source.tfrecord", target),
    "convert to shards": lambda target: anyrecord.convert("source.tfrecord", target, shards=2),
    "convert to a folder": lambda target: anyrecord.convert("source.tfrecord", f"{target}/", format="ffrecord"),
    "pack": lambda target: anyrecord.pack("packed", target),
    "recover": lambda target: anyrecord.recover(target, keep="old"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
@pytest.mark.parametrize("url", URLS)
def test_a_url_is_refused_by_its_scheme_though_a_folder_has_its_name(write: Callable[[Any], object], url: str) -> None:
    make()
    os.makedirs("packed")
    scheme = url.partition(":")[0]
    os.makedirs(f"{scheme}:/bucket")
    with pytest.raises(ValueError, match=re.escape(f'the scheme "{scheme}"')):
        write(url)
    assert list(Path(f"{scheme}:").rglob("*")) == [Path(f"{scheme}:/bucket")]
    assert names(Path()) == sorted(["packed", "source.tfrecord", f"{scheme}:"])


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_a_url_is_never_a_local_path_though_a_folder_has_its_name(write: Callable[[Any], object]) -> None:
    make()
    os.makedirs("packed")
    Path("packed/a").write_bytes(b"a")
    os.makedirs("memory:/writing-targets")
    out = write("memory://writing-targets/x.ffr")
    if isinstance(out, anyrecord.Writer):
        out.close()
    assert list(Path("memory:").rglob("*")) == [Path("memory:/writing-targets")]
    assert names(Path()) == sorted(["packed", "source.tfrecord", "memory:"])
    _core.delete_objects([url for url, _ in _core.list_objects("memory://writing-targets", True, [])[0]], [])


@pytest.mark.parametrize(
    "write",
    [write for name, write in WRITERS.items() if "folder" not in name],
    ids=[n for n in WRITERS if "folder" not in n],
)
def test_a_path_object_made_of_a_url_is_refused(write: Callable[[Any], object]) -> None:
    make()
    os.makedirs("gs:/bucket")
    os.makedirs("packed")
    with pytest.raises(ValueError, match=r"looks like a gs:// URL .* pass a URL as a str"):
        write(Path("gs://bucket/x.ffr"))
    assert list(Path("gs:").rglob("*")) == [Path("gs:/bucket")]


@pytest.mark.parametrize("name", ["C:x.ffr", "c://x.ffr", "a:b/x.ffr", "x:y.ffr"])
def test_a_drive_letter_or_a_colon_is_no_scheme(name: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    anyrecord.create(name).discard()
    anyrecord.create(Path(name)).discard()


# Pipes and devices


def test_a_pipe_that_nobody_reads_is_refused_within_seconds(suffix: str) -> None:
    os.mkfifo(f"pipe{suffix}")
    for overwrite in (False, True):
        begin = time.monotonic()
        with pytest.raises(OSError, match="no process opened the pipe for reading within a second") as caught:
            anyrecord.create(f"pipe{suffix}", overwrite=overwrite)
        assert caught.value.errno == errno.ENXIO
        assert 0.9 < time.monotonic() - begin < LIMIT_SECONDS
    assert stat.S_ISFIFO(os.stat(f"pipe{suffix}").st_mode)


def test_a_pipe_whose_reader_comes_late_is_written_to_whole_though_it_is_slow() -> None:
    """The pipe is opened without waiting; writing to it waits as ever."""
    os.mkfifo("pipe.tfrecord")
    records = [bytes([number]) * 50_000 for number in range(100)]

    def read() -> bytes:
        with open("pipe.tfrecord", "rb", buffering=0) as pipe:
            return b"".join(iter(lambda: pipe.read(1000), b""))

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        with anyrecord.create("pipe.tfrecord") as out:
            out.write_many(records)
        data = reader.result(LIMIT_SECONDS)
    assert list(anyrecord.open(data, format="tfrecord")) == records


@pytest.mark.parametrize("sharding", SHARDINGS[1:], ids=str)
def test_shards_of_a_pipe_or_a_device_are_refused(sharding: dict[str, Any]) -> None:
    os.mkfifo("pipe.ffr")
    os.symlink("/dev/null", "device.ffr")
    for name in ("pipe.ffr", "device.ffr"):
        with pytest.raises(ValueError, match="a device or a pipe cannot hold"):
            anyrecord.create(name, **sharding)
    assert names(Path()) == ["device.ffr", "pipe.ffr"]


def test_a_pipe_in_a_folder_is_streamed_to_and_the_other_files_are_published() -> None:
    for name in ("a.tfrecord", "b.tfrecord", "c.tfrecord"):
        make(name)
    os.mkdir("made")
    os.symlink("/dev/null", "made/b.ffr")
    done = anyrecord.convert("?.tfrecord", "made", format="ffrecord", overwrite=True)
    assert done.paths == ("made/a.ffr", "made/b.ffr", "made/c.ffr")
    assert names(Path("made")) == ["a.ffr", "b.ffr", "c.ffr"]
    assert os.readlink("made/b.ffr") == "/dev/null"


# Links


@pytest.fixture
def far() -> Iterator[Path]:
    """A folder on another device, where there is one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def test_a_file_through_a_link_is_staged_beside_its_real_place(far: Path, suffix: str) -> None:
    for exists in (False, True):
        link = Path(f"{exists}{suffix}")
        link.symlink_to(far / link)
        if exists:
            (far / link).write_bytes(b"old")
        with anyrecord.create(link, overwrite=True) as out:
            out.write(b"new")
            assert len(temporary(far)) == 1
            assert temporary(Path()) == []
        assert link.is_symlink()
        assert list(anyrecord.open(link)) == [b"new"]


def test_shards_of_a_link_are_beside_the_link(far: Path, suffix: str) -> None:
    link, real = Path(f"train{suffix}"), far / "real"
    real.write_bytes(b"not of the set")
    link.symlink_to(real)
    for keywords in ({"shards": 2}, {"shard_records": 1, "overwrite": True}):
        with anyrecord.create(link, **keywords) as out:  # type: ignore[arg-type]
            out.write_many([b"a", b"b"])
        assert list(anyrecord.open(f"{link}@2")) == [b"a", b"b"]
    assert names(far) == ["real"]
    assert real.read_bytes() == b"not of the set"
    assert temporary(Path()) == []


def test_links_out_of_the_folder_are_refused_where_many_files_appear_together(far: Path) -> None:
    make("a.tfrecord")
    make("b.tfrecord")
    os.mkdir("made")
    os.symlink(far / "real.ffr", "made/b.ffr")
    with pytest.raises(ValueError, match="is a link to a file in another folder"):
        anyrecord.convert("?.tfrecord", "made", format="ffrecord", overwrite=True)
    os.unlink("made/b.ffr")
    os.symlink("a.ffr", "made/b.ffr")
    with pytest.raises(ValueError, match="are the same file"):
        anyrecord.convert("?.tfrecord", "made", format="ffrecord", overwrite=True)
    os.unlink("made/b.ffr")
    os.symlink("./real.ffr", "made/b.ffr")
    anyrecord.convert("?.tfrecord", "made", format="ffrecord", overwrite=True)
    assert names(Path("made")) == ["a.ffr", "b.ffr", "real.ffr"]
    assert os.readlink("made/b.ffr") == "./real.ffr"


# What a writer says it will publish


def test_paths_are_known_before_as_far_as_they_can_be(tmp_path: Path, suffix: str) -> None:
    one, turns = anyrecord.create(f"one{suffix}"), anyrecord.create(f"turns{suffix}", shards=2)
    filled = anyrecord.create(f"filled{suffix}", shard_records=1)
    shards = [str(tmp_path / f"turns-0000{number}-of-00002{suffix}") for number in range(2)]
    assert (one.paths, turns.paths, filled.paths) == ([str(tmp_path / f"one{suffix}")], shards, [])
    filled.write_many([b"a", b"b", b"c"])
    for writer in (one, turns, filled):
        writer.close()
    assert (one.paths, turns.paths) == ([str(tmp_path / f"one{suffix}")], shards)
    assert filled.paths == [str(tmp_path / f"filled-0000{number}-of-00003{suffix}") for number in range(3)]
    assert sorted(one.paths + turns.paths + filled.paths) == sorted(str(path) for path in tmp_path.iterdir())
    one.paths.clear()
    assert one.paths, "a list of the caller's own"


def test_paths_are_none_where_nothing_is_published(suffix: str) -> None:
    out = anyrecord.create(f"a{suffix}", shards=2)
    out.discard()
    assert out.paths == []
    failed = anyrecord.create(f"a{suffix}", num_records=3)
    assert len(failed.paths) == 1
    with pytest.raises(ValueError, match="announced 3"):
        failed.close()
    assert failed.paths == []
    with open("file", "wb") as file, anyrecord.create(file, format="ffrecord") as out:
        assert out.paths == []
    assert out.paths == []
