"""The model of the queue finds every mistake that is put into the protocol. Without one, see tests/reliability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anyrecord import _shard_state
from anyrecord._shard_state import Partition

from checks.shards_model import Model


def complete_without_token(state: Partition, shard: int, token: int) -> Partition | None:
    held = state.find(shard)
    return None if held is None else real["complete"](state, shard, held.token)._replace(recent=(*state.recent, token))


def complete_without_trace(state: Partition, shard: int, token: int) -> Partition | None:
    done: Partition | None = real["complete"](state, shard, token)
    return None if done is None else done._replace(recent=state.recent)


def claim_with_the_old_token(state: Partition, *args: Any, **keywords: Any) -> Partition | None:
    wanted: Partition | None = real["claim"](state, *args, **keywords)
    if wanted is None or wanted.next > state.next:
        return wanted
    last = wanted.held[-1]
    before = [held.token for held in state.held if held.shard == last.shard]
    return wanted._replace(held=(*wanted.held[:-1], last._replace(token=before[0]))) if before else wanted


def claim_that_never_takes_over(state: Partition, *args: Any, **keywords: Any) -> Partition | None:
    keywords["is_expired"] = lambda held: False
    return real["claim"](state, *args, **keywords)  # type: ignore[no-any-return]


def claim_that_forgets_the_holder(state: Partition, *args: Any, **keywords: Any) -> Partition | None:
    wanted: Partition | None = real["claim"](state, *args, **keywords)
    return wanted if wanted is None or wanted.next == state.next else wanted._replace(held=wanted.held[-1:])


def release_that_loses(state: Partition, shard: int, token: int) -> Partition | None:
    free: Partition | None = real["release"](state, shard, token)
    return None if free is None else free._replace(waiting=state.waiting)


def release_without_token(state: Partition, shard: int, token: int) -> Partition | None:
    return state._replace(held=(), waiting=tuple(sorted({*state.waiting, shard})))


real: dict[str, Any] = {name: getattr(_shard_state, name) for name in ("claim", "complete", "release", "expire")}


def expire_that_loses(state: Partition, is_expired: Callable[[Any], bool]) -> Partition | None:
    free: Partition | None = real["expire"](state, is_expired)
    return None if free is None else free._replace(waiting=state.waiting)


MISTAKES: list[tuple[Callable[..., Partition | None], str]] = [
    (complete_without_token, "with an old token|hears the wrong answer"),
    (complete_without_trace, "hears the wrong answer"),
    (claim_with_the_old_token, "does not grow"),
    (claim_that_never_takes_over, "a worker alone cannot complete all"),
    (claim_that_forgets_the_holder, "is in 0 places"),
    (release_that_loses, "is in 0 places"),
    (expire_that_loses, "is in 0 places"),
    (release_without_token, "is in [02] places"),
]


@pytest.mark.parametrize(("mistake", "found"), MISTAKES)
def test_a_mistake_in_the_protocol_is_found(
    mistake: Callable[..., Partition | None], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shard_state, mistake.__name__.partition("_")[0], mistake)
    model = Model(2, 2, 0)
    model.explore()
    if not model.wrong:
        model.look_for_dead_ends()
    assert len(model.wrong) == 1
    with pytest.raises(AssertionError, match=found):
        raise AssertionError(model.wrong[0])
