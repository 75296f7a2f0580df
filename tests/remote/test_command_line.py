"""The command line reads and writes objects by their URLs, with options of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.running import run

from . import servers
from .files import bytes_of


@pytest.fixture(params=["s3", "gcs", "azure"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    with servers.Played(protocol=request.param) as server:
        for shard in range(2):
            data = bytes_of("ffrecord", tuple(b"%d" % number for number in range(10 * shard, 10 * shard + 10)))
            server.put(f"data/train-{shard:05}-of-00002.ffr", data)
        yield server


def options(server: servers.Server) -> list[str]:
    return [word for pair in server.storage.items() for word in ("--storage", "=".join(pair))]


def test_verbs_read_urls(server: servers.Server) -> None:
    given = options(server)
    everything = [str(number) for number in range(20)]
    for source in ("data/train.ffr@2", "data/train-*.ffr", "data/"):
        assert run("cat", "--newline", server.url(source), *given).lines == everything
    first = server.url("data/train-00000-of-00002.ffr")
    assert run("cat", "--newline", f"{first}[3:5]", *given).lines == ["3", "4"]
    assert run("get", server.url("data/train.ffr@2"), "-1", *given).data == b"19"
    assert run("ls", server.url("data/train.ffr@2"), *given).lines[0] == first
    assert run("info", "--json", first, *given).json["records"] == 10
    assert run("head", first, *given).lines[9].split() == ["9", "1", "B", "text", "9"]
    (source,) = run("doctor", "--json", first, *given).json["sources"]
    assert [file["io"] for file in source["files"]] == ["requests"]
    assert "fetches the files from a server again" in run("doctor", first, *given).out


def test_errors_name_the_object_and_no_secret(server: servers.Server) -> None:
    given = options(server)
    ran = run("info", server.url("data/missing.ffr"), *given)
    assert ran.code == 3
    assert server.url("data/missing.ffr") in ran.err
    assert run("info", server.url("data/missing.ffr"), *given, "--json").error["exit_code"] == 3
    ran = run("info", server.url("data/a.ffr"), *given, "--storage", "a-very-secret-key")
    assert ran.code == 2
    assert "a-very-secret-key" not in ran.err
    assert "expected KEY=VALUE" in ran.err
    ran = run("info", server.url("data/a.ffr"), *given, "--storage", "colour=secret")
    assert ran.code == 2
    assert "colour" in ran.err
    assert "=secret" not in ran.err


def test_what_is_read_can_be_kept_in_a_local_cache(server: servers.Server) -> None:
    assert isinstance(server, servers.Played)
    given = [*options(server), "--cache", "cached"]
    url = server.url("data/train-00000-of-00002.ffr")
    first = run("cat", url, *given)
    before = len(server.log)
    assert run("cat", url, *given) == first == (0, b"0123456789", "")
    assert len(server.log) - before < before


def test_verbs_write_to_urls(server: servers.Server) -> None:
    given = options(server)
    target = [word.replace("--storage", "--target-storage") for word in given]
    assert run("verify", server.url("data/train.ffr@2"), *given).lines[-1].startswith("2 files: 2 good; 20 records")
    assert run("copy", server.url("data/train.ffr@2"), "local/", *given).code == 0
    assert run("copy", "local/", server.url("copied/"), *target).code == 0
    ran = run("copy", "local/", server.url("copied/"), *target)
    assert (ran.code, "pass --overwrite to replace it" in ran.err) == (3, True)
    assert run("convert", server.url("copied/"), server.url("new.tfrecord"), *given, *target).code == 0
    assert run("index", "--json", server.url("new.tfrecord"), *given).json["files"][0]["status"] == "written"
    assert run("cat", "--newline", server.url("new.tfrecord"), *given).lines == [str(number) for number in range(20)]
    assert run("recover", server.url("new.tfrecord"), *given).code == 0
    os.mkdir("pets")
    Path("pets/cat.txt").write_text("a cat")
    assert run("pack", "pets", server.url("pets.ffr"), *given).lines[0].startswith("packed 1 file, 5 B, in ")
    assert run("unpack", server.url("pets.ffr"), "again", *given).code == 0
    assert Path("again/cat.txt").read_text() == "a cat"
    assert run("salvage", server.url("pets.ffr"), "saved.ffr", *given).code == 0
    told = run("bench", "--json", server.url("pets.ffr"), *given, "--seconds", "0.01", "--rounds", "1").json
    assert told["records"] == 2
