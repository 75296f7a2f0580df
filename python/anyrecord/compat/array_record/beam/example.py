"""Examples made of `testdata`, as `tf.train.Example` and as files. Only calls need TensorFlow, not the import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord.compat.array_record.beam import testdata

__all__ = [
    "generate_movie_examples",
    "generate_serialized_movie_examples",
    "kitty_tfrecord",
    "write_example_to_arrayrecord",
    "write_example_to_tfrecord",
]

_CAT = "320px-Felis_catus-cat_on_snow.jpg"
_CAT_URL = f"https://storage.googleapis.com/download.tensorflow.org/example_images/{_CAT}"


def generate_movie_examples() -> list[Any]:
    """Returns the rows of `testdata.data` as `tf.train.Example`s."""
    train = _tensorflow().train

    def strings(values: list[str]) -> Any:
        return train.Feature(bytes_list=train.BytesList(value=[value.encode() for value in values]))

    def floats(values: list[float]) -> Any:
        return train.Feature(float_list=train.FloatList(value=values))

    return [
        train.Example(
            features=train.Features(
                feature={
                    "Age": train.Feature(int64_list=train.Int64List(value=[row["Age"]])),
                    "Movie": strings(row["Movie"]),
                    "Movie Ratings": floats(row["Movie Ratings"]),
                    "Suggestion": strings([row["Suggestion"]]),
                    "Suggestion Purchased": floats([row["Suggestion Purchased"]]),
                    "Purchase Price": floats([row["Purchase Price"]]),
                }
            )
        )
        for row in testdata.data
    ]


def generate_serialized_movie_examples() -> list[bytes]:
    """Returns the examples as bytes, as record files hold them."""
    return [example.SerializeToString() for example in generate_movie_examples()]


def write_example_to_tfrecord(example: Any, file_path: str | os.PathLike[str]) -> None:
    """Writes one example to a TFRecord file."""
    _write(example, file_path, "tfrecord")


def write_example_to_arrayrecord(example: Any, file_path: str | os.PathLike[str]) -> None:
    """Writes one example to an ArrayRecord file."""
    _write(example, file_path, "array_record", group_size=1)


def _write(example: Any, path: str | os.PathLike[str], format: str, **options: int) -> None:
    with anyrecord.create(path, format=format, overwrite=True, **options) as out:  # type: ignore[arg-type]
        out.write(example.SerializeToString())


def kitty_tfrecord(prefix: str | os.PathLike[str] = "") -> None:
    """Downloads a picture of a cat, and writes it to `kittymeow.tfrecord` in the folder `prefix`."""
    tf = _tensorflow()
    picture = Path(tf.keras.utils.get_file(_CAT, _CAT_URL)).read_bytes()
    height, width, depth = tf.io.decode_jpeg(picture).shape
    numbers = {"height": height, "width": width, "depth": depth, "label": 0}
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=[number])) for name, number in numbers.items()
    }
    feature["image_raw"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[picture]))
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    write_example_to_tfrecord(example, os.path.join(prefix, "kittymeow.tfrecord"))


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ImportError as error:
        text = "the examples of array_record.beam are tf.train.Example objects: pip install tensorflow"
        raise ModuleNotFoundError(text, name="tensorflow") from error
    return tensorflow
