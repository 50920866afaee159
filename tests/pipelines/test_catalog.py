"""The catalogue: shapes read back as written, and people's own checkpoints beside the shipped models."""

import json
from pathlib import Path

import pytest

from pipelines.catalog import Shape, load_catalog
from pipelines.errors import ModelError


def write_checkpoint(folder: Path, *, pipeline: str = "StableDiffusionXLPipeline") -> None:
    """A folder in diffusers layout without weights: an SDXL of 256 px."""
    files = {
        "model_index.json": {"_class_name": pipeline},
        "unet/config.json": {"sample_size": 64},
        "vae/config.json": {"block_out_channels": [32, 64, 64]},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize("text", ["1024x1024", "1280x720x81"])
def test_a_shape_reads_back_as_written(text: str) -> None:
    assert str(Shape.parse(text)) == text


def test_spaces_and_capitals_are_forgiven() -> None:
    assert Shape.parse(" 512X256 ") == Shape(width=512, height=256)


@pytest.mark.parametrize("text", ["", "big", "512", "512x", "512x512x1x1", "-1x5"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a shape"):
        Shape.parse(text)


def test_every_shipped_id_is_there_once() -> None:
    ids = [model.id for model in load_catalog().models]
    assert len(ids) == len(set(ids))
    assert ids[0] == "demo-sdxl"


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"no model 'nope'.*demo-sdxl"):
        load_catalog().get("nope")


def test_a_checkpoint_of_ones_own_is_found(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "My Model")
    model = load_catalog(tmp_path).get("my-model")
    assert (model.family, model.path, model.shapes) == ("sdxl", tmp_path / "My Model", (Shape(width=256, height=256),))


def test_a_checkpoint_of_an_unknown_kind_is_passed_over(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "other", pipeline="SomethingElsePipeline")
    assert load_catalog(tmp_path) == load_catalog()


def test_a_checkpoint_cannot_take_a_shipped_models_id(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "demo-sdxl")
    assert load_catalog(tmp_path) == load_catalog()


def test_an_incomplete_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "half")
    (tmp_path / "half" / "vae" / "config.json").unlink()
    with pytest.raises(ModelError, match=r"not a complete diffusers checkpoint.*Copy the whole folder"):
        load_catalog(tmp_path)
