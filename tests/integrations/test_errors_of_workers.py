"""What of an error arrives in the parent, when it was raised in a worker process: as `docs/errors.md` says."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import anyrecord
import pytest

TEXT = "sample checksum mismatch in "


def damaged(path: Path) -> str:
    with anyrecord.create(path) as out:
        out.write_many([b"cat", b"dog", b"bird"])
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # the last byte of b"dog"
    path.write_bytes(data)
    return str(path)


def read(path: str) -> bytes:
    return anyrecord.open(path)[1]


def raised(act: Callable[[], object]) -> anyrecord.ChecksumError:
    with pytest.raises(anyrecord.ChecksumError) as caught:
        act()
    return caught.value


def parts(error: anyrecord.RecordError) -> tuple[str | None, int | None, int | None]:
    return error.path, error.offset, error.record


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_errors_arrive_whole_from_pools(tmp_path: Path, method: str) -> None:
    path = damaged(tmp_path / "a.ffr")
    context: Any = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        error = raised(pool.submit(read, path).result)
    assert parts(error) == (path, 51, 1)
    assert str(error).startswith(TEXT)
    with context.Pool(1) as pool:
        assert parts(raised(lambda: pool.map(read, [path]))) == (path, 51, 1)


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, where a process with threads is forked
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_class_and_text_arrive_from_workers_of_pytorch(tmp_path: Path, method: str) -> None:
    from torch.utils.data import DataLoader

    path = damaged(tmp_path / "a.ffr")
    records = anyrecord.open(path)

    def load(workers: int) -> anyrecord.ChecksumError:
        context = method if workers else None
        return raised(lambda: list(DataLoader(records, 3, num_workers=workers, multiprocessing_context=context)))

    assert parts(load(0)) == (path, 51, 1)
    error = load(1)
    assert parts(error) == (None, None, None)
    assert str(error).startswith("Caught ChecksumError in DataLoader worker process 0.")
    assert f"{TEXT}{path} at byte 51 (record 1): expected " in str(error)


def test_the_record_of_an_error_is_its_number_in_what_was_opened(tmp_path: Path) -> None:
    with anyrecord.create(tmp_path / "good.ffr") as out:
        out.write_many([b"x"] * 10)
    path = damaged(tmp_path / "bad.ffr")
    records = anyrecord.open([tmp_path / "good.ffr", path])
    order = records.shuffle(seed=3)
    views: list[Callable[[], object]] = [
        lambda: records[11],
        lambda: records[-2],
        lambda: records[[0, 11]],
        lambda: records[5:][6],
        lambda: list(records[5:]),
        lambda: list(order),
        lambda: [list(order.shard(rank, of=2)) for rank in range(2)],
        lambda: records[5:].map(len)[6],
    ]
    for view in views:
        error = raised(view)
        assert parts(error) == (path, 51, 11)
