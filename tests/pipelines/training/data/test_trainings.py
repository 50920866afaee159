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
