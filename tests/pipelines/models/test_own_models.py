"""What lies in models/: everything is a model, or is told with its reason."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipelines.families.traits import Likeness
from pipelines.models.catalog import PRESETS_DIR, load_catalog
from pipelines.models.fingerprints import CONFIGS_DIR
from pipelines.models.own_models import OwnModel, UnusableModel, find_own_models, read_own_model


def write_sdxl(folder: Path, *, pipeline: str = "StableDiffusionXLPipeline", **changes: object) -> Path:
    """An SDXL of 256 px whose only weights are its UNet's; `changes` are of the index and of the UNet's config."""
    index = {"requires_aesthetics_score"} & changes.keys()
    files = {
        "model_index.json": {"_class_name": pipeline, "unet": ["diffusers", "UNet2DConditionModel"]}
        | {name: changes[name] for name in index},
        "unet/config.json": {"sample_size": 64} | {name: changes[name] for name in changes.keys() - index},
        "vae/config.json": {"block_out_channels": [32, 64, 64]},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    save(folder / "unet" / "diffusion_pytorch_model.safetensors", "weight")
    return folder


def save(file: Path, *names: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.zeros(8, np.float32) for name in names}, file)


def find(models_dir: Path) -> dict[str, str]:
    """Maps each name to "" for a model, or to what is told."""
    found = {one.name: one for one in find_own_models(models_dir)}
    return {
        name: f"{one.reason} {one.advice}" if isinstance(one, UnusableModel) else "".join(getattr(one, "lacking", ()))
        for name, one in found.items()
    }


def test_nested_folders_and_the_hubs_own_layout_are_models(tmp_path: Path) -> None:
    for name in ("plain", "author/name", "deep/er/still", "models--some--one/snapshots/0123456789"):
        write_sdxl(tmp_path / name)
    (tmp_path / "models--some--one" / "blobs").mkdir()
    found = list(find_own_models(tmp_path))
    assert [one.id for one in found] == ["author-name", "deep-er-still", "some-one", "plain"]
    assert all(isinstance(one, OwnModel) and not one.lacking for one in found)


def test_a_name_in_another_script_is_an_id_and_one_without_letters_and_digits_is_told(tmp_path: Path) -> None:
    for name in ("日本", "日本 XL", "Ünï", "!!"):
        write_sdxl(tmp_path / name)
    catalog = load_catalog(tmp_path)
    assert {one.title: one.id for one in catalog.models if one.path and tmp_path in one.path.parents} == {
        "日本": "日本",
        "日本 XL": "xl",
        "Ünï": "n",
    }
    assert [str(one.reason) for one in catalog.unusable if one.name == "!!"] == [
        "Its name has neither letters nor digits."
    ]


@pytest.mark.parametrize("pipeline", ["StableDiffusionXLImg2ImgPipeline", "StableDiffusionXLInpaintPipeline"])
def test_the_same_weights_under_another_pipelines_name_are_a_model(tmp_path: Path, pipeline: str) -> None:
    write_sdxl(tmp_path / "mine", pipeline=pipeline)
    assert find(tmp_path) == {"mine": ""}


@pytest.mark.parametrize("model_id", ["sd15", "sd2-base", "sd21", "sdxl-base"])
def test_a_model_of_ones_own_is_like_the_shipped_one_of_its_kind(model_id: str) -> None:
    found = read_own_model(CONFIGS_DIR / model_id, "mine")
    assert isinstance(found, OwnModel)
    assert found.likeness == Likeness(model_id)
    assert {found.family} == {model.family for model in load_catalog().models if model.id == model_id}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pipeline": "StableDiffusionXLImg2ImgPipeline", "requires_aesthetics_score": True}, "SDXL's refiner"),
        ({"in_channels": 9}, "takes 9 channels"),
        ({"time_cond_proj_dim": 256}, "LCM"),
        ({"pipeline": "StableDiffusionDepth2ImgPipeline"}, "takes a depth map, which no code here runs. Use a check"),
        ({"pipeline": "StableDiffusionPipeline", "in_channels": 9}, "a Stable Diffusion for inpainting"),
        ({"pipeline": "StableDiffusionPipeline", "time_cond_proj_dim": 256}, "a Stable Diffusion distilled"),
        ({"pipeline": "FluxPipeline"}, "a FLUX.1"),
        ({"pipeline": "SomethingElsePipeline"}, "SomethingElsePipeline is of no family that runs here. Use a check"),
        ({"sample_size": None}, "not a complete diffusers checkpoint"),
        ({"sample_size": [64, 64]}, "not a complete diffusers checkpoint"),
        ({"pipeline": ["odd"]}, "not a complete diffusers checkpoint"),
    ],
)
def test_a_folder_that_cannot_run_says_why(tmp_path: Path, changes: dict[str, object], told: str) -> None:
    write_sdxl(tmp_path / "mine", **changes)
    write_sdxl(tmp_path / "other")
    found = find(tmp_path)
    assert told in found.pop("mine")
    assert found == {"other": ""}


@pytest.mark.parametrize("content", ["{", "[]", "7", '{"_class_name": 3}', "\xff", "[" * 100_000])
def test_an_index_that_holds_anything_ends_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "model_index.json").write_bytes(content.encode("latin-1"))
    write_sdxl(tmp_path / "other")
    assert find(tmp_path).keys() == {"odd", "other"}
    assert find(tmp_path)["other"] == ""


def test_the_demo_is_a_model_in_any_folder(tmp_path: Path) -> None:
    """Its latents have more channels than SDXL's, and its UNet as many."""
    (tmp_path / "copy").symlink_to(PRESETS_DIR / "demo" / "demo-sdxl")
    assert find(tmp_path) == {"copy": ""}


