"""The progress bar on standard error: what is done, how fast, and how long it will take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anyrecord.cli._output import may_colour
from anyrecord.cli._units import bytes_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Step", "progress_bar"]


class Step:
    """Takes what is done, and the total. It fits the `progress=` of `anyrecord.verify` and others."""

    def __init__(self, bar: Progress, task: TaskID, label: str) -> None:
        self._bar, self._task, self.label = bar, task, label

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def describe(self, label: str) -> None:
        """Changes what is said in front of the bar."""
        self._bar.update(self._task, description=label)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Takes the bar away while something else is written to the terminal."""
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()


@contextmanager
def progress_bar(label: str, unit: str, is_shown: bool) -> Iterator[Step | None]:
    """A bar that disappears at the end. `label` is one or two words, such as "verifying"."""
    if not is_shown or os.environ.get("TERM") == "dumb":  # a bar moves the cursor
        yield None
        return
    from rich.console import Console, ConsoleDimensions
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class Narrower(Console):
        """Leaves room for the ^C that a terminal shows, so that the bar can be taken away with it."""

        @property  # type: ignore[misc]  # it is never set
        def size(self) -> ConsoleDimensions:
            found = super().size
            return ConsoleDimensions(max(found.width - 3, 20), found.height)

    class Rate(ProgressColumn):
        """Bytes, records or files in each second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            if speed is None:
                return Text("")
            rate = bytes_text(int(speed)) if unit == "bytes" else f"{speed:,.0f} {unit}"
            return Text(f"{rate}/s", style="progress.data.speed")

    done = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        done,
        Rate(Column(no_wrap=True)),
        TimeRemainingColumn(compact=True),
        console=Narrower(stderr=True, no_color=not may_colour(), force_jupyter=False),
        transient=True,
        expand=True,
    )
    with bar:
        yield Step(bar, bar.add_task(label, total=None), label)
