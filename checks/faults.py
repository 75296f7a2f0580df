"""Lets each call that changes files fail: disk full, I/O error, interrupted by a signal, half of the bytes written.

An error is an exception that leaves the old files and nothing else: no temporary file, no open descriptor. A sync that
failed is not repeated. A call that a signal interrupted is repeated, and the rest of a short write is written.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

from checks.figures import Figure
from checks.playing import Found, chosen, play
from checks.scenes import Scene, Stage, files_in
from checks.stopping import CHANGES, GO_ON, HALF, SYNCS, WRITES, Call, Ended, error_name, watch

__all__ = ["fail_at_each_call", "run"]

CALLS = CHANGES | {"close"}
SHORT_WRITES = "short writes"
REMOVALS = frozenset({"unlink", "unlinkat", "rmdir"})


def run(short: bool) -> list[Figure]:
    """Lets the calls of writers fail."""
    return play("faults", fail_at_each_call, short)


@dataclass
class _Watched:
    """What a child did when one of its calls failed."""

    at: int
    fault: int
    failed: Call | None = None
    synced_later: bool = False
    """Whether a file was synced again after its sync had failed."""
    calls: list[Call] = field(default_factory=list)
    unsynced: set[str] = field(default_factory=set)
    """Files with bytes that were written after their last sync, at the time of the failure."""
    _written: set[str] = field(default_factory=set)

    def decide(self, call: Call) -> int:
        self.calls.append(call)
        if self.failed is not None:
            again = call.name in SYNCS and self.failed.name in SYNCS and call.path == self.failed.path
            self.synced_later |= again and not call.is_folder and self.fault != errno.EINTR
        if call.number == self.at:
            self.failed, self.unsynced = call, set(self._written)
            return self.fault
        if call.name in WRITES:
            self._written.add(call.path)
        elif call.name in SYNCS:
            self._written.discard(call.path)
        return GO_ON


def fail_at_each_call(scene: Scene, folder: Path, short: bool) -> Found:
    """Plays one scene again and again; another call fails each time."""
    stage = Stage(folder / "scene", scene)
    found: Found = {}
    watched, ended = _play(stage, -1, GO_ON)
    assert not ended.error, ended.text
    leaked = f"{scene.name}: a descriptor stays open: {', '.join(ended.leaked)}"
    found["calls watched"] = (len(watched.calls), [leaked] if ended.leaked else [])
    calls = chosen(watched.calls, short)
    for fault in (errno.ENOSPC, errno.EIO, errno.EINTR, HALF):
        name = error_name(fault) if fault != HALF else "a short write"
        points = [call for call in calls if _can_fail(call, fault, short)]
        violations = []
        for call in points:
            watched, ended = _play(stage, call.number, fault)
            violations += [f"{scene.name}, {name} at {call}: {text}" for text in _check(stage, watched, ended)]
        found[SHORT_WRITES if fault == HALF else f"calls that failed with {name}"] = (len(points), violations)
    return found


def _can_fail(call: Call, fault: int, short: bool) -> bool:
    if call.name == "close":
        # A file that was only read, or that has no name, has nothing to lose. A close needs no room on the disk.
        was_written = "/stage/" in call.path and not call.path.endswith(" (deleted)")
        return was_written and not call.is_folder and fault in (errno.EIO, errno.EINTR)
    if fault == HALF:
        return call.name in WRITES
    # The short form has a full disk only where the call takes room.
    return fault != errno.ENOSPC or not short or call.name in WRITES | {"openat", "mkdir", "rename", "renameat"}


def _play(stage: Stage, at: int, fault: int) -> tuple[_Watched, Ended]:
    stage.reset()
    watched = _Watched(at, fault)
    return watched, watch(stage.act, watched.decide, str(stage.root), CALLS)


def _check(stage: Stage, watched: _Watched, ended: Ended) -> list[str]:
    call = watched.failed
    if call is None:
        return ["the call was not made this time"]
    violations = []
    if files_in(stage.sources) != stage.source_files:
        violations.append("the sources were changed")
    # A close that fails by our doing did not close the file.
    if len(ended.leaked) > (call.name == "close"):
        violations.append(f"a descriptor stays open: {', '.join(ended.leaked)}")
    if watched.synced_later:
        violations.append("the file was synced again after its sync had failed")
    if call.name == "close":
        unsynced = call.path in watched.unsynced
        if unsynced and not ended.error:
            violations.append("the file was not synced, and its close failed without an error")
        if ended.error and not (unsynced or watched.fault == errno.EIO):
            violations.append(f"the file was synced, and an interrupted close is an error: {ended.error}")
        return violations + (_check_failure(stage, call, ended) if ended.error else _check_success(stage, ended))
    if call.name in REMOVALS and not ended.error:
        return violations + _check_leftovers(stage, ended)
    if watched.fault in (errno.EINTR, HALF):
        return violations + _check_success(stage, ended)
    if ended.error:
        return violations + _check_failure(stage, call, ended)
    if call.name == "mkdir" and stage.all() == stage.after:
        return violations  # the folder was there already
    return [*violations, "no error"]


def _check_leftovers(stage: Stage, ended: Ended) -> list[str]:
    """What could not be deleted is hidden. If it is part of a set that was replaced, there is a warning."""
    if stage.visible() != stage.new:
        return ["not the new files, and no error"]
    if any(name.endswith((".old", ".published")) for name in stage.hidden()) and not ended.warnings:
        return [f"{stage.hidden()} stays without a warning"]
    return []


def _check_success(stage: Stage, ended: Ended) -> list[str]:
    if ended.error:
        return [f"an error: {ended.error}"]
    return [] if stage.all() == stage.after else [f"not the new files, or more than these: {sorted(stage.all())}"]


def _check_failure(stage: Stage, call: Call, ended: Ended) -> list[str]:
    violations = []
    if "Error" not in ended.error.split(":")[0]:
        violations.append(f"not an exception for a failed call: {ended.error}")
    found = stage.all()
    if call.name in REMOVALS:
        found = stage.visible()
    if stage.scene.one_by_one:
        visible = stage.visible()
        absent = b"absent"
        paths = visible | stage.old | stage.new
        if any(visible.get(p, absent) not in (stage.old.get(p, absent), stage.new.get(p, absent)) for p in paths):
            violations.append("a file is neither the old one nor the new one")
        if hidden := stage.hidden():
            violations.append(f"{hidden} stays")
        return violations
    if found == stage.before:
        return violations
    # Once the new names are there, a sync of their folder that fails is an error that says so. The old files of a set
    # are kept until then, because a power cut may bring back the journal.
    if call.is_folder and call.name in SYNCS and stage.visible() == stage.new and "published, but" in ended.error:
        return violations
    return [*violations, f"an error ({ended.error}), but the old files are not as before: {sorted(found)}"]
