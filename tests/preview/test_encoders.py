"""Records that real encoders write are named for what they are."""

from __future__ import annotations

import io
import pickle
from typing import Any

import msgpack
import numpy as np
import pytest
from anyrecord._preview import PREVIEW_BYTES, preview
from PIL import Image

pytestmark = pytest.mark.framework

ARRAYS = [
    (np.zeros((3, 224, 224), np.float32), "float32", [3, 224, 224]),
    (np.zeros(5, ">i8"), "int64", [5]),
    (np.array(7), "int64", []),
    (np.zeros((2, 0), np.uint8), "uint8", [2, 0]),
    (np.array(["a", "bc"]), "U2", [2]),
    (np.array([b"a", b"bc"]), "S2", [2]),
    (np.zeros(2, "M8[us]"), "datetime64[us]", [2]),
    (np.zeros(2, bool), "bool", [2]),
    (np.zeros(2, np.complex128), "complex128", [2]),
    (np.zeros(2, np.float16), "float16", [2]),
    (np.array([None, {}], object), "object", [2]),
    (np.zeros(2, [("x", "<f4"), ("y", "<i4", (2,)), ("z", [("w", "u1")])]), "structured (x, y, z)", [2]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "dtype", "shape"), ARRAYS, ids=[case[1] for case in ARRAYS])
def test_arrays_of_numpy(array: np.ndarray[Any, Any], dtype: str, shape: list[int]) -> None:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    found = preview(out.getvalue())
    assert found.kind == "npy"
    assert (found.details["dtype"], found.details["shape"]) == (dtype, shape)
    assert "damaged" not in found.details
    assert preview(out.getvalue()[:512], size=len(out.getvalue())).details == found.details


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_numpy(save: Any) -> None:
    out = io.BytesIO()
    save(out, image=np.zeros((4, 4)), label=np.array(3))
    assert preview(out.getvalue()).details == {"files": 2, "names": ["image", "label"]}
    assert preview(out.getvalue()[:200], size=len(out.getvalue())).kind == "npz"


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "1"])
@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("size", [(1, 1), (31, 17), (640, 480)], ids=str)
def test_pictures_of_pillow(format: str, mode: str, size: tuple[int, int]) -> None:
    out = io.BytesIO()
    try:
        Image.new(mode, size).save(out, format)
    except OSError:
        assert (format, mode) in [("JPEG", "P"), ("JPEG", "RGBA")]
        return
    found = preview(out.getvalue())
    assert (found.kind, found.details["width"], found.details["height"]) == (format.lower(), *size)


def test_pictures_with_large_comments_and_other_encodings() -> None:
    image = Image.new("RGB", (31, 17))
    for options in ({"progressive": True}, {"icc_profile": bytes(200_000), "exif": bytes(60_000)}):
        out = io.BytesIO()
        image.save(out, "JPEG", **options)
        assert preview(out.getvalue()).summary == "31 x 17, color"
        assert preview(out.getvalue()[:PREVIEW_BYTES], size=len(out.getvalue())).kind == "jpeg"
    for options, mode in (({"lossless": True}, "lossless"), ({"exif": b"Exif"}, "extended")):
        out = io.BytesIO()
        image.save(out, "WEBP", **options)
        assert preview(out.getvalue()).summary == f"31 x 17, {mode}"


@pytest.mark.parametrize(
    "value",
    [
        {"image": b"\xff" * 5000, "label": 7, "caption": "a cat"},
        {"x": {"y": [1, -1, 300, -300, 1 << 40, -(1 << 40), 0.5, None, True, False]}},
        {b"nd": True, b"type": "<f4", b"shape": [2, 3], b"data": bytes(24)},
        [0.25, 0.5],
        ["cat", "dog"],
        {"long": "é" * 70_000},
        {"when": msgpack.Timestamp(7), "x": msgpack.ExtType(5, b"abc")},
    ],
    ids=range(7),
)
def test_msgpack(value: object) -> None:
    record = msgpack.packb(value)
    found = preview(record)
    assert (found.kind, found.details["items"]) == ("msgpack", len(value))  # type: ignore[arg-type]
    for single in (False, True):
        assert preview(msgpack.packb(value, use_single_float=single)).kind == "msgpack"


def test_examples_of_tensorflow() -> None:
    import tensorflow as tf

    train = tf.train
    feature = train.Feature
    image = io.BytesIO()
    Image.new("RGB", (31, 17)).save(image, "JPEG")
    features = {
        "image": feature(bytes_list=train.BytesList(value=[image.getvalue()])),
        "words": feature(bytes_list=train.BytesList(value=[b"a", "ü".encode()])),
        "box": feature(float_list=train.FloatList(value=[0.5, 1, -2, 1e9, 7, float("nan")])),
        "label": feature(int64_list=train.Int64List(value=[7])),
        "numbers": feature(int64_list=train.Int64List(value=[-1, 1 << 40, *range(300)])),
        "empty": feature(),
    }
    context = train.Features(feature=features)
    found = preview(train.Example(features=context).SerializeToString(deterministic=True))
    assert found.kind == "tf_example"
    assert found.details == {
        "complete": True,
        "features": {
            "image": {"kind": "bytes", "count": 1, "first": [f"<{len(image.getvalue())} bytes of JPEG>"]},
            "words": {"kind": "bytes", "count": 2, "first": ['"a"', '"ü"']},
            "box": {"kind": "float", "count": 6, "first": [0.5, 1, -2, 1e9]},
            "label": {"kind": "int64", "count": 1, "first": [7]},
            "numbers": {"kind": "int64", "count": 302, "first": [-1, 1 << 40, 0, 1]},
            "empty": {"kind": None, "count": 0, "first": []},
        },
    }
    steps = train.FeatureLists(
        feature_list={"frames": train.FeatureList(feature=[features["label"], features["numbers"]])}
    )
    sequence = train.SequenceExample(context=context, feature_lists=steps).SerializeToString()
    found = preview(sequence)
    assert found.kind == "tf_sequence_example"
    assert found.details["feature_lists"] == {"frames": {"kind": "int64", "steps": 2}}


def test_pickles_of_numpy_and_torch() -> None:
    import torch

    for protocol in range(6):
        found = preview(pickle.dumps(np.zeros(3), protocol))
        assert (found.kind, found.details["type"]) == ("pickle", "numpy.ndarray")
    out = io.BytesIO()
    torch.save({"x": torch.zeros(3)}, out)
    assert preview(out.getvalue()).kind == "zip"
    out = io.BytesIO()
    torch.save({"x": torch.zeros(3)}, out, _use_new_zipfile_serialization=False)
    assert preview(out.getvalue()).kind == "pickle"
