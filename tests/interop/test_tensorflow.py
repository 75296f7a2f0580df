"""Against TensorFlow: it reads our TFRecord files, and we read what it writes."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import anyrecord
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytestmark = pytest.mark.framework

RECORDS = [b"", b"x", b"", *(random.Random(5).randbytes(size) for size in (3, 70_000, 1_500_000)), *[b"many"] * 3000]
KINDS: dict[str, Any] = {"": "none", "GZIP": "gzip", "ZLIB": "zlib"}
"""TensorFlow's words for compression, and ours."""


@pytest.fixture(scope="module")
def tf() -> Any:
    """TensorFlow, imported when it is needed: it takes seconds."""
    import tensorflow

    return tensorflow


def read(tf: Any, paths: list[str], kind: str) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(paths, compression_type=kind)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [0, 2])
def test_tensorflow_reads_what_we_write(tf: Any, tmp_path: Path, kind: str, threads: int) -> None:
    path = tmp_path / "ours.tfrecord"
    with anyrecord.create(path, codec=KINDS[kind], threads=threads) as out:
        out.write_many(RECORDS)
    assert read(tf, [str(path)], kind) == RECORDS


@pytest.mark.parametrize("kind", KINDS)
def test_we_read_what_tensorflow_writes(tf: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "theirs.tfrecord"
    with tf.io.TFRecordWriter(str(path), options=tf.io.TFRecordOptions(compression_type=kind)) as out:
        for record in RECORDS:
            out.write(record)
    records = anyrecord.open(path)
    assert list(records) == RECORDS == records[[*range(len(RECORDS))]]
    assert anyrecord.verify(path).ok
    assert anyrecord.info(path).codec == KINDS[kind]
    if not kind:
        with anyrecord.create(tmp_path / "ours.tfrecord") as ours:
            ours.write_many(RECORDS)
        assert (tmp_path / "ours.tfrecord").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".array_record", ".ffr", ".recordio"])
def test_tensorflow_reads_what_is_converted_for_it(tf: Any, tmp_path: Path, kind: str, suffix: str) -> None:
    with anyrecord.create(tmp_path / f"a{suffix}") as out:
        out.write_many(RECORDS)
    done = anyrecord.convert(tmp_path / f"a{suffix}", tmp_path / "a.tfrecord", shards=3, codec=KINDS[kind])
    assert read(tf, [*done.paths], kind) == RECORDS


@pytest.mark.parametrize("kind", KINDS)
def test_examples_survive_the_way_through_another_format(tf: Any, tmp_path: Path, kind: str) -> None:
    def example(number: int) -> bytes:
        value = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
        made = tf.train.Example(features=tf.train.Features(feature={"n": value}))
        return bytes(made.SerializeToString())

    options = tf.io.TFRecordOptions(compression_type=kind)
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord"), options=options) as out:
        for number in range(100):
            out.write(example(number))
    anyrecord.convert(tmp_path / "a.tfrecord", tmp_path / "b.array_record", transpose=True, group_size=10)
    anyrecord.convert(tmp_path / "b.array_record", tmp_path / "c.tfrecord", codec=KINDS[kind])
    parsed = [tf.train.Example.FromString(record) for record in read(tf, [str(tmp_path / "c.tfrecord")], kind)]
    assert [found.features.feature["n"].int64_list.value[0] for found in parsed] == list(range(100))
