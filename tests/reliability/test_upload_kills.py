"""The check `upload_kills` finds a writer that lets a part of a set be seen, and none in a writer that does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from remote.servers.moto import Moto

from checks import upload_scenes
from checks.holding_proxy import STAGES, HoldingProxy, Moment
from checks.upload_kills import check_kill
from checks.upload_scenes import SCENES, Stage

ONE_BY_ONE = """
import json, os, random, sys, tempfile
import anyrecord, boto3
url, storage, options, what, records, size, last = json.loads(sys.argv[1])
client = boto3.client("s3", endpoint_url=storage["aws_endpoint"], region_name="us-east-1",
                      aws_access_key_id=storage["aws_access_key_id"],
                      aws_secret_access_key=storage["aws_secret_access_key"])
bucket, _, key = url.removeprefix("s3://").partition("/")
with tempfile.TemporaryDirectory() as folder:
    with anyrecord.create(f"{folder}/{os.path.basename(key)}", durable=False, **options) as out:
        for number in range(records):
            out.write(random.Random(f"{what} {number}").randbytes(size))
    for name in sorted(os.listdir(folder)):
        client.upload_file(f"{folder}/{name}", bucket, f"{os.path.dirname(key)}/{name}")
"""
"""A writer that uploads one shard after the other."""


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Moto, HoldingProxy]]:
    with Moto() as server, HoldingProxy(server.port) as proxy:
        yield server, proxy


def violations_of(stage: Stage, moment: Moment) -> list[str]:
    stage.reset()
    assert stage.write(stage.scene.options, moment=moment)
    return check_kill(stage)


def test_it_finds_a_writer_of_one_shard_after_the_other(
    running: tuple[Moto, HoldingProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_scenes, "WRITE", ONE_BY_ONE)
    (scene,) = (scene for scene in SCENES if scene.name == "a set .ffr")
    stage = Stage(scene, *running)
    assert stage.requests == 3
    assert violations_of(stage, Moment(1, "before")) == []
    for request, at in [(1, "after"), (2, "within"), (2, "after"), (3, "before")]:
        (violation,) = violations_of(stage, Moment(request, at))  # type: ignore[arg-type]  # one of the stages
        assert violation.startswith("neither the old objects nor the new ones")


def test_it_finds_nothing_at_any_request_of_a_set(running: tuple[Moto, HoldingProxy]) -> None:
    (scene,) = (scene for scene in SCENES if scene.name == "a set over its like .tfrecord")
    stage = Stage(scene, *running)
    for request in range(1, stage.requests + 1):
        assert violations_of(stage, Moment(request, STAGES[request % 3])) == [], request
