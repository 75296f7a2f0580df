"""A Google Cloud Storage on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from remote.servers.server import free_port


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Google's client of an emulator that runs in this process. This process and its children use it for `gs://`."""
    from gcp_storage_emulator.server import create_server
    from google.cloud import storage

    port = free_port()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with create_server("127.0.0.1", port, in_memory=True):
        client = storage.Client()
        yield client
        client.close()
