"""A training's folder is one training's at a time."""

from pathlib import Path

import pytest

from pipelines.errors import RecipeError
from pipelines.training.place import LOCK, Place
from pipelines.training.results.installing import OF_TRAINING


def test_a_second_training_in_the_same_folder_is_refused_as_long_as_the_first_one_runs(tmp_path: Path) -> None:
    one, other = (Place(output=tmp_path, cache=tmp_path / "rows", cache_dir=tmp_path / "jax") for _ in range(2))
    with one.hold(), pytest.raises(RecipeError, match=f"another training works in {tmp_path} now"), other.hold():
        pass
    with other.hold():
        assert (tmp_path / LOCK).exists()


def test_its_lock_is_no_part_of_a_result() -> None:
    assert LOCK in OF_TRAINING
