"""Kills a process before each call that changes files, in the middle of each write, and after the last call.

Afterwards a reader finds the old files, the new files, or an error that names `recover`; `recover` then gives either
set, and a later writer succeeds. `recover` is killed in the same way.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

import anyrecord

from checks.figures import Figure
from checks.playing import Found, chosen, play
from checks.scenes import Files, Scene, Stage, files_in
from checks.stopping import GO_ON, HALF_THEN_KILL, KILL, WRITES, Call, watch

__all__ = ["kill_at_each_call", "run"]

Keep = Literal["old", "new"]
KEEPS: tuple[Keep, Keep] = ("old", "new")

BEFORE, MIDDLE, RECOVERING = "kills during a write", "kills in the middle of the bytes", "kills during recover"


def run(short: bool) -> list[Figure]:
    """Kills writers, and `recover`."""
    return play("kills", kill_at_each_call, short)


def kill_at_each_call(scene: Scene, folder: Path, short: bool) -> Found:
    """Plays one scene again and again, killed at another point each time."""
    stage = Stage(folder / "scene", scene)
    calls = _calls_of(stage)
    found: Found = {BEFORE: (0, []), MIDDLE: (0, []), RECOVERING: (0, [])}
    points = [(BEFORE, call.number, KILL, f"killed before {call}") for call in chosen(calls, short)]
    points.append((BEFORE, len(calls), KILL, "killed after the last change"))
    for call in chosen(calls, short):
        if call.name in WRITES:
            points.append((MIDDLE, call.number, HALF_THEN_KILL, f"killed in the middle of {call}"))
    interrupted = []
    for what, at, how, when in points:
        for keep in KEEPS if scene.target is not None else KEEPS[:1]:
            _kill(stage, at, how)
            if stage.has_journal() and keep == "old" and what == BEFORE:
                interrupted.append(at)
            violations = [*_check(stage), *_check_recover(stage, keep), *_check_later_writer(stage)]
            _add(found, what, [f"{scene.name}, {when}, keep={keep!r}: {text}" for text in violations])
    if short and interrupted:
        interrupted = sorted({interrupted[0], interrupted[len(interrupted) // 2], interrupted[-1]})
    for at in interrupted:
        for keep in KEEPS:
            _kill_recover(stage, at, keep, found, short)
    return found


def _add(found: Found, what: str, violations: list[str]) -> None:
    tried, before = found[what]
    found[what] = (tried + 1, before + violations)


def _calls_of(stage: Stage) -> list[Call]:
    calls: list[Call] = []

    def listen(call: Call) -> int:
        calls.append(call)
        return GO_ON

    ended = watch(stage.act, listen, str(stage.root))
    assert not ended.error, ended.text
    assert stage.all() == stage.after, f"{stage.scene.name}: not the same files a second time"
    return calls


def _kill(stage: Stage, at: int, how: int) -> None:
    """From the old state, up to the call of that number."""
    stage.reset()
    ended = watch(stage.act, lambda call: how if call.number == at else GO_ON, str(stage.root), kill_at_end=True)
    assert ended.killed


# -- what must hold --


def _check(stage: Stage) -> list[str]:
    """Violations in what a reader finds."""
    scene, visible, reading = stage.scene, stage.visible(), stage.reading()
    violations = []
    if files_in(stage.sources) != stage.source_files:
        violations.append("the sources were changed")
    if scene.one_by_one:
        if not _each_is_whole(visible, stage.old, stage.new):
            violations.append(f"a file is neither the old one nor the new one: {_told(visible)}")
        if reading not in (stage.old_read, stage.new_read):
            violations.append(f"a reader finds {reading!r}")
        return violations
    if stage.has_journal():
        if not (visible.items() <= stage.old.items() or visible.items() <= stage.new.items()):
            violations.append(f"a mixture: {_told(visible)}")
        if not (str(reading).startswith("PublishError") and "anyrecord.recover(" in str(reading)):
            violations.append(f"a reader is not told of recover, but finds {reading!r}")
        return violations
    if visible not in (stage.old, stage.new):
        violations.append(f"neither the old files nor the new ones: {_told(visible)}")
    elif reading != (stage.old_read if visible == stage.old else stage.new_read):
        violations.append(f"a reader finds {reading!r}")
    return violations


def _each_is_whole(visible: Files, old: Files, new: Files) -> bool:
    absent = b"absent"
    return all(
        visible.get(path, absent) in (old.get(path, absent), new.get(path, absent)) for path in visible | old | new
    )


def _told(files: Files) -> str:
    return ", ".join(f"{name}: {'folder' if data is None else len(data)}" for name, data in files.items()) or "nothing"


def _check_recover(stage: Stage, keep: Keep) -> list[str]:
    """`recover` tells the truth and gives the set that was asked for. Until then, a writer is refused."""
    if stage.scene.target is None:
        return []
    violations = []
    was_interrupted, before = stage.has_journal(), stage.visible()
    if was_interrupted:
        try:
            stage.scene.act(stage.sources, stage.stage)
            violations.append("a writer was not refused before recover")
        except anyrecord.PublishError as error:
            if "anyrecord.recover(" not in str(error):
                violations.append(f"a writer was not told of recover: {error}")
        if stage.visible() != before:
            violations.append("a writer that was refused changed the files")
    kept = before if not was_interrupted else stage.old if keep == "old" else stage.new
    return violations + _recover(stage, keep, kept, was_interrupted)


def _recover(stage: Stage, keep: Keep, kept: Files, was_interrupted: bool) -> list[str]:
    assert stage.scene.target is not None
    path, violations = stage.stage / stage.scene.target, []
    done = anyrecord.recover(path, keep=keep)
    if done.interrupted != was_interrupted or done.kept != (keep if was_interrupted else None):
        violations.append(f"recover does not tell the truth: {done}")
    if was_interrupted and {Path(name).name for name in done.paths} != _names_of_set(stage, keep):
        violations.append(f"recover names other files: {done.paths}")
    if stage.visible() != kept:
        violations.append(f"recover left {_told(stage.visible())}")
    if left := [name for name in stage.hidden() if not name.endswith(".tmp")]:
        violations.append(f"recover left {left}")
    if anyrecord.recover(path, keep=keep):
        violations.append("there was something to recover a second time")
    return violations


def _names_of_set(stage: Stage, keep: Keep) -> set[str]:
    """The files of the set that was published or replaced; other files on the stage are the same before and after."""
    files, others = (stage.old, stage.new) if keep == "old" else (stage.new, stage.old)
    return {name for name, data in files.items() if others.get(name, b"absent") != data}


def _check_later_writer(stage: Stage) -> list[str]:
    """Whatever was left, the next writer of the name succeeds."""
    was_published = stage.visible() == stage.new
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it tells of what the killed writer left
            stage.scene.act(stage.sources, stage.stage)
    except FileExistsError as error:
        return [] if was_published and not stage.scene.again else [f"a later writer failed: {error}"]
    except Exception as error:
        return [f"a later writer failed: {type(error).__name__}: {error}"]
    violations = [] if stage.visible() == stage.new else [f"a later writer left {_told(stage.visible())}"]
    if stage.reading() != stage.new_read:
        violations.append(f"after a later writer, a reader finds {stage.reading()!r}")
    if left := sorted(name for name in stage.all() if name.endswith(".tmp")):
        violations.append(f"after a later writer, temporary files are left: {left}")
    return violations


def _kill_recover(stage: Stage, at: int, first: Keep, found: Found, short: bool) -> None:
    """Kills `recover` at each of its calls, after a kill of the writer; then recovers either way."""
    assert stage.scene.target is not None
    path, number, killed = stage.stage / stage.scene.target, 0, True
    while killed:
        for second in KEEPS if not short else KEEPS[(number + (first == "old")) % 2 :][:1]:
            _kill(stage, at, KILL)
            ended = watch(
                lambda: anyrecord.recover(path, keep=first),
                lambda call, number=number: KILL if call.number == number else GO_ON,  # type: ignore[misc]
                str(stage.root),
            )
            killed = ended.killed
            violations = [ended.error] if ended.error else _check(stage)
            sets = {"old": stage.old, "new": stage.new}
            is_open = stage.has_journal()
            violations += _recover(stage, second, sets[second] if is_open else sets[first], is_open)
            violations += _check_later_writer(stage)
            when = f"killed before change {at}, recover keep={first!r} killed before its change {number}, {second!r}"
            _add(found, RECOVERING, [f"{stage.scene.name}, {when}: {text}" for text in violations])
        number += 1
