"""FFCV: compiles the reading of a batch, which then runs in threads. It delivers tensors, and decodes pictures itself.

Each row of a tensor of bytes is as long as the longest sample of the data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.libraries import pictures
from benches.libraries.job import Job

FILE = "train.beton"


def version() -> str:
    return f"ffcv {metadata.version('ffcv')}"


@dataclass(frozen=True)
class Samples:
    """What its writer asks for: samples by number, each a tuple of fields."""

    job: Job

    def __len__(self) -> int:
        return self.job.count

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        import numpy

        sample = self.job.sample(int(number))  # its writer gives numbers of NumPy
        if not self.job.pictures:
            return (numpy.frombuffer(sample, numpy.uint8),)
        picture, label = pictures.decode(sample)
        return picture.numpy(), label


def write(job: Job) -> None:
    from ffcv.fields import BytesField, IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    picture = {"picture": RGBImageField(write_mode="jpg", jpeg_quality=pictures.QUALITY), "number": IntField()}
    fields = picture if job.pictures else {"sample": BytesField()}
    DatasetWriter(str(Path(job.folder) / FILE), fields, num_workers=1).from_indexed_dataset(Samples(job))


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.bytes import BytesDecoder
    from ffcv.fields.decoders import SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import Squeeze, ToTensor

    picture = {"picture": [SimpleRGBImageDecoder(), ToTensor()], "number": [IntDecoder(), ToTensor(), Squeeze(1)]}
    pipelines = picture if job.pictures else {"sample": [BytesDecoder(), ToTensor()]}

    def read() -> Iterator[Any]:
        data = Loader(
            str(Path(job.folder) / FILE),
            batch_size=job.batch,
            num_workers=job.workers,
            order=OrderOption.RANDOM,
            drop_last=False,
            pipelines=pipelines,
        )
        for batch in data:
            yield batch if job.pictures else batch[0]

    return read
