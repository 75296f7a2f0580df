"""MosaicML Streaming: samples are read from shards. A thread downloads remote ones in the order of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from benches.libraries.job import BUCKET, Job
from benches.libraries.pictures import Collate


def version() -> str:
    return f"mosaicml-streaming {metadata.version('mosaicml-streaming')}"


def write(job: Job) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=job.folder, columns={"sample": "bytes"}, size_limit=job.shard_bytes) as out:
        for sample in job.samples():
            out.write({"sample": sample})


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()

    def read() -> Iterator[Any]:
        data = StreamingDataset(
            remote=None if job.is_local else f"s3://{BUCKET}/{job.prefix}",
            local=job.folder,
            shuffle=True,
            batch_size=job.batch,
            predownload=job.count,  # as far ahead as it can
        )
        if not job.is_local:
            # Forked workers would share the connection that the index came over, and get each other's bytes.
            for stream in data.streams:
                stream._downloader.clean_up()
        collate = Collate(as_list, job.pictures)
        yield from DataLoader(data, batch_size=job.batch, num_workers=job.workers, collate_fn=collate)

    return read


def as_list(samples: list[dict[str, bytes]]) -> list[bytes]:
    return [sample["sample"] for sample in samples]
