"""The check of killed workers finds the mistakes that a store or a queue could make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import _shard_state

from checks import shard_kills
from checks.shard_servers import MemoryServer


class Careless(anyrecord.MemoryStore):
    """A store that does not compare."""

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        return super().compare_set(key, self.get(key), value)


def found(folder: Path, store: Any, schedules: int) -> list[str]:
    with MemoryServer(folder, store) as server:
        tried = shard_kills.run_schedules(server, folder, schedules, seed=5)
    return [*tried.wrong, *tried.uneven, *tried.late]


def test_it_finds_a_store_that_does_not_compare(tmp_path: Path) -> None:
    assert found(tmp_path, Careless(), 8)


def test_it_finds_nothing_with_a_store_that_does(tmp_path: Path) -> None:
    assert found(tmp_path, None, 4) == []


def test_it_finds_a_shard_that_was_completed_twice(tmp_path: Path) -> None:
    """Judges a log and a state that cannot be: two tokens of one shard are completed."""
    store, log = anyrecord.MemoryStore(), tmp_path / "log"
    job = shard_kills.Job("job", 2, 1.0, 0, str(log))
    state = _shard_state.Partition(next=2, token=3, recent=(1, 2, 3))
    store.compare_set("job/0", None, _shard_state.encode(state, "a"))
    log.write_text("claimed 0 1\nclaimed 1 2\ncompleted 1 2\nclaimed 0 3\ncompleted 0 3\n")
    tried = shard_kills.Tried()
    shard_kills.judge(store, tmp_path, job, tried)
    assert tried.uneven == ["job: completed {0: 2, 1: 1} of 2 shards"]


@pytest.mark.parametrize(
    ("line", "what"),
    [("completed 0 3", "returned, but the queue does not know of it"), ("refused 0 1", "raised, but it was done")],
)
def test_it_finds_a_wrong_answer_of_complete(tmp_path: Path, line: str, what: str) -> None:
    store, log = anyrecord.MemoryStore(), tmp_path / "log"
    job = shard_kills.Job("job", 1, 1.0, 0, str(log))
    state = _shard_state.Partition(next=1, token=3, recent=(1,))
    store.compare_set("job/0", None, _shard_state.encode(state, "a"))
    log.write_text(f"claimed 0 1\nclaimed 0 3\n{line}\n")
    tried = shard_kills.Tried()
    shard_kills.judge(store, tmp_path, job, tried)
    (violation,) = [*tried.uneven, *tried.late]
    assert what in violation
