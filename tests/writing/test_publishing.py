"""A file appears under its name whole, at close, or not at all."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import anyrecord
import pytest
from anyrecord import ClosedError
from children import LIMIT_SECONDS, forked

from writing.folders import names, temporary


@pytest.fixture
def path(tmp_path: Path, suffix: str) -> Path:
    return tmp_path / f"train{suffix}"


def write(path: Path, *records: bytes) -> bytes:
    """Writes a file, and returns its bytes."""
    with anyrecord.create(path, overwrite=True, durable=False) as out:
        out.write_many(records)
    return path.read_bytes()


def test_nothing_appears_under_the_name_before_close(path: Path) -> None:
    out = anyrecord.create(path)
    pattern = rf"\.{re.escape(path.name)}(\.samples\.tfrecord)?\.\w{{6,}}\.tmp"
    for _ in range(20):
        out.write(b"x" * 1_000_000)
        found = names(path.parent)
        assert all(re.fullmatch(pattern, name) for name in found)
        assert 1 <= len(found) <= 2
    out.close()
    assert names(path.parent) == [path.name]
    assert list(anyrecord.open(path)) == [b"x" * 1_000_000] * 20


def test_an_old_file_stays_until_the_new_one_is_whole(path: Path) -> None:
    old = write(path, b"old")
    with anyrecord.create(path, overwrite=True) as out:
        out.write(b"new" * 1_000_000)
        assert path.read_bytes() == old
        assert temporary(path.parent)
    assert list(anyrecord.open(path)) == [b"new" * 1_000_000]
    assert names(path.parent) == [path.name]


def test_two_writers_of_one_name_do_not_meet(path: Path) -> None:
    first, second = anyrecord.create(path), anyrecord.create(path)
    first.write(b"first")
    second.write(b"second")
    assert len(temporary(path.parent)) == 2
    second.close()
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        first.close()
    assert caught.value.filename == str(path)
    assert names(path.parent) == [path.name]
    assert list(anyrecord.open(path)) == [b"second"]


def test_an_existing_file_is_refused_at_once(path: Path) -> None:
    old = write(path, b"old")
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        anyrecord.create(path)
    assert caught.value.filename == str(path)
    assert names(path.parent) == [path.name]
    assert path.read_bytes() == old


def by_exception(out: anyrecord.Writer) -> None:
    with pytest.raises(LookupError, match="mine"), out:
        raise LookupError("mine")


def by_interrupt(out: anyrecord.Writer) -> None:
    with pytest.raises(KeyboardInterrupt), out:
        signal.raise_signal(signal.SIGINT)


def by_discard(out: anyrecord.Writer) -> None:
    out.discard()
    out.discard()


def by_discard_in_a_block(out: anyrecord.Writer) -> None:
    with out:
        out.discard()


@pytest.mark.parametrize("end", [by_exception, by_interrupt, by_discard, by_discard_in_a_block])
@pytest.mark.parametrize("shards", [None, 3])
def test_a_writer_that_is_given_up_leaves_everything_as_it_was(
    path: Path, end: Callable[[anyrecord.Writer], None], shards: int | None
) -> None:
    old = write(path, b"old")
    out = anyrecord.create(path, overwrite=True, shards=shards)
    out.write_many([b"x" * 1_000_000] * 10)
    assert len(temporary(path.parent)) >= (shards or 1)
    end(out)
    assert names(path.parent) == [path.name]
    assert path.read_bytes() == old
    assert out.closed
    with pytest.raises(ClosedError, match="discarded"):
        out.write(b"more")
    with pytest.raises(ClosedError, match="discarded"):
        out.close()
    assert names(path.parent) == [path.name]


def test_a_dropped_writer_warns_and_leaves_nothing(path: Path) -> None:
    out = anyrecord.create(path)
    out.write(b"lost")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del out
        gc.collect()
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert str(path) in str(warning.message)
    assert "nothing was published" in str(warning.message)
    assert names(path.parent) == []


@pytest.mark.parametrize("end", ["close", "discard", "refused"])
def test_a_writer_that_was_ended_does_not_warn_when_dropped(path: Path, end: str) -> None:
    out = anyrecord.create(path, num_records=1 if end == "refused" else None)
    match end:
        case "close":
            out.close()
        case "discard":
            out.discard()
        case "refused":
            with pytest.raises(ValueError, match="0 records written"):
                out.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del out
        gc.collect()
    assert caught == []
    assert names(path.parent) == ([path.name] if end == "close" else [])


def test_closing_twice_and_closing_in_the_block_are_fine(path: Path) -> None:
    with anyrecord.create(path) as out:
        out.write(b"a")
        out.close()
        whole = path.read_bytes()
        out.close()
    out.close()
    assert path.read_bytes() == whole
    with pytest.raises(ClosedError, match="closed"):
        out.write(b"b")
    with pytest.raises(ValueError, match="published already"):
        out.discard()
    assert path.read_bytes() == whole


def test_an_exception_after_close_in_the_block_leaves_the_published_file(path: Path) -> None:
    def close_and_fail() -> None:
        with anyrecord.create(path) as out:
            out.write(b"a")
            out.close()
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        close_and_fail()
    assert list(anyrecord.open(path)) == [b"a"]


def test_a_wrong_number_of_records_publishes_nothing(path: Path) -> None:
    out = anyrecord.create(path, num_records=2)
    out.write_many([b"1", b"2"])
    with pytest.raises(ValueError, match="more records than the 2 announced"):
        out.write(b"3")
    out.close()  # the one too many was refused, and the others are good
    assert list(anyrecord.open(path)) == [b"1", b"2"]
    path.unlink()
    with pytest.raises(ValueError, match="1 records written, but num_records announced 2"):  # noqa: SIM117
        with anyrecord.create(path, num_records=2) as out:
            out.write(b"1")
    assert names(path.parent) == []


STAGES = {
    "begun": "",
    "in the middle": "out.write_many([bytes(1 << 20)] * 20)",
    "whole, not published": "out.write_many([bytes(1 << 20)] * 20); out._seal()",
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
@pytest.mark.parametrize("num_records", [None, 20])
def test_a_kill_leaves_the_old_file_byte_for_byte(path: Path, stage: str, num_records: int | None) -> None:
    old = write(path, b"old" * 1000)
    script = f"""if True:
        import anyrecord, signal, sys
        out = anyrecord.create(sys.argv[1], overwrite=True, num_records={num_records})
        {stage}
        print("there", flush=True)
        signal.pause()
    """
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        child.kill()
        assert child.wait(LIMIT_SECONDS) == -signal.SIGKILL
    assert path.read_bytes() == old
    left = temporary(path.parent)
    assert left
    assert all(name.startswith(f".{path.name}.") for name in left)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with anyrecord.create(path, overwrite=True) as out:  # what was left is in nobody's way
            out.write(b"next")
    assert list(anyrecord.open(path)) == [b"next"]
    # A folder is read without it.
    assert anyrecord.open(path.parent).paths == [str(path)]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o000, 0o666), (0o027, 0o640)])
def test_permissions_are_those_of_any_new_file(path: Path, umask: int, mode: int) -> None:
    def write_under_umask() -> None:
        os.umask(umask)
        write(path, b"a")
        with anyrecord.create(path, shards=2) as out:
            out.write(b"a")

    forked(write_under_umask)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {mode}
    assert len(names(path.parent)) == 3


def test_a_symlink_is_followed_and_stays(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real"
    real.parent.mkdir()
    path.symlink_to("middle")
    (tmp_path / "middle").symlink_to(Path("elsewhere") / "real")
    for content in (b"made", b"replaced"):  # the first time it leads nowhere
        with anyrecord.create(path, overwrite=True) as out:
            out.write(content)
            (under_way,) = temporary(real.parent)
            assert under_way.startswith(".real.")
        assert path.is_symlink()
        assert (tmp_path / "middle").is_symlink()
        assert list(anyrecord.open(real)) == [content]
    assert names(tmp_path) == sorted(["elsewhere", "middle", path.name])
    with pytest.raises(FileExistsError):
        anyrecord.create(path)


def test_a_name_as_long_as_the_system_allows_can_be_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / ("é" * ((255 - len(suffix)) // 2) + suffix)
    write(path, b"a")
    assert list(anyrecord.open(path)) == [b"a"]


def test_a_folder_that_vanishes_before_close_is_an_error(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    out = anyrecord.create(folder / f"a{suffix}")
    out.write(b"a")
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError) as caught:
        out.close()
    assert caught.value.filename == str(folder / f"a{suffix}")
    with pytest.raises(ClosedError, match="discarded after an error"):
        out.close()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_takes_the_name_before_close_is_an_error_and_stays(path: Path, overwrite: bool) -> None:
    out = anyrecord.create(path, overwrite=overwrite)
    out.write(b"a")
    path.mkdir()
    with pytest.raises(OSError) as caught:
        out.close()
    assert caught.value.filename == str(path)
    assert names(path.parent) == [path.name]
    assert path.is_dir()


@pytest.mark.parametrize("durable", [True, False])
def test_the_bytes_are_the_same_durable_or_not_counted_or_not(path: Path, durable: bool) -> None:
    records = [b"a" * size for size in range(100)]
    with anyrecord.create(path, durable=durable) as out:
        out.write_many(records)
    with anyrecord.create(path.with_name(f"counted{path.suffix}"), durable=durable, num_records=100) as out:
        out.write_many(records)
    assert path.read_bytes() == path.with_name(f"counted{path.suffix}").read_bytes() == write(path, *records)


def test_a_file_appears_where_it_was_asked_for_though_the_folder_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    out = anyrecord.create("here.ffr")
    monkeypatch.chdir(tmp_path / "elsewhere")
    out.close()
    assert (tmp_path / "here.ffr").exists()


def test_an_announced_number_takes_no_disk_before_the_records_come(tmp_path: Path) -> None:
    with anyrecord.create(tmp_path / "a.ffr", num_records=10**9) as out:
        (temp,) = tmp_path.iterdir()
        assert temp.stat().st_blocks * 512 < 1 << 20
        out.discard()
