"""Parts that are done stay done; the time that is over is said once and nothing half-made is kept."""

import time
from pathlib import Path

import numpy as np
import pytest

from pipelines.demos.training.deadline import Deadline, Unfinished

VALUES = {"weight": np.arange(3, dtype=np.float32)}


def test_a_part_is_made_once(tmp_path: Path) -> None:
    calls: list[float | None] = []

    def make(left_s: float | None) -> dict[str, np.ndarray]:
        calls.append(left_s)
        return VALUES

    file = tmp_path / "part.safetensors"
    for _ in range(2):
        found = Deadline(None).finish(file, make)
        np.testing.assert_array_equal(found["weight"], VALUES["weight"])
    assert calls == [None]


def test_a_part_that_took_too_long_is_not_kept(tmp_path: Path) -> None:
    deadline = Deadline(0.0)
    while time.monotonic() <= deadline._ends_at:
        pass
    with pytest.raises(Unfinished):
        deadline.finish(tmp_path / "part.safetensors", lambda _left_s: VALUES)
    assert list(tmp_path.iterdir()) == []
