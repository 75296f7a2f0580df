"""anyrecord: from a store, it fetches records as they are needed, without a local copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.libraries.job import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Job

BLOCK_BYTES, BLOCK_RECORDS = 256_000, 10
"""A block has at least so many bytes and records."""
WINDOW = 16
"""Blocks that are mixed with one another."""

OPTIONS: dict[str, dict[str, Any]] = {
    ".ffr": {},
    ".array_record": {"codec": "none", "group_size": 1},
}


def version() -> str:
    return f"anyrecord {metadata.version('anyrecord')}"


def write(job: Job) -> None:
    import anyrecord

    suffix = Path(job.prefix).suffix
    path = Path(job.folder) / f"train{suffix}"
    with anyrecord.create(path, shards=job.shards, durable=False, **OPTIONS[suffix]) as out:
        out.write_many(job.samples())


def reader(job: Job) -> Callable[[], Iterator[list[bytes]]]:
    import anyrecord

    def read() -> Iterator[list[bytes]]:
        with anyrecord.open(f"s3://{BUCKET}/{job.prefix}/{name(job)}", storage=storage(job.endpoint)) as records:
            yield from records.shuffle(seed=1, **shuffle_options(job)).batches(job.batch)

    return read


def name(job: Job) -> str:
    """The name of the data set in its folder."""
    return f"train{Path(job.prefix).suffix}@{job.shards}"


def shuffle_options(job: Job) -> dict[str, int]:
    block = max(BLOCK_BYTES // job.sample_bytes, BLOCK_RECORDS)
    return {} if job.full_shuffle else {"block": block, "window": WINDOW}


def storage(endpoint: str) -> dict[str, str]:
    return {
        "endpoint": endpoint,
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "allow_http": "true",
    }
