"""A training in parts that may be broken off: parts that are done are files, the rest waits for a later call."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file


class Unfinished(Exception):  # noqa: N818 - asked for with stop_after_s
    """The time given is over; the checkpoint is written and a later run goes on from it."""


class Deadline:
    """`stop_after_s` from now on; None is never."""

    def __init__(self, stop_after_s: float | None) -> None:
        self._ends_at = None if stop_after_s is None else time.monotonic() + stop_after_s

    @property
    def left_s(self) -> float | None:
        return None if self._ends_at is None else max(1.0, self._ends_at - time.monotonic())

    def check(self) -> None:
        """Raises Unfinished when the time is over."""
        if self._ends_at is not None and time.monotonic() > self._ends_at:
            raise Unfinished

    def finish(self, file: Path, make: Callable[[float | None], Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """The parameters in `file`; made and kept there first (`make` gets the seconds left), or raises Unfinished."""
        if not file.exists():
            values = make(self.left_s)
            self.check()
            save_file({name: np.asarray(value) for name, value in values.items()}, file)
        return load_file(file)
