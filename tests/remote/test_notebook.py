"""A notebook reads little of remote files, and does not wait for long."""

from __future__ import annotations

import anyrecord
import pytest
from anyrecord import _notebook

from .files import bytes_of
from .places import Place
from .servers import Played, faults

RECORDS = [b"record %d " % i + bytes(100_000) for i in range(20)]


def test_remote_records_are_shown_with_few_requests() -> None:
    with Played({"a.ffr": bytes_of("ffrecord", RECORDS)}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage=server.storage)
        server.clear()
        html = records._repr_html_()
        assert server.requests <= 3
    assert "20 records" in html
    assert html.count("72 65 63 6f 72 64 20 3") == 3  # "record " and digits, in hexadecimal
    assert "and 17 more" in html


def test_large_remote_records_are_not_read() -> None:
    with Played({"a.ffr": bytes_of("ffrecord", [bytes(2 << 20), b"small", bytes(2 << 20)])}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage=server.storage)
        before = records.stats().bytes
        html = records._repr_html_()
        assert records.stats().bytes - before < 1 << 20
    assert html.count("too large to be read here") == 2


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_notebook, "_REMOTE_SECONDS", 0.01)
    with Played({"a.ffr": bytes_of("ffrecord", RECORDS)}) as server:
        # Anybody who waits for an answer waits for a day.
        storage = {**server.storage, "read_timeout": "24h", "retry_timeout": "24h"}
        records = anyrecord.open(server.url("a.ffr"), storage=storage)
        server.play(faults.stall())
        assert "did not arrive within 0.01 seconds" in records._repr_html_()
        records.close()


def test_a_server_that_refuses_is_shown_as_an_error() -> None:
    with Played({"a.ffr": bytes_of("ffrecord", RECORDS)}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage=server.storage)
        server.play(faults.error(403))
        html = records._repr_html_()
    assert html.count("PermissionError") == 3


def test_records_of_a_store_are_shown(start_place: Place) -> None:
    place: Place = start_place("fsspec memory")  # type: ignore[operator]
    place.put("notebook.ffr", bytes_of("ffrecord", [b"a cat"]))
    assert "a cat" in anyrecord.open(place.path("notebook.ffr"), storage=place.storage)._repr_html_()
