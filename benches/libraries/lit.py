"""LitData: samples are read from chunks, which a thread downloads ahead if they are remote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from benches.libraries.job import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Job
from benches.libraries.pictures import Collate

CHUNKS_AHEAD = 8


def version() -> str:
    return f"litdata {metadata.version('litdata')}"


def write(job: Job) -> None:
    from litdata import optimize

    optimize(
        fn=job.sample,
        inputs=list(range(job.count)),
        output_dir=job.folder,
        chunk_bytes=job.shard_bytes,
        num_workers=1,
    )


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    # Its fastest client refuses servers without TLS, and no option of LitData allows them.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True

    def read() -> Iterator[Any]:
        data = StreamingDataset(job.folder, shuffle=True) if job.is_local else remote(job)
        collate = Collate(as_list, job.pictures)
        yield from StreamingDataLoader(data, batch_size=job.batch, num_workers=job.workers, collate_fn=collate)

    def remote(job: Job) -> StreamingDataset:
        return StreamingDataset(
            f"s3://{BUCKET}/{job.prefix}",
            cache_dir=job.folder,
            shuffle=True,
            max_pre_download=CHUNKS_AHEAD,
            storage_options={
                "endpoint_url": job.endpoint,
                "aws_access_key_id": ACCESS_KEY,
                "aws_secret_access_key": SECRET_KEY,
                "region_name": REGION,
            },
        )

    return read


def as_list(samples: list[memoryview]) -> list[bytes]:
    return [bytes(sample) for sample in samples]
