"""A training's folder is known by its settings, wherever it lies."""

from pathlib import Path

from pipelines.training.data.trainings import find_trainings
from pipelines.training.settings import TrainingSettings


def test_only_folders_of_trainings_are_found(tmp_path: Path) -> None:
    for name in ("a/out/state", "b/.hidden/out", "settings"):
        (tmp_path / name).mkdir(parents=True)
    settings = TrainingSettings(model="m", data=("d",), lora=True).model_dump_json()
    (tmp_path / "a" / "out" / "settings.json").write_text(settings, "utf-8")
    (tmp_path / "b" / ".hidden" / "out" / "settings.json").write_text(settings, "utf-8")
    (tmp_path / "settings" / "settings.json").write_text('{"steps": 3}', "utf-8")
    (tmp_path / "b" / "settings.json").write_text("no JSON", "utf-8")
    assert [*find_trainings(tmp_path)] == [tmp_path / "a" / "out"]
    assert [*find_trainings(tmp_path / "a" / "out" / "state")] == []


def test_a_training_behind_a_link_is_found_and_a_circle_of_links_ends(tmp_path: Path) -> None:
    training, data = tmp_path / "training", tmp_path / "data"
    training.mkdir()
    (data / "sub").mkdir(parents=True)
    (training / "settings.json").write_text(
        TrainingSettings(model="m", data=("d",), lora=True).model_dump_json(), "utf-8"
    )
    (data / "sub" / "link").symlink_to(training)
    (data / "sub" / "circle").symlink_to(data)
    assert [*find_trainings(data)] == [data / "sub" / "link"]
