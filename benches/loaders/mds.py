"""MosaicML Streaming: a thread downloads shards in the order of their first use, and samples are read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata

from benches.loaders.job import BUCKET, Job


def version() -> str:
    return f"mosaicml-streaming {metadata.version('mosaicml-streaming')}"


def write(job: Job) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=job.folder, columns={"sample": "bytes"}, size_limit=job.shard_bytes) as out:
        for sample in job.samples():
            out.write({"sample": sample})


def reader(job: Job) -> Callable[[], Iterator[list[bytes]]]:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()

    def read() -> Iterator[list[bytes]]:
        data = StreamingDataset(
            remote=f"s3://{BUCKET}/{job.prefix}",
            local=job.folder,
            shuffle=True,
            batch_size=job.batch,
            predownload=job.count,  # as far ahead as it can
        )
        # Forked workers would share the connection that the index came over, and get each other's bytes.
        for stream in data.streams:
            stream._downloader.clean_up()
        yield from DataLoader(data, batch_size=job.batch, num_workers=job.workers, collate_fn=as_list)

    return read


def as_list(samples: list[dict[str, bytes]]) -> list[bytes]:
    return [sample["sample"] for sample in samples]
