"""Pictures: made on the spot, and decoded to tensors. All libraries decode them with the same function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

NUMBER_BYTES = 8
"""Each sample begins with its number, so it is known which samples arrived. It is the label of a picture."""
SIDE = 256
DIFFERENT = 256
"""So many pictures are made. Samples repeat them, with other numbers."""
QUALITY = 90


def make() -> list[bytes]:
    """JPEG pictures: smooth areas and some noise. They have about 20 KB."""
    import cv2
    import numpy

    chance = numpy.random.default_rng(7)
    made = []
    for _ in range(DIFFERENT):
        areas = chance.integers(0, 256, (12, 12, 3)).astype(numpy.float32)
        smooth = cv2.resize(areas, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        noisy = smooth + chance.normal(0, 6, smooth.shape)
        encoded = cv2.imencode(".jpg", noisy.clip(0, 255).astype(numpy.uint8), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
        made.append(encoded.tobytes())
    return made


def decode(sample: bytes) -> tuple[Any, int]:
    """A picture as a tensor of height, width and color, and its number. OpenCV releases the interpreter's lock."""
    import cv2
    import numpy
    import torch

    picture = cv2.imdecode(numpy.frombuffer(sample, numpy.uint8, offset=NUMBER_BYTES), cv2.IMREAD_COLOR)
    return torch.from_numpy(picture), int.from_bytes(sample[:NUMBER_BYTES], "little")


def collate(samples: Iterable[tuple[Any, int]]) -> tuple[Any, Any]:
    """One tensor of all pictures and one of their numbers, as PyTorch's default function makes them."""
    import torch

    found, numbers = zip(*samples, strict=True)
    return torch.stack(found), torch.tensor(numbers)


def numbers(found: Any, labels: Any) -> list[int]:
    """The numbers of a batch, if it has a picture for each."""
    if tuple(found.shape) != (len(labels), SIDE, SIDE, 3):
        raise SystemExit(f"{len(labels)} pictures came as a tensor of {tuple(found.shape)}")
    made: list[int] = labels.tolist()
    return made


@dataclass(frozen=True)
class Collate:
    """Makes a batch of what a library delivers: bytes, or decoded pictures. Worker processes can get it."""

    as_list: Callable[[Any], list[bytes]]
    """Makes a list of bytes of it."""
    pictures: bool

    def __call__(self, samples: Any) -> Any:
        found = self.as_list(samples)
        return collate(map(decode, found)) if self.pictures else found
