"""A shuffled epoch in TensorFlow, read in each way of docs/tensorflow.md, beside TensorFlow's own reader.

    python examples/tensorflow_epoch.py                  # 100,000 records of 1 KB: 200 MB in a temporary folder
    python examples/tensorflow_epoch.py --records 2000   # a quick look

Prints records a second, the best of some rounds. Files are in the page cache.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import numpy

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
RECORD_BYTES = 1000
BATCH = 256
PARTS = 4


def write(folder: Path, records: int) -> tuple[anyrecord.Records, str]:
    """The same records as FFRecord and as TFRecord."""
    pool = random.Random(1).randbytes(1_000_000)
    starts = (i * 7919 % (len(pool) - RECORD_BYTES) for i in range(records))
    with anyrecord.create(folder / "train.ffr", durable=False) as out:
        out.write_many(pool[start : start + RECORD_BYTES] for start in starts)
    (path,) = anyrecord.convert(folder / "train.ffr", folder / "train.tfrecord", durable=False).paths
    return anyrecord.open(folder / "train.ffr"), path


def ways(tf: Any, records: anyrecord.Records, path: str) -> dict[str, Callable[[], Any]]:
    """A function for each way, which makes a dataset of batches."""
    data, order = tf.data.Dataset, records.shuffle(seed=42)
    batches = (len(order) + BATCH - 1) // BATCH
    string, strings, parallel = tf.TensorSpec([], tf.string), tf.TensorSpec([None], tf.string), tf.data.AUTOTUNE

    def read_batch(batch: int) -> Any:
        return numpy.array(order[range(batch * BATCH, min((batch + 1) * BATCH, len(order)))], dtype=object)

    def read_numbers(numbers: Any) -> Any:
        return numpy.array(records[numbers], dtype=object)

    def read_packed(batch: int) -> Any:
        return order.read_packed(slice(batch * BATCH, (batch + 1) * BATCH)).numpy()

    def read_range(part: Any) -> Any:
        begin, end = (len(order) * (int(part) + i) // PARTS for i in range(2))
        return order[begin:end].batches(BATCH)

    def ragged(batch: Any) -> Any:
        packed, offsets = tf.numpy_function(read_packed, [batch], [tf.uint8, tf.int64])
        return tf.RaggedTensor.from_row_splits(tf.ensure_shape(packed, [None]), tf.ensure_shape(offsets, [None]))

    def one_range(part: Any) -> Any:
        return data.from_generator(read_range, output_signature=strings, args=(part,))

    def call(function: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda number: tf.ensure_shape(tf.numpy_function(function, [number], tf.string), [None])

    numbers = data.range(len(records)).shuffle(len(records)).batch(BATCH)
    return {
        "batches from a generator": lambda: data.from_generator(lambda: order.batches(BATCH), output_signature=strings),
        "a function of the batch number": lambda: data.range(batches).map(call(read_batch), parallel),
        "a function of record numbers": lambda: numbers.map(call(read_numbers), parallel),
        "ranges side by side": lambda: data.range(PARTS).interleave(one_range, PARTS, num_parallel_calls=parallel),
        "packed batches": lambda: data.range(batches).map(ragged, parallel),
        "single records from a generator": lambda: data.from_generator(lambda: order, output_signature=string).batch(
            BATCH
        ),
        "TFRecordDataset, in order": lambda: tf.data.TFRecordDataset(path).batch(BATCH),
        "TFRecordDataset, shuffle(10_000)": lambda: tf.data.TFRecordDataset(path).shuffle(10_000).batch(BATCH),
    }


def epoch(make: Callable[[], Any], records: int) -> float:
    """Seconds for every record once."""
    begin = time.perf_counter()
    count = sum(int(batch.shape[0]) for batch in make().prefetch(2))
    took = time.perf_counter() - begin
    if count != records:
        raise SystemExit(f"{count} records came of {records}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="how many records (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way is tried (default: %(default)s)")
    options = parser.parse_args()
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        records, path = write(Path(folder), options.records)
        print(f"{options.records:,} records of {RECORD_BYTES} bytes, in batches of {BATCH}")
        for what, make in ways(tf, records, path).items():
            seconds = min(epoch(make, options.records) for _ in range(options.rounds))
            print(f"{what:<40} {options.records / seconds:>12,.0f} records/s", flush=True)


if __name__ == "__main__":
    main()