def test_weights_that_are_only_half_here_are_lacking(tmp_path: Path) -> None:
    file = write_sdxl(tmp_path / "mine") / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert find(tmp_path) == {"mine": "unet"}
    save(file, "weight")
    assert find(tmp_path) == {"mine": ""}
    file.rename(file.with_name("diffusion_pytorch_model.fp16.safetensors"))
    assert find(tmp_path) == {"mine": ""}


def test_a_tokenizer_that_is_still_to_come_is_lacking(tmp_path: Path) -> None:
    folder = write_sdxl(tmp_path / "mine")
    index = {"_class_name": "StableDiffusionXLPipeline", "tokenizer": ["transformers", "CLIPTokenizer"]}
    (folder / "model_index.json").write_text(json.dumps(index | {"safety_checker": [None, None]}))
    assert find(tmp_path) == {"mine": "tokenizer"}
    (folder / "tokenizer").mkdir()
    assert find(tmp_path) == {"mine": ""}


def test_what_is_no_folder_in_diffusers_layout_is_told(tmp_path: Path) -> None:
    save(tmp_path / "ink.safetensors", "lora_unet_down_blocks_1_attentions_0_proj_in.lora_down.weight")
    save(tmp_path / "what.safetensors", "weight")
    save(tmp_path / "part" / "diffusion_pytorch_model.safetensors", "weight")
    (tmp_path / "part" / "config.json").write_text('{"_class_name": "WanModel"}')
    (tmp_path / "headless" / "unet").mkdir(parents=True)
    (tmp_path / "headless" / "unet" / "config.json").write_text("{}")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10")
    for name in ("old.ckpt", "big.safetensors.part", "all.zip", "README.md", ".hidden.ckpt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "empty").mkdir()
    expected = {
        "all.zip": "archive",
        "big.safetensors.part": "download is not finished",
        "cut.safetensors": "truncated",
        "empty": "nothing in it",
        "headless": "model_index.json is not there",
        "ink.safetensors": "Put it into the loras folder",
        "old.ckpt": ".ckpt files are not read",
        "part": "single part of a model (WanModel)",
        "what.safetensors": "no checkpoint that is known here",
    }
    found = find(tmp_path)
    assert found.keys() == expected.keys()
    assert not {name for name, words in expected.items() if words not in found[name]}


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    write_sdxl(tmp_path / "elsewhere")
    models = tmp_path / "models"
    (models / "author").mkdir(parents=True)
    (models / "mine").symlink_to(tmp_path / "elsewhere")
    (models / "author" / "all").symlink_to(models)
    (models / "author" / "again").symlink_to(".")
    (models / "up").symlink_to("..")
    (tmp_path / "elsewhere" / "back").symlink_to(models)
    (models / "gone").symlink_to("/mnt/disk/gone")
    found = find(models)
    assert found.keys() == {"author", "gone", "mine", "up/elsewhere"}
    assert found["mine"] == found["up/elsewhere"] == ""
    assert "a link to /mnt/disk/gone, which is not there" in found["gone"]


def test_links_in_circles_pipes_and_odd_configs_end_nothing(tmp_path: Path) -> None:
    write_sdxl(tmp_path / "models" / "mine")
    for name in ("deep", "piped"):
        (tmp_path / "models" / name).mkdir()
    (tmp_path / "models" / "deep" / "config.json").write_text("[" * 100_000)
    (tmp_path / "models" / "loop").symlink_to("loop")
    (tmp_path / "models" / "again").symlink_to(tmp_path / "models")
    os.mkfifo(tmp_path / "models" / "pipe.safetensors")
    os.mkfifo(tmp_path / "models" / "piped" / "model_index.json")
    found = find(tmp_path / "models")
    assert found.pop("mine") == ""
    assert "symbolic links" in found.pop("loop")
    assert "not a safetensors file" in found.pop("pipe.safetensors")
    assert "RecursionError" in found.pop("deep")
    assert {name: "nothing in it" in told for name, told in found.items()} == {"again": True, "piped": True}


def test_a_model_that_has_no_folder_of_its_own_is_told_so(tmp_path: Path) -> None:
    write_sdxl(tmp_path)
    found = find(tmp_path)
    assert "a folder of their own" in found["model_index.json"]
    assert "single part" in found["unet"]


def test_no_folder_is_no_models(tmp_path: Path) -> None:
    assert not find(tmp_path / "nothing")
