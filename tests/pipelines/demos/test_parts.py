"""Parts that are done stay done; a part that was stopped leaves no file."""

from pathlib import Path

import numpy as np
import pytest

from pipelines.demos.learning import Unfinished
from pipelines.demos.parts import finish

VALUES = {"weight": np.arange(3, dtype=np.float32)}


def test_a_part_is_made_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> dict[str, np.ndarray]:
        calls.append(1)
        return VALUES

    for _ in range(2):
        found = finish(tmp_path / "part.safetensors", make)
        np.testing.assert_array_equal(found["weight"], VALUES["weight"])
    assert calls == [1]


def test_a_part_that_was_stopped_is_not_kept(tmp_path: Path) -> None:
    def stop() -> dict[str, np.ndarray]:
        raise Unfinished

    with pytest.raises(Unfinished):
        finish(tmp_path / "part.safetensors", stop)
    assert list(tmp_path.iterdir()) == []
