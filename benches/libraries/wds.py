"""WebDataset: reads tar files from beginning to end, several at once with several workers, and shuffles in a buffer."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.libraries.job import Job
from benches.libraries.pictures import Collate
from benches.libraries.signed import signed_url

BUFFER_BYTES = 64_000_000


def version() -> str:
    return f"webdataset {metadata.version('webdataset')}"


def write(job: Job) -> None:
    a_shard = -(-job.count // job.shards)
    for shard in range(job.shards):
        with tarfile.open(Path(job.folder) / name(shard), "w") as out:
            for number in range(shard * a_shard, min(job.count, (shard + 1) * a_shard)):
                sample = job.sample(number)
                entry = tarfile.TarInfo(f"{number:08}.bin")
                entry.size = len(sample)
                out.addfile(entry, io.BytesIO(sample))


def name(shard: int) -> str:
    return f"train-{shard:05}.tar"


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    import webdataset

    urls = [url(job, shard) for shard in range(job.shards)]

    def read() -> Iterator[Any]:
        data = (
            webdataset.WebDataset(urls, shardshuffle=job.shards, empty_check=False)
            .shuffle(BUFFER_BYTES // job.sample_bytes)
            .to_tuple("bin")
            .batched(job.batch, collation_fn=Collate(as_list, job.pictures))
        )
        yield from webdataset.WebLoader(data, batch_size=None, num_workers=job.workers)

    return read


def url(job: Job, shard: int) -> str:
    """A path, or a web address, which WebDataset reads with curl."""
    if job.is_local:
        return str(Path(job.folder) / name(shard))
    return signed_url(job.endpoint, f"{job.prefix}/{name(shard)}")


def as_list(samples: list[tuple[bytes]]) -> list[bytes]:
    return [sample for (sample,) in samples]
