"""Sizes that are asked for by hand, of a plan or a pack: what no training has is refused with what would do."""

import pytest

from pipelines.errors import RecipeError
from pipelines.models.catalog import load_catalog
from pipelines.models.model import Shape
from pipelines.training.settings import TrainingSettings
from pipelines.training.sizes import choose_size, find_size_problem, parse_size

PICTURES, VIDEOS = load_catalog().get("flux2-klein-4b"), load_catalog().get("wan2.1-14b")


@pytest.mark.parametrize("text", ["1024x1024", "64x4096"])
def test_a_picture_of_whole_patches_can_be_learnt(text: str) -> None:
    assert find_size_problem(parse_size(text, PICTURES), PICTURES, multiple=32) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1000x1024", "multiples of 32 pixels from 64 to 4096, such as 992"),
        ("1024x1", "such as 64"),
        ("8192x1024", "such as 4096"),
        ("1024x1024x33", "makes pictures"),
    ],
)
def test_other_sizes_say_what_would_do(text: str, said: str) -> None:
    assert said in str(find_size_problem(parse_size(text, PICTURES), PICTURES, multiple=32))


def test_clips_have_4n_and_1_frames_or_are_pictures() -> None:
    assert find_size_problem(Shape(width=832, height=480), VIDEOS, multiple=16) is None
    assert find_size_problem(Shape(width=832, height=480, frames=33), VIDEOS, multiple=16) is None
    assert "34 frames are not 4n + 1, such as 33" in str(
        find_size_problem(Shape(width=832, height=480, frames=34), VIDEOS, multiple=16)
    )


def test_what_is_no_size_is_refused() -> None:
    with pytest.raises(RecipeError, match="big is no size, such as 1024x1024"):
        parse_size("big", PICTURES)


@pytest.mark.parametrize(
    ("model", "asked", "size"),
    [
        ("wan2.1-14b", {}, "1280x720x81"),
        ("wan2.1-14b", {"resolution": 480, "frames": 33}, "640x368x33"),  # an area, as in train
        ("wan2.1-14b", {"resolution": 480, "buckets": False}, "480x480x81"),
        ("wan2.1-14b", {"resolution": 960}, "1280x720x81"),
        ("sdxl-base", {"resolution": 512}, "512x512"),
        ("sdxl-base", {"buckets": False}, "1024x1024"),
    ],
)
def test_a_resolution_is_the_size_that_training_makes_of_it(model: str, asked: dict[str, object], size: str) -> None:
    found = load_catalog().get(model)
    settings = TrainingSettings.model_validate({"model": model, "lora": True, **asked})
    assert str(choose_size(settings, found, ask_multiple=lambda: 16)) == size
