"""Captions of which a training reads only the beginning are named before it begins."""

from pathlib import Path

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.training.data.lengths import list_too_long
from pipelines.training.data.sources import read_examples
from tests.pipelines.training.data.pictures import write_picture

LONG = "a zorb, " + "very detailed, " * 200 + "at night"


@pytest.mark.parametrize("model_id", ["demo-sdxl", "demo-flux2", "demo-wan"])
def test_pictures_with_captions_that_are_cut_are_named_with_their_lengths(tmp_path: Path, model_id: str) -> None:
    write_picture(tmp_path / "long.png", 64, 64, text=LONG)
    write_picture(tmp_path / "short.png", 64, 64, text="a zorb")
    model = load_catalog().get(model_id)
    examples = read_examples([tmp_path]).examples
    [note] = list_too_long(examples, model, trigger="", write_prompt=str)
    assert note.startswith(f"1 caption is longer than {model.title} reads") and "long.png (" in note
    assert "short.png" not in note
    assert list_too_long(examples[1:], model, trigger="", write_prompt=str) == ()


def test_nothing_is_said_where_the_tokenizer_is_not_here(tmp_path: Path) -> None:
    write_picture(tmp_path / "long.png", 64, 64, text=LONG)
    examples = read_examples([tmp_path]).examples
    assert list_too_long(examples, load_catalog().get("sdxl-base"), trigger="", write_prompt=str) == ()
