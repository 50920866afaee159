"""A training's folder is one training's at a time."""

from pathlib import Path

import pytest

from pipelines.errors import RecipeError
from pipelines.runtime.devices import hosts
from pipelines.training.data.trainings import is_training
from pipelines.training.place import LOCK, Place
from pipelines.training.results.installing import OF_TRAINING
from pipelines.training.settings import TrainingSettings


def test_a_second_training_in_the_same_folder_is_refused_as_long_as_the_first_one_runs(tmp_path: Path) -> None:
    one, other = (Place(output=tmp_path, cache=tmp_path / "rows", cache_dir=tmp_path / "jax") for _ in range(2))
    told: list[object] = []
    refused = pytest.raises(RecipeError, match=f"another training works in {tmp_path} now")
    with one.hold(told.append), refused, other.hold(told.append):
        pass
    with other.hold(told.append):
        assert (tmp_path / LOCK).exists()
    assert told == []


def test_a_folder_that_cannot_be_locked_is_told(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()  # as a file system that refuses it
    told: list[str] = []
    with Place(output=tmp_path, cache=tmp_path, cache_dir=tmp_path).hold(lambda text: told.append(str(text))):
        (text,) = told
    assert f"{tmp_path} cannot be locked" in text and "no other training works there" in text


@pytest.mark.parametrize(("is_leader", "is_common", "writes"), [(True, True, True), (False, True, False),
                                                               (True, False, True), (False, False, True)])  # fmt: skip
def test_every_host_writes_into_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_leader: bool, is_common: bool, writes: bool
) -> None:
    monkeypatch.setattr(hosts, "is_leader", lambda: is_leader)
    place = Place(output=tmp_path, cache=tmp_path, cache_dir=tmp_path, is_common=is_common)
    assert place.is_written_here is writes
    place.write_settings(TrainingSettings(data=("zorb",), full=True))
    assert is_training(tmp_path) is writes, "or its own result would be taken for a stranger's"


def test_its_lock_is_no_part_of_a_result() -> None:
    assert LOCK in OF_TRAINING
