"""What the original's documentation shows, with nothing but the import changed."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyrecord.compat.array_record.python import array_record_data_source, array_record_module


def write(path: str, records: list[bytes], options: str = "group_size:1") -> str:
    writer = array_record_module.ArrayRecordWriter(path, options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def shards(count: int, each: int) -> list[str]:
    return [
        write(f"data-{shard:05d}-of-{count:05d}.array_record", [b"%d" % (shard * each + i) for i in range(each)])
        for shard in range(count)
    ]


def test_write_then_read_in_sequence() -> None:
    write("output.array_record", [f"Record {i}".encode() for i in range(1000)])
    reader = array_record_module.ArrayRecordReader("output.array_record")
    assert reader.num_records() == 1000
    found = [reader.read() for _ in range(reader.num_records())]
    assert found[0] == b"Record 0"
    assert found[999] == b"Record 999"
    reader.close()


def test_read_all_a_range_and_a_list() -> None:
    write("output.array_record", [f"Record {i}".encode() for i in range(1000)])
    reader = array_record_module.ArrayRecordReader("output.array_record")
    assert len(reader.read_all()) == 1000
    assert reader.read(0, 100) == [f"Record {i}".encode() for i in range(100)]
    assert reader.read([0, 1, 100]) == [b"Record 0", b"Record 1", b"Record 100"]
    reader.close()


def test_a_data_source_over_five_shards() -> None:
    ds = array_record_data_source.ArrayRecordDataSource(shards(5, 200))
    assert len(ds) == 1000
    assert ds[150] == b"150"
    assert ds.__getitems__([10, 100, 200]) == [b"10", b"100", b"200"]
    assert ds[[10, 50, 100, 500]] == [b"10", b"50", b"100", b"500"]
    assert sum(1 for _ in ds) == 1000


@pytest.mark.parametrize(
    "options",
    [
        "group_size:10000,brotli:9,max_parallelism:4",
        "group_size:1000,brotli:6",
        "group_size:1000,zstd:5",
        "group_size:100,snappy",
        "group_size:1,uncompressed",
        "group_size:100,transpose:true",
    ],
)
def test_options_for_batch_and_for_random_reading(options: str) -> None:
    records = [b"sample %d " % i * 10 for i in range(12_000)]
    write("f.array_record", records, options)
    reader = array_record_module.ArrayRecordReader("f.array_record")
    assert reader.read_all() == records
    written = reader.writer_options_string()
    assert written is not None
    assert options.split(",")[0] in written


@pytest.mark.parametrize(
    "options", ["readahead_buffer_size:0,max_parallelism:0", "readahead_buffer_size:64MB,max_parallelism:8", ""]
)
def test_reader_options_for_random_and_for_sequential_reading(options: str) -> None:
    write("f.array_record", [b"%d" % i for i in range(500)])
    reader = array_record_module.ArrayRecordReader("f.array_record", options)
    assert reader.read([499, 0]) == [b"499", b"0"]
    assert reader.read() == b"0"


def test_access_patterns() -> None:
    """The benchmark of the performance guide: the same records in order, at random, and in batches."""
    count = 2000
    path = write("bench.array_record", [np.full(32, i, "<u2").tobytes() for i in range(count)])
    ds = array_record_data_source.ArrayRecordDataSource(
        path, reader_options={"readahead_buffer_size": "0", "max_parallelism": "0"}
    )
    in_order = [ds[i] for i in range(len(ds))]
    order = np.random.default_rng(42).permutation(count)
    at_random = {int(i): ds[i] for i in order}
    batched = [record for start in range(0, count, 64) for record in ds.__getitems__(order[start : start + 64])]
    assert [at_random[i] for i in range(count)] == in_order
    assert batched == [in_order[i] for i in order]


def test_samples_as_json() -> None:
    samples = [
        {"features": [i * 0.5, i * 2.0], "label": i % 3, "metadata": {"id": f"sample_{i}", "split": "train"}}
        for i in range(300)
    ]
    path = write("samples.array_record", [json.dumps(sample).encode("utf-8") for sample in samples])
    ds = array_record_data_source.ArrayRecordDataSource(path)
    assert json.loads(ds[42].decode("utf-8")) == samples[42]
    assert [json.loads(record) for record in ds] == samples


def test_samples_of_text_and_pictures() -> None:
    pictures = [random.Random(i).randbytes(500) for i in range(20)]
    samples = [
        {"image": base64.b64encode(picture).decode("ascii"), "text": f"picture {i}", "size": len(picture)}
        for i, picture in enumerate(pictures)
    ]
    path = write("multi.array_record", [json.dumps(sample).encode() for sample in samples], "group_size:1,brotli:6")
    ds = array_record_data_source.ArrayRecordDataSource(path)
    found: list[Any] = [json.loads(record) for record in ds.__getitems__([19, 0, 7])]
    assert [base64.b64decode(sample["image"]) for sample in found] == [pictures[19], pictures[0], pictures[7]]


def test_parts_of_files() -> None:
    paths = shards(2, 100)
    ds = array_record_data_source.ArrayRecordDataSource([f"{paths[0]}[90:100]", f"{paths[1]}[0:5]"])
    assert list(ds) == [b"%d" % i for i in range(90, 105)]


def test_with_closes_files_and_the_source_goes_on() -> None:
    with array_record_data_source.ArrayRecordDataSource(shards(2, 10)) as ds:
        assert ds[11] == b"11"
    assert ds[12] == b"12"


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes:UserWarning")  # on few cores
def test_a_pytorch_dataset_with_four_workers() -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class ArrayRecordDataset(Dataset[torch.Tensor]):  # type: ignore[misc]  # torch is not type-checked
        def __init__(self, paths: list[str]) -> None:
            self.source = array_record_data_source.ArrayRecordDataSource(paths)

        def __len__(self) -> int:
            return len(self.source)

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.tensor(int(self.source[index]))

    loader = DataLoader(ArrayRecordDataset(shards(5, 100)), batch_size=32, shuffle=True, num_workers=4)
    found = torch.cat(list(loader))
    assert sorted(found.tolist()) == list(range(500))


@pytest.mark.framework
def test_a_grain_pipeline() -> None:
    import grain

    ds = array_record_data_source.ArrayRecordDataSource(shards(5, 64))
    batches = grain.MapDataset.source(ds).shuffle(seed=42).map(int).batch(32)
    assert len(batches) == 10
    found = np.concatenate([batches[i] for i in range(len(batches))])
    assert sorted(found.tolist()) == list(range(320))
    assert found.tolist() != list(range(320))


def test_the_file_is_one_that_everybody_can_read(tmp_path: Path) -> None:
    import anyrecord

    path = write(str(tmp_path / "f.array_record"), [b"one", b"two"])
    assert list(anyrecord.open(path)) == [b"one", b"two"]
    assert anyrecord.verify(path).ok
