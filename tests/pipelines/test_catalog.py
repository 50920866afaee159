"""The catalogue: shapes read back as written, and people's own checkpoints beside the shipped models."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.catalog import CATALOG_FILE, AttentionOptions, Model, Shape, load_catalog
from pipelines.errors import ModelError


def write_checkpoint(folder: Path, *, pipeline: str = "StableDiffusionXLPipeline", **index: object) -> None:
    """A folder in diffusers layout without weights, and whose index names none: an SDXL of 256 px."""
    files = {
        "model_index.json": {"_class_name": pipeline, **index},
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


@pytest.mark.parametrize(
    ("index", "in_channels", "resembles"),
    [
        ({}, 16, "wan2.1-1.3b"),
        ({"_class_name": "WanImageToVideoPipeline"}, 36, "wan2.1-i2v-14b"),
        ({"boundary_ratio": 0.875}, 16, "wan2.2-a14b"),
        ({"expand_timesteps": True}, 16, "wan2.2-ti2v-5b"),
    ],
)
def test_a_wan_of_ones_own_runs_as_the_one_it_resembles(
    tmp_path: Path, index: dict[str, object], in_channels: int, resembles: str
) -> None:
    files = {
        "model_index.json": {"_class_name": "WanPipeline"} | index,
        "transformer/config.json": {"in_channels": in_channels},
        "vae/config.json": {"z_dim": 16},
    }
    for name, content in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(json.dumps(content))
    model, template = load_catalog(tmp_path).get("mine"), load_catalog().get(resembles)
    assert (model.path, model.repo, model.family) == (tmp_path / "mine", "", "wan")
    assert (model.shapes, model.fps, model.max_images) == (template.shapes, template.fps, template.max_images)


@pytest.mark.parametrize(("model_id", "shape"), [("wan2.1-14b", "832x480x80"), ("sdxl-base", "1024x1024x5")])
def test_videos_have_4n_plus_1_frames_and_pictures_one(model_id: str, shape: str) -> None:
    model = load_catalog().get(model_id)
    with pytest.raises(ModelError, match=f"{shape} has"):
        replace(model, shapes=(*model.shapes, Shape.parse(shape)))


def test_what_is_no_model_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a-half")
    (tmp_path / "a-half" / "vae" / "config.json").unlink()
    write_checkpoint(tmp_path / "demo-sdxl")
    write_checkpoint(tmp_path / "whole")
    catalog = load_catalog(tmp_path)
    assert catalog.models[:-1] == load_catalog().models
    assert catalog.models[-1].id == "whole"
    told = {one.name: f"{one.reason} {one.advice}" for one in catalog.unusable}
    assert told.keys() == {"a-half", "demo-sdxl"}
    assert re.search(r"not a complete .*vae/config.json is not there.*Wait if its download", told["a-half"])
    assert re.search(r"Another model is called demo-sdxl.*another name", told["demo-sdxl"])
    with pytest.raises(ModelError, match="'a-half' cannot be used: .*vae/config.json is not there"):
        catalog.get("a-half")


def test_a_folder_without_its_weights_is_good_for_plans_only(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "mine", unet=["diffusers", "UNet2DConditionModel"])
    catalog = load_catalog(tmp_path)
    assert [(one.name, "holds no safetensors" in one.reason) for one in catalog.unusable] == [("mine", True)]
    with pytest.raises(ModelError, match="'mine' cannot be used"):
        catalog.get("mine")
    assert catalog.with_partial(lambda _model, lacking: lacking <= {"text_encoder"}) == catalog
    with_it = catalog.with_partial()
    assert (with_it.get("mine").path, with_it.unusable) == (tmp_path / "mine", ())


def test_a_checkpoint_keeps_its_own_scheduler(tmp_path: Path) -> None:
    for name, scheduler in {"ancestral": "EulerAncestralDiscreteScheduler", "lcm": "LCMScheduler"}.items():
        write_checkpoint(tmp_path / name)
        (tmp_path / name / "scheduler").mkdir()
        config = json.dumps({"_class_name": scheduler})
        (tmp_path / name / "scheduler" / "scheduler_config.json").write_text(config)
    catalog = load_catalog(tmp_path)
    assert catalog.get("ancestral").scheduler == "euler_ancestral"
    assert catalog.get("lcm").scheduler == "euler"
    assert "LCMScheduler does not run here: the default is euler" in catalog.get("lcm").description


@pytest.mark.parametrize("model", [one for one in load_catalog().models if one.repo], ids=lambda model: model.id)
def test_weights_from_the_hub_are_those_of_one_commit(model: Model) -> None:
    assert re.fullmatch("[0-9a-f]{40}", model.revision)


def write_catalog(file: Path, model_id: str, attention: str) -> Path:
    """The shipped one with attention options of a model."""
    line = f'id = "{model_id}"\n'
    file.write_text(CATALOG_FILE.read_text("utf-8").replace(line, f"{line}attention = {attention}\n"), "utf-8")
    return file


def test_no_shipped_model_has_a_window_and_one_may_be_given(tmp_path: Path) -> None:
    assert all(model.attention == AttentionOptions() for model in load_catalog().models)
    file = write_catalog(tmp_path / "models.toml", "wan2.1-14b", "{ smooths_keys = true, window = 4096 }")
    found = load_catalog(file=file).get("wan2.1-14b").attention
    assert found == AttentionOptions(smooths_keys=True, window=4096)


@pytest.mark.parametrize(
    ("model_id", "attention", "reason"),
    [
        ("wan2.1-14b", "{ windows = 4096 }", "no attention option windows"),
        ("wan2.1-14b", "{ window = 0 }", "no window of 0 tokens"),
        ("wan2.1-14b", '{ window = "4096" }', "window cannot be '4096'"),
        ("wan2.1-14b", "{ smooths_keys = 1 }", "smooths_keys cannot be 1"),
        ("wan2.1-14b", "true", "attention is a table"),
        ("flux2-dev", "{ window = 4096 }", "flux2-dev: .* tokens of the text stand before those of the picture"),
        ("sdxl-base", "{ smooths_keys = true }", "sdxl-base: .* of the family wan"),
    ],
)
def test_attention_options_that_cannot_be_are_refused(
    tmp_path: Path, model_id: str, attention: str, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        load_catalog(file=write_catalog(tmp_path / "models.toml", model_id, attention))
