"""The examples of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat.array_record.beam import example as ours

from .beam_files import read_by_original

# TensorFlow, and the original, which imports it, are imported when a test needs them: a process that has imported
# TensorFlow first aborts when it imports Lightning, as other tests do when they are collected.


@pytest.fixture(scope="module")
def tf() -> Any:
    import tensorflow

    return tensorflow


@pytest.fixture(scope="module")
def original() -> Any:
    import array_record.beam.example

    return array_record.beam.example


def test_the_examples_are_those_of_the_original(tf: Any, original: Any) -> None:
    assert ours.generate_movie_examples() == original.generate_movie_examples()
    parsed = [tf.train.Example.FromString(record) for record in ours.generate_serialized_movie_examples()]
    assert parsed == original.generate_movie_examples()


def test_files_of_one_example(tf: Any, tmp_path: Path) -> None:
    movie = ours.generate_movie_examples()[2]
    for _ in range(2):  # an older file is replaced
        ours.write_example_to_tfrecord(movie, str(tmp_path / "a.x"))
        ours.write_example_to_arrayrecord(movie, str(tmp_path / "b.x"))
    for record in (
        *tf.data.TFRecordDataset(str(tmp_path / "a.x")).as_numpy_iterator(),
        *read_by_original(tmp_path / "b.x"),
    ):
        assert tf.train.Example.FromString(record) == movie


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of the original
def test_a_picture_of_a_cat(tf: Any, original: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The picture is where Keras keeps what it has downloaded, so nothing is downloaded.
    picture = tf.io.encode_jpeg(tf.zeros((4, 6, 3), tf.uint8)).numpy()
    monkeypatch.setattr("keras.src.utils.file_utils.config.keras_home", lambda: str(tmp_path / "keras"))
    (tmp_path / "keras" / "datasets").mkdir(parents=True)
    (tmp_path / "keras" / "datasets" / "320px-Felis_catus-cat_on_snow.jpg").write_bytes(picture)
    found = []
    for side, module in (("ours", ours), ("theirs", original)):
        (tmp_path / side).mkdir()
        module.kitty_tfrecord(str(tmp_path / side))
        [record] = anyrecord.open(tmp_path / side / "kittymeow.tfrecord")
        found.append(tf.train.Example.FromString(record))
    assert found[0] == found[1]
    assert found[0].features.feature["width"].int64_list.value == [6]
