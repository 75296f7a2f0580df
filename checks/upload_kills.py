"""Kills a process at random moments of an upload: single objects and sets, new and over old ones.

The moment is a request (before it, in the middle of it, or when the store has answered), or a record. Afterwards a
reader finds the old objects or the new ones, byte for byte, or an error that names `recover`; `recover` tells the truth
and gives a whole set, also if it was killed itself, and a later writer succeeds.

The store is moto, in a process of its own. Seeds (1, 2, 3, ...) choose the moments; the scenes take turns. A violation
names its seed.
"""

from __future__ import annotations

import random
from itertools import cycle
from typing import Literal

import anyrecord
from remote.servers.moto import Moto

from checks.figures import Figure
from checks.holding_proxy import STAGES, HoldingProxy, Moment
from checks.upload_scenes import SCENES, SHORT_SCENES, Objects, Stage

__all__ = ["check_kill", "run"]

Keep = Literal["old", "new"]
KEEPS: tuple[Keep, Keep] = ("old", "new")
KILLS, SHORT_KILLS = 200, 18


def run(short: bool) -> list[Figure]:
    """Kills writers, and `recover`."""
    kills = SHORT_KILLS if short else KILLS
    ones = Figure("kills while one object is uploaded", at_least=kills // 4)
    sets = Figure("kills while a set is uploaded", at_least=kills // 4)
    journals = Figure("of them while the set got its names", at_least=1 if short else kills // 20)
    recovers = Figure("kills during recover", at_least=0 if short else kills // 40)
    stages: dict[str, Stage] = {}
    with Moto() as server, HoldingProxy(server.port) as proxy:
        for seed, scene in enumerate(cycle(SHORT_SCENES if short else SCENES), 1):
            if ones.tried + sets.tried >= kills:
                return [ones, sets, journals, recovers]
            if scene.name not in stages:
                stages[scene.name] = Stage(scene, server, proxy)
            _kill(stages[scene.name], seed, sets if scene.is_set else ones, journals, recovers)
    raise AssertionError("there are no scenes")


def _kill(stage: Stage, seed: int, killed: Figure, journals: Figure, recovers: Figure) -> None:
    draw = random.Random(seed)
    moment, when = _moment(draw, stage)
    stage.reset()
    if not stage.write(stage.scene.options, moment=moment):
        return  # it needed fewer requests than the first time
    where = f"seed {seed}: {stage.scene.name}, killed {when}"
    if isinstance(moment, Moment):
        where += f" ({stage.proxy.requests[-1].partition('?')[0]})"
    killed.tried += 1
    journals.tried += bool(stage.journals())
    keep = draw.choice(KEEPS)
    violations = check_kill(stage)
    if stage.journals() and draw.random() < 0.5:
        violations += _kill_recover(stage, draw, keep, recovers)
    violations += _check_recover(stage, keep)
    violations += _check_later_writer(stage)
    killed.violations += [f"{where}, keep={keep!r}: {text}" for text in violations]


def _moment(draw: random.Random, stage: Stage) -> tuple[Moment | int, str]:
    if draw.random() < 0.2:
        record = draw.randrange(stage.scene.records)
        return record, f"before record {record}"
    moment = Moment(draw.randint(1, stage.requests), draw.choice(STAGES))
    return moment, f"{moment} of {stage.requests}"


# -- what must hold --


def check_kill(stage: Stage) -> list[str]:
    """Violations in what a killed writer has left."""
    return [*_check(stage), *(_check_refusals(stage) if stage.journals() else [])]


def _check(stage: Stage) -> list[str]:
    """Violations in what a reader finds."""
    found, reading = stage.objects(), stage.reading()
    if stage.journals():
        violations = []
        if not stage.scene.is_set:
            violations.append(f"there is a journal of one object: {stage.journals()}")
        if not all(data in (stage.old.get(name), stage.new.get(name)) for name, data in found.items()):
            violations.append(f"an object is neither the old one nor the new one: {_told(found)}")
        if not (str(reading).startswith("PublishError") and "anyrecord.recover(" in str(reading)):
            violations.append(f"a reader is not told of recover, but finds {_short(reading)}")
        return violations
    if found not in (stage.old, stage.new):
        return [f"neither the old objects nor the new ones: {_told(found)}"]
    if reading != (stage.old_read if found == stage.old else stage.new_read):
        return [f"a reader finds {_short(reading)}"]
    return []


def _check_refusals(stage: Stage) -> list[str]:
    """Until somebody says what to keep, a writer and `recover` refuse and change nothing."""
    violations, before = [], (stage.objects(), stage.journals(), stage.server.uploads())
    options = {**stage.scene.options, "overwrite": True, "storage": stage.storage}
    for who in ("a writer", "recover without keep="):
        try:
            if who == "a writer" and stage.scene.is_folder:
                anyrecord.create(f"{stage.url}a.ffr", overwrite=True, storage=stage.storage).close()
            elif who == "a writer":
                anyrecord.create(stage.url, **options).close()
            else:
                anyrecord.recover(stage.url, storage=stage.storage)
            violations.append(f"{who} was not refused")
        except anyrecord.PublishError as error:
            if "recover" not in str(error):
                violations.append(f"{who} was refused without a word of recover: {error}")
    if (stage.objects(), stage.journals(), stage.server.uploads()) != before:
        violations.append("who was refused changed something")
    return violations


def _can_be_old(stage: Stage) -> bool:
    """Whether all old objects are still there."""
    return stage.old.items() <= stage.objects().items()


def _check_recover(stage: Stage, keep: Keep) -> list[str]:
    """`recover` tells the truth, and gives the set that was asked for where that is possible."""
    was_interrupted, before = bool(stage.journals()), stage.objects()
    violations = []
    if was_interrupted and keep == "old" and not _can_be_old(stage):
        try:
            done = anyrecord.recover(stage.url, keep="old", storage=stage.storage)
            violations.append(f"recover kept an old set that was gone: {done}")
        except anyrecord.PublishError as error:
            if "new" not in str(error):
                violations.append(f"recover does not say that only the new set is left: {error}")
        if (stage.objects(), bool(stage.journals())) != (before, True):
            violations.append("recover that was refused changed something")
        keep = "new"
    done = anyrecord.recover(stage.url, keep=keep, storage=stage.storage)
    if done.interrupted != was_interrupted or done.kept != (keep if was_interrupted else None):
        violations.append(f"recover does not tell the truth: {done}")
    wanted = before if not was_interrupted else stage.old if keep == "old" else stage.new
    if was_interrupted and set(done.paths) != stage.names(wanted):
        violations.append(f"recover names other objects: {done.paths}")
    if stage.objects() != wanted:
        violations.append(f"recover left {_told(stage.objects())}")
    if stage.journals():
        violations.append(f"recover left {stage.journals()}")
    if was_interrupted and stage.server.uploads():
        violations.append(f"recover left {len(stage.server.uploads())} uploads")
    if anyrecord.recover(stage.url, keep=keep, storage=stage.storage).interrupted:
        violations.append("there was something to recover a second time")
    return violations


def _kill_recover(stage: Stage, draw: random.Random, keep: Keep, recovers: Figure) -> list[str]:
    """Kills `recover` at one of its first requests. What is left is checked as after the kill of a writer."""
    if keep == "old" and not _can_be_old(stage):
        return []
    moment = Moment(draw.randint(1, 8), draw.choice(STAGES))
    if not stage.recover(keep, moment):
        return []
    recovers.tried += 1
    return [f"recover keep={keep!r} killed {moment}: {text}" for text in _check_after_recover(stage, keep)]


def _check_after_recover(stage: Stage, keep: Keep) -> list[str]:
    """A set without a journal is whole: the one that was to be kept."""
    if stage.journals():
        return _check(stage)
    wanted = stage.old if keep == "old" else stage.new
    return [] if stage.objects() == wanted else [f"it left {_told(stage.objects())} and no journal"]


def _check_later_writer(stage: Stage) -> list[str]:
    """Whatever was left, the next writer of the name succeeds."""
    stage.write({**stage.scene.options, "overwrite": True})
    violations = [] if stage.objects() == stage.new else [f"a later writer left {_told(stage.objects())}"]
    if stage.journals():
        violations.append(f"a later writer left {stage.journals()}")
    if (reading := stage.reading()) != stage.new_read:
        violations.append(f"after a later writer, a reader finds {_short(reading)}")
    return violations


def _told(objects: Objects) -> str:
    return ", ".join(f"{name}: {len(data)}" for name, data in objects.items()) or "nothing"


def _short(reading: object) -> str:
    return reading[:500] if isinstance(reading, str) else f"{len(reading)} records" if isinstance(reading, list) else ""
