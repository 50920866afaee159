"""What is held back to validate with is told, and data of which nothing is left to learn is refused as that."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipelines import registry
from pipelines.errors import RecipeError
from pipelines.models.catalog import load_catalog
from pipelines.training.checks import Checked, check_training
from pipelines.training.settings import read_settings
from tests.pipelines.training.data.pictures import encode, make_picture


def check(data: Path | str, **asked: Any) -> Checked:
    settings = read_settings({"model": "demo-sdxl", "data": (str(data),), "lora": True, "trigger": "sks", **asked})
    model = load_catalog().get(settings.model)
    return check_training(settings, model, registry.find_learner(model), name=None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for number in range(4):
        (tmp_path / "data" / f"{number}.png").write_bytes(encode(make_picture(256, 256, seed=number)))
    return tmp_path / "data"


def test_the_folder_of_the_data_itself_leaves_nothing_to_learn(data: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        check(data, validate_with=str(data))
    assert "none is left to learn" in caught.value.fields["validate"]


def test_of_a_folder_it_is_told_what_validates_what_is_not_learnt_and_what_was_changed(data: Path) -> None:
    other = data.with_name("other")
    other.mkdir()
    (other / "same.png").write_bytes((data / "2.png").read_bytes())
    (other / "x.png").write_bytes(encode(Image.new("RGBA", (256, 256), (255, 0, 0, 9))))
    notes = check(data, validate_with=str(other)).notes
    assert f"2 pictures of {other} validate" in notes
    assert "1 picture is held back to validate with, and is not learnt: 2.png" in notes
    assert any(note.startswith("x.png") and "white" in note for note in notes)


def test_of_a_share_its_pictures_are_told_and_of_one_picture_that_none_is_held_back(data: Path) -> None:
    assert any(note.startswith("3 pictures are held back") for note in check(data, validate_with="0.99").notes)
    for number in range(3):
        (data / f"{number}.png").unlink()
    checked = check(data, validate_with="0.5")
    assert checked.held is None and any("none is held back" in note for note in checked.notes)


def test_prior_pictures_alone_that_are_only_kept_are_nothing_to_learn(data: Path) -> None:
    for file in data.glob("*.png"):
        file.with_suffix(".txt").write_text("a cat")
    assert len(check(f"{data},prior").examples) == 4
    with pytest.raises(RecipeError) as caught:
        check(f"{data},prior", preserve=1.0)
    assert "marked prior" in caught.value.fields["data"]
