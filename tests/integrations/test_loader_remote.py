"""A `Loader` over files on servers: it reads ahead as iteration does."""

from __future__ import annotations

from typing import Any

import anyrecord
import pytest
from remote.files import bytes_of
from remote.servers import Played

from .loading import numbers, order

pytestmark = pytest.mark.framework

N = 2000


def test_a_loader_reads_ahead_from_a_server() -> None:
    from anyrecord.torch import ElasticSampler, Loader

    contents = [b"%d" % i for i in range(N)]
    with Played({"a.array_record": bytes_of("array_record", contents, codec="none", group_size=1)}) as server:
        records = anyrecord.open(server.url("a.array_record"), storage=server.storage)
        for keywords, expected in (
            ({"shuffle": True, "seed": 1}, order(N)),
            ({"shuffle": True, "seed": 1, "window": 4, "block": 100, "rank": 1, "world": 2}, None),
            ({"decode": int, "rank": 2, "world": 3, "tail": "uneven"}, list(range(2, N, 3))),
            ({"decode": len, "processes": 1}, [len(record) for record in contents]),
        ):
            options: Any = keywords
            batches = Loader(records, 50, **options)
            assert numbers(batches) == (expected or list(ElasticSampler(records, **options)))


def test_records_next_to_each_other_are_not_fetched_one_by_one() -> None:
    from anyrecord.torch import Loader

    contents = [b"%d" % i * 1000 for i in range(N)]
    with Played({"a.ffr": bytes_of("ffrecord", contents)}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage=server.storage)
        before = records.stats().requests
        assert [record for batch in Loader(records, 50) for record in batch] == contents
        assert records.stats().requests - before < len(contents) / 20


def test_batches_ahead_are_fetched_at_the_same_time() -> None:
    """Without reading ahead, each batch would wait for its own request."""
    from anyrecord.torch import Loader

    contents = [b"%d" % i * 1000 for i in range(300)]
    with Played({"a.ffr": bytes_of("ffrecord", contents)}, gate=True) as server:
        records = anyrecord.open(server.url("a.ffr"), storage=server.storage)
        for threads in (0, 1):
            before = server.waves
            batches = Loader(records, 1, shuffle=True, seed=threads, threads=threads, prefetch=1)
            assert sorted(numbers(batches)) == sorted(int(record) for record in contents)
            assert server.waves - before < len(contents) / 4
