"""`ConvertToArrayRecordGCS` writes records to an ArrayRecord file and uploads it to Google Cloud Storage."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import apache_beam as beam

import anyrecord

__all__ = ["ConvertToArrayRecordGCS"]


class ConvertToArrayRecordGCS(beam.DoFn):
    """Turns each pair of a file name and its records into an ArrayRecord file in Google Cloud Storage.

        pairs | beam.ParDo(ConvertToArrayRecordGCS(), "gs://bucket/folder/", overwrite_extension=True)

    The side inputs are:

    - `path`: the folder to write to, as `gs://bucket/folder/`.
    - `write_dir`: a local folder for the file until it is uploaded. No file stays there, also if the upload fails.
    - `file_path_suffix`: is appended to the file's name. The folders of the name are left out.
    - `overwrite_extension=True`: the suffix replaces the extension of the name.

    There are no output elements. It needs Google's client: `pip install google-cloud-storage`.
    """

    _WRITE_DIR = "/tmp/"
    _client: Any = None

    def process(  # type: ignore[no-untyped-def]
        self, element, path, write_dir=_WRITE_DIR, file_path_suffix=".arrayrecord", overwrite_extension=False
    ):
        # Without annotations: Beam would check the collection and the side inputs by them.
        source, records = element
        bucket, folder = bucket_and_folder(path)
        name = target_name(source, file_path_suffix, overwrite_extension)
        if self._client is None:
            self._client = sys.modules[__name__].storage.Client()
        # A folder of its own: names can be the same in other files and in other workers.
        with tempfile.TemporaryDirectory(prefix="anyrecord-", dir=write_dir) as local:
            file = os.path.join(local, "records")
            with anyrecord.create(file, format="array_record", group_size=1, threads=0, durable=False) as out:
                out.write_many(records)
            blob = self._client.bucket(bucket).blob(folder + name)
            blob.upload_from_filename(file, content_type="application/octet-stream")

    def teardown(self) -> None:
        """Closes the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_client"}


def bucket_and_folder(path: str) -> tuple[str, str]:
    """Splits `gs://bucket/folder`. The folder ends with a slash, or is empty.

    >>> bucket_and_folder("gs://bucket/train/2024"), bucket_and_folder("gs://bucket")
    (('bucket', 'train/2024/'), ('bucket', ''))
    """
    scheme, _, rest = path.partition("://")
    bucket, _, folder = rest.partition("/")
    if scheme != "gs" or not bucket:
        raise ValueError(f"the output must be in Google Cloud Storage, such as gs://bucket/folder/, not {path!r}")
    folder = folder.lstrip("/")
    return bucket, folder if not folder or folder.endswith("/") else f"{folder}/"


def target_name(source: str, suffix: str, overwrite_extension: bool) -> str:
    """The name of the file that is written for a source.

    >>> target_name("gs://bucket/a.tfrecord", ".arrayrecord", False)
    'a.tfrecord.arrayrecord'
    >>> target_name("gs://bucket/a.tfrecord", ".arrayrecord", True)
    'a.arrayrecord'
    """
    name = os.path.basename(source)
    return (os.path.splitext(name)[0] if overwrite_extension else name) + suffix


def __getattr__(name: str) -> Any:
    """Imports `google.cloud.storage` when it is used. Tests can replace `dofns.storage`, as in the original."""
    if name != "storage":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from google.cloud import storage
    except ImportError as error:
        text = "ConvertToArrayRecordGCS needs Google's client: pip install google-cloud-storage"
        raise ModuleNotFoundError(text, name="google.cloud.storage") from error
    return storage
