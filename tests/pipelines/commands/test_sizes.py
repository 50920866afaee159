"""Sizes on the command line: a shape, or some of width, height and frames, of which the rest has a default."""

import pytest

from pipelines.commands.asked import Size
from pipelines.errors import RecipeError
from pipelines.models.catalog import load_catalog


@pytest.mark.parametrize(
    ("model", "size", "earlier", "chosen"),
    [
        ("sdxl-base", Size(), "832x1216", None),
        ("sdxl-base", Size(shape="512x512"), None, "512x512"),
        ("sdxl-base", Size(width=768, height=1280), None, "768x1280"),
        ("sdxl-base", Size(width=1280), None, "1280x1024"),
        ("wan2.1-14b", Size(width=832, height=480), None, "832x480x81"),
        ("wan2.1-14b", Size(frames=33), None, "1280x720x33"),
        ("wan2.1-14b", Size(shape="832x480x33", width=832, height=480), None, "832x480x33"),
        ("wan2.1-14b", Size(frames=33), "832x480x81", "832x480x33"),
        ("wan2.1-14b", Size(frames=33), "widexNone", None),
        ("nope", Size(width=64), None, None),
    ],
)
def test_what_is_left_out_is_the_models_default_or_the_earlier_stages(
    model: str, size: Size, earlier: str | None, chosen: str | None
) -> None:
    assert size.choose(load_catalog(), model, earlier=earlier) == chosen


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (Size(shape="832x480x33", frames=81), "--shape 832x480x33 contradicts .* say 832x480x81"),
        (Size(width=-64, height=64), "-64x64 is not a size in pixels"),
        (Size(frames=80), "80 frames: a video has 4n"),
        (Size(frames=0), "0 frames"),
    ],
)
def test_what_contradicts_itself_is_refused(size: Size, reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        size.choose(load_catalog(), "wan2.1-14b")
