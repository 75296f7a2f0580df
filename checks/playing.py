"""Plays the scenes of a crash check on all cores and adds up what they found."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from checks.figures import Figure
from checks.scenes import SCENES, Scene, scene_folder
from checks.stopping import WRITES, Call, missing

__all__ = ["Found", "chosen", "play"]

Found = dict[str, tuple[int, list[str]]]
"""What was tried -> how often, and the violations."""


def play(check: str, act: Callable[[Scene, Path, bool], Found], short: bool) -> list[Figure]:
    """Runs `act` for each scene of the check, each in a folder of its own."""
    if (why := missing()) is not None:
        return [Figure("calls watched", violations=[why])]
    scenes = [number for number, scene in enumerate(SCENES) if not short or check in scene.short]
    figures: dict[str, Figure] = {"scenes": Figure("ways to write files", at_least=len(scenes))}
    # Not forked: a process that forks children for each point should have no threads and no open files of others.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(2, os.cpu_count() or 1), mp_context=context) as pool:
        for done, found in enumerate(pool.map(_play, [act] * len(scenes), scenes, [short] * len(scenes)), 1):
            figures["scenes"].tried += 1
            for what, (tried, violations) in found.items():
                figure = figures.setdefault(what, Figure(what))
                figure.tried += tried
                figure.violations += violations
            if sys.stderr.isatty():
                print(f"\r{check}: {done} of {len(scenes)}", end="" if done < len(scenes) else "\n", file=sys.stderr)
    return list(figures.values())


def _play(act: Callable[[Scene, Path, bool], Found], number: int, short: bool) -> Found:
    with scene_folder() as folder:
        return act(SCENES[number], folder, short)


def chosen(calls: list[Call], short: bool) -> list[Call]:
    """All calls; in the short form, of the writes to one file only the first, the middle and the last."""
    if not short:
        return calls
    writes: dict[str, list[Call]] = {}
    for call in calls:
        if call.name in WRITES:
            writes.setdefault(call.path, []).append(call)
    kept = {found[at].number for found in writes.values() for at in (0, len(found) // 2, -1)}
    return [call for call in calls if call.name not in WRITES or call.number in kept]
