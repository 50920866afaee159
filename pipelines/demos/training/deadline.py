"""Training that can be interrupted between and within its parts: finished parts are files, later calls do the rest."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file


class Unfinished(Exception):  # noqa: N818 - asked for with stop_after_s
    """The time limit is reached; a checkpoint is written, and a later run continues from it."""


class Deadline:
    """A time limit of `stop_after_s` from now on; None means no limit."""

    def __init__(self, stop_after_s: float | None) -> None:
        self._ends_at = None if stop_after_s is None else time.monotonic() + stop_after_s

    @property
    def left_s(self) -> float | None:
        return None if self._ends_at is None else max(1.0, self._ends_at - time.monotonic())

    def check(self) -> None:
        """Raises Unfinished once the time limit is reached."""
        if self._ends_at is not None and time.monotonic() > self._ends_at:
            raise Unfinished

    def finish(self, file: Path, make: Callable[[float | None], Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Returns the parameters in `file`, first computing them with `make(seconds left)` and saving them if needed.

        Raises Unfinished if the time limit is reached.
        """
        if not file.exists():
            values = make(self.left_s)
            self.check()
            save_file({name: np.asarray(value) for name, value in values.items()}, file)
        return load_file(file)
