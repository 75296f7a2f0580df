"""What `upload_kills` does again and again: every kind of write to an object store, in a process that can be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any

import anyrecord
from remote.servers.moto import Moto

from checks.holding_proxy import HoldingProxy, Moment

__all__ = ["SCENES", "SHORT_SCENES", "Objects", "Scene", "Stage", "is_journal"]

Objects = dict[str, bytes]
LIMIT_SECONDS = 120.0
"""Many times what the slowest writer needs on a busy machine."""

WRITE = """
import json, os, random, signal, sys
import anyrecord
url, storage, options, what, records, size, last = json.loads(sys.argv[1])
with anyrecord.create(url, storage=storage, **options) as out:
    for number in range(records):
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
        out.write(random.Random(f"{what} {number}").randbytes(size))
"""
CONVERT = """
import json, os, random, signal, sys, tempfile
import anyrecord
url, storage, options, what, records, size, last = json.loads(sys.argv[1])
def end(record, left=[last]):
    left[0] = None if left[0] is None else left[0] - 1
    if left[0] == -1:
        os.kill(os.getpid(), signal.SIGKILL)
    return record
with tempfile.TemporaryDirectory() as folder:
    for name in "ab":
        with anyrecord.create(f"{folder}/{name}.tfrecord", durable=False) as out:
            for number in range(records // 2):
                out.write(random.Random(f"{what} {name} {number}").randbytes(size))
    anyrecord.convert(folder, url, target_storage=storage, map=end, threads=0, **options)
"""
"""Two files become two objects, which appear together."""
RECOVER = """
import json, sys
import anyrecord
url, storage, keep = json.loads(sys.argv[1])
anyrecord.recover(url, keep=keep, storage=storage)
"""


@dataclass(frozen=True)
class Scene:
    """A way to write objects, over others or where nothing is."""

    name: str
    key: str
    options: dict[str, Any]
    records: int
    size: int
    old: dict[str, Any] | None = None
    """The options that the old objects were written with. None: there are none."""

    @property
    def is_set(self) -> bool:
        return "shards" in self.options or self.is_folder

    @property
    def is_folder(self) -> bool:
        """Whether files are converted into a folder."""
        return self.key.endswith("/")

    @property
    def pattern(self) -> str:
        """What a reader opens."""
        if self.is_folder:
            return f"{self.key}*.ffr"
        stem, dot, suffix = self.key.partition(".")
        return f"{stem}-*{dot}{suffix}" if self.is_set else self.key


SMALL, LARGE = (40, 1_000), (60, 200_000)
"""One request; three parts of 5 MiB, the last one smaller."""
PARTS = {"upload_part_size": str(5 << 20)}


def _scenes(suffix: str, **options: Any) -> list[Scene]:
    one, several = f"data/one{suffix}", f"data/set{suffix}"
    counted = {**options, **({"num_records": LARGE[0]} if suffix == ".ffr" else {})}
    over = {"overwrite": True}
    return [
        Scene(f"a small object {suffix}", one, options, *SMALL),
        Scene(
            f"a set over a larger one {suffix}", several, {**options, **over, "shards": 2}, *SMALL, old={"shards": 4}
        ),
        Scene(f"a large object over another {suffix}", one, {**counted, **over}, *LARGE, old={}),
        Scene(f"a set {suffix}", several, {**options, "shards": 3}, *SMALL),
        Scene(f"a large object {suffix}", one, counted, *LARGE),
        Scene(f"a set over its like {suffix}", several, {**options, **over, "shards": 2}, *SMALL, old={"shards": 2}),
        Scene(f"a small object over another {suffix}", one, {**options, **over}, *SMALL, old={}),
    ]


SCENES = [
    *_scenes(".ffr"),
    *_scenes(".array_record", group_size=3),
    *_scenes(".tfrecord"),
    *_scenes(".recordio"),
    Scene("a large set .ffr", "data/set.ffr", {"shards": 2}, 110, LARGE[1]),
    Scene("a conversion into a folder", "data/", {"format": "ffrecord"}, *SMALL),
    Scene(
        "a conversion over files",
        "data/",
        {"format": "ffrecord", "overwrite": True},
        *SMALL,
        old={"format": "ffrecord"},
    ),
]
SHORT_SCENES = [SCENES[number] for number in (0, 8, 16, 24, 4, 12)]
"""Each format, small and large, one and several, with and without old ones."""


@dataclass
class Stage:
    """A scene in a store: what is there before and after."""

    scene: Scene
    server: Moto
    proxy: HoldingProxy
    old: Objects = field(default_factory=dict)
    new: Objects = field(default_factory=dict)
    requests: int = 0
    """Of a writer that nobody kills."""

    def __post_init__(self) -> None:
        self.server.empty()
        if self.scene.old is not None:
            self.write(self.scene.old, "old")
        self.old, self.old_read = self.objects(), self.reading()
        self.write(self.scene.options)
        self.requests = len(self.proxy.requests)
        self.new, self.new_read = self.objects(), self.reading()
        assert self.new_read != self.old_read

    @property
    def url(self) -> str:
        return self.server.url(self.scene.key)

    @property
    def storage(self) -> dict[str, str]:
        """Of the store itself, for everything that is not killed."""
        return {**self.server.storage, **PARTS}

    def names(self, objects: Objects) -> set[str]:
        """The URLs of objects."""
        return {self.server.url(name) for name in objects}

    def objects(self) -> Objects:
        """What readers may find."""
        return {name: self.server.get(name) or b"" for name in self.server.names() if not is_journal(name)}

    def journals(self) -> list[str]:
        return [name for name in self.server.names() if is_journal(name)]

    def reset(self) -> None:
        """Makes the old state again."""
        self.server.empty()
        for name, data in self.old.items():
            self.server.put(name, data)

    def write(self, options: dict[str, Any], what: str = "new", moment: Moment | int | None = None) -> bool:
        """Writes in a process of its own, which is killed at a request or a record. Says whether it was killed."""
        last = moment if isinstance(moment, int) else None
        job = [options, what, self.scene.records, self.scene.size, last]
        return self._run(
            CONVERT if self.scene.is_folder else WRITE, job, moment if isinstance(moment, Moment) else None
        )

    def recover(self, keep: str, moment: Moment | None) -> bool:
        """As `write`, with `recover`."""
        return self._run(RECOVER, [keep], moment)

    def _run(self, program: str, job: list[Any], moment: Moment | None) -> bool:
        started = threading.Event()

        def kill() -> None:
            started.wait()
            child.kill()
            child.wait()

        self.proxy.begin(moment, kill)
        storage = {**self.storage, "aws_endpoint": f"http://127.0.0.1:{self.proxy.port}"}
        command = [sys.executable, "-c", program, json.dumps([self.url, storage, *job])]
        child = subprocess.Popen(command, stderr=subprocess.PIPE)
        started.set()
        try:
            _, said = child.communicate(timeout=LIMIT_SECONDS)
        finally:
            kill()
        self.proxy.settle()
        if child.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(f"{self.scene.name}: a process that nobody killed failed: {said.decode()[-3000:]}")
        return child.returncode != 0

    def reading(self) -> list[bytes] | str:
        """The records that a reader finds, or an error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of formats without a table
                return list(anyrecord.open(self.server.url(self.scene.pattern), storage=self.storage))
        except FileNotFoundError:
            return "nothing"
        except anyrecord.RecordError as error:
            return f"{type(error).__name__}: {error}"


def is_journal(name: str) -> bool:
    base = name.rpartition("/")[2]
    return base.startswith(".") and base.endswith(".publish")
