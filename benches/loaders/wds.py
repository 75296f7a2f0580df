"""WebDataset: reads tar files from beginning to end, several at once with several workers, and shuffles in a buffer."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from benches.loaders.job import Job
from benches.loaders.signed import signed_url

BUFFER_BYTES = 64_000_000


def version() -> str:
    return f"webdataset {metadata.version('webdataset')}"


def write(job: Job) -> None:
    a_shard = -(-job.count // job.shards)
    for shard in range(job.shards):
        with tarfile.open(Path(job.folder) / name(shard), "w") as out:
            for number in range(shard * a_shard, min(job.count, (shard + 1) * a_shard)):
                entry = tarfile.TarInfo(f"{number:08}.bin")
                entry.size = job.sample_bytes
                out.addfile(entry, io.BytesIO(job.sample(number)))


def name(shard: int) -> str:
    return f"train-{shard:05}.tar"


def reader(job: Job) -> Callable[[], Iterator[list[bytes]]]:
    import webdataset

    # WebDataset reads web addresses with curl.
    urls = [signed_url(job.endpoint, f"{job.prefix}/{name(shard)}") for shard in range(job.shards)]

    def read() -> Iterator[list[bytes]]:
        data = (
            webdataset.WebDataset(urls, shardshuffle=job.shards, empty_check=False)
            .shuffle(BUFFER_BYTES // job.sample_bytes)
            .to_tuple("bin")
            .batched(job.batch, collation_fn=as_list)
        )
        yield from webdataset.WebLoader(data, batch_size=None, num_workers=job.workers)

    return read


def as_list(samples: list[tuple[bytes]]) -> list[bytes]:
    return [sample for (sample,) in samples]
