"""Progress on a terminal: a line per phase, with a bar if there is something to count; JSON or nothing for scripts."""

import json
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from pipelines.stages import Progress

MEGABYTE = 1_000_000
Brought = TypeVar("Brought")


class TerminalProgress:
    """An OnProgress for terminals, used as a context manager. It writes to stderr, so that stdout stays clean."""

    def __init__(self, *, is_silent: bool) -> None:
        self._bars = Bars(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=is_silent or not sys.stderr.isatty(),
        )
        self._phase = ""
        self._task: TaskID | None = None
        self._started = time.perf_counter()

    def __enter__(self) -> "TerminalProgress":
        self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._finish()
        self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        title = f"{progress.phase} {progress.detail}".strip()
        if title != self._phase:
            self._finish()
            self._phase = title
            self._task = self._bars.add_task(title, total=progress.total or None)
        if self._task is not None:
            self._bars.update(self._task, completed=progress.done, total=progress.total or None)

    def _finish(self) -> None:
        if self._task is not None:
            total = self._bars.tasks[self._task].total or 1
            self._bars.update(self._task, completed=total, total=total)
            self._task = None


class LineProgress:
    """An OnProgress for other programs: each call is one line of JSON on stderr."""

    def __enter__(self) -> "LineProgress":
        self(Progress(phase="tracing"))
        return self

    def __exit__(self, *_error: object) -> None:
        """Does nothing: no line is left open."""

    def __call__(self, progress: Progress) -> None:
        words = f"{progress.phase} {progress.detail}".strip()
        print(  # noqa: T201 - for a program that reads it, so without a terminal's markup
            json.dumps({"phase": words, "done": progress.done, "total": progress.total}), file=sys.stderr, flush=True
        )


def show_download(of: str, download: Callable[[Callable[[int, int], None]], Brought]) -> Brought:
    """Downloads, and shows on the terminal how many megabytes there are."""
    with TerminalProgress(is_silent=False) as progress:

        def show_bytes(done: int, total: int) -> None:
            progress(Progress(phase="downloading", detail=of, done=done // MEGABYTE, total=total // MEGABYTE))

        return download(show_bytes)
