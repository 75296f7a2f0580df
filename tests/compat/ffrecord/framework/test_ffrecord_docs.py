"""Every example of the original's documentation, with nothing but the import changed."""

# mypy: disable-error-code="name-defined, attr-defined"
# A module that is reached through a shorter name.

from __future__ import annotations

import pickle
from typing import Any

import anyrecord.compat.ffrecord as ffrecord
import cv2
import numpy as np
import pytest
from anyrecord.compat.ffrecord import FileReader, FileWriter, PackedFolder, pack_folder

pytestmark = [pytest.mark.framework, pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")]


def write(fname: str, samples: list[Any]) -> None:
    n = len(samples)
    writer = FileWriter(fname, n)
    for i in range(n):
        writer.write_one(pickle.dumps(samples[i]))
    writer.close()


def test_write_and_read(capsys: pytest.CaptureFixture[str]) -> None:
    write("test.ffr", list(range(100)))

    reader = FileReader("test.ffr", check_data=True)
    print(f"Number of samples: {reader.n}")
    indices = [3, 6, 0, 10]
    data: list[Any] = reader.read(indices)
    samples = [pickle.loads(data[i]) for i in range(len(indices))]
    reader.close()

    assert samples == indices
    assert capsys.readouterr().out == "Number of samples: 100\n"


class FirstDataset(ffrecord.torch.Dataset):
    """As the first documentation has it."""

    def __init__(self, fname: str, check_data: bool = True, transform: Any = None) -> None:
        super().__init__(fname, check_data)
        self.transform = transform

    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        samples = [pickle.loads(b) for b in data]
        if self.transform:
            samples = [self.transform(s) for s in samples]
        return samples


class LaterDataset(ffrecord.torch.Dataset):
    """As the later documentation has it."""

    def __init__(self, fname: str, check_data: bool = True, transform: Any = None) -> None:
        self.reader = FileReader(fname, check_data)
        self.transform = transform

    def __len__(self) -> int:
        return self.reader.n

    def __getitem__(self, indices: list[int]) -> list[Any]:
        assert isinstance(indices, list)
        data: list[Any] = self.reader.read(indices)
        samples = [pickle.loads(b) for b in data]
        if self.transform:
            samples = [self.transform(s) for s in samples]
        return samples


@pytest.mark.parametrize("dataset_class", [FirstDataset, LaterDataset])
def test_dataset_and_loader(dataset_class: Any) -> None:
    write("train.ffr", list(range(100)))
    dataset = dataset_class("train.ffr")
    indices = [3, 4, 1, 0]
    assert dataset[indices] == indices
    assert dataset_class("train.ffr", transform=lambda s: -s)[indices] == [-3, -4, -1, 0]

    loader = ffrecord.torch.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=8)
    seen: list[int] = []
    for i, batch in enumerate(loader):
        assert len(batch) == (16 if i < 6 else 4)
        seen += batch.tolist()
    assert sorted(seen) == list(range(100))
    assert seen != sorted(seen)


@pytest.mark.parametrize("dataset_class", [FirstDataset, LaterDataset])
def test_resume_at_epoch_5_step_100(dataset_class: Any) -> None:
    write("train.ffr", list(range(16 * 103)))
    dataset = dataset_class("train.ffr")
    loader = ffrecord.torch.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=8)

    start_epoch = 5
    start_step = 100
    epochs = 7
    loader.set_step(start_step)
    steps = []
    for _epoch in range(start_epoch, epochs):
        steps.append(sum(1 for _ in enumerate(loader)))
        loader.set_step(0)
    assert steps == [3, 103]


def test_an_image_from_a_packed_folder(tmp_path: Any) -> None:
    root = tmp_path / "just_a_folder"
    root.mkdir()
    image = np.random.default_rng(0).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    assert cv2.imwrite(str(root / "image.png"), image)
    pack_folder(root, "packed.ffr")
    folder = PackedFolder("packed.ffr")
    for data in (folder.read_one("image.png"), folder.read("image.png")):
        assert np.array_equal(cv2.imdecode(data, cv2.IMREAD_COLOR), image)
