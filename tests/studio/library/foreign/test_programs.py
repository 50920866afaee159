"""Fooocus, InvokeAI and SwarmUI, in the layout that each of them writes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe]
Write = Callable[..., bytes]

FOOOCUS = {
    "adm_guidance": "(1.5, 0.8, 0.3)",
    "base_model": "sd_xl_base_1.0_0.9vae",
    "base_model_hash": "be9edd61",
    "full_negative_prompt": ["unrealistic, saturated", "fog"],
    "full_prompt": ["cinematic still a red boat . emotional", "a red boat, sharp focus"],
    "guidance_scale": 4.0,
    "loras": [["sd_xl_offset_example-lora_1.0", 0.1, "4852686128"]],
    "lora_combined_1": "sd_xl_offset_example-lora_1.0 : 0.1",
    "metadata_scheme": "fooocus",
    "negative_prompt": "fog",
    "performance": "Speed",
    "prompt": "a red boat",
    "refiner_model": "None",
    "refiner_switch": 0.5,
    "resolution": "(1152, 896)",
    "sampler": "dpmpp_2m_sde_gpu",
    "scheduler": "karras",
    "seed": "7716236741046453310",
    "sharpness": 2.0,
    "steps": 30,
    "styles": "['Fooocus V2', 'Fooocus Cinematic']",
    "vae": "Default (model)",
    "version": "Fooocus v2.5.5",
}
INVOKE = {
    "generation_mode": "sdxl_txt2img",
    "positive_prompt": "a red boat",
    "negative_prompt": "fog",
    "width": 1024,
    "height": 1024,
    "seed": 17,
    "rand_device": "cpu",
    "cfg_scale": 7.5,
    "cfg_rescale_multiplier": 0,
    "steps": 30,
    "scheduler": "dpmpp_2m_k",
    "model": {"key": "1", "hash": "b", "name": "stable-diffusion-xl-base-1.0", "base": "sdxl", "type": "main"},
    "loras": [{"model": {"key": "2", "hash": "c", "name": "pixel-art", "base": "sdxl", "type": "lora"}, "weight": 0.7}],
    "vae": {"name": "sdxl-vae-fp16-fix", "base": "sdxl", "type": "vae"},
    "positive_style_prompt": "",
    "seamless_x": False,
    "strength": 0.6,
    "app_version": "5.4.2",
}
SWARM = {
    "sui_image_params": {
        "prompt": "a red boat",
        "negativeprompt": "fog",
        "model": "OfficialStableDiffusion/sd_xl_base_1.0",
        "seed": 2042464333,
        "steps": 25,
        "cfgscale": 7.0,
        "aspectratio": "1:1",
        "width": 1024,
        "height": 1024,
        "sampler": "euler_ancestral",
        "scheduler": "normal",
        "loras": ["offset"],
        "loraweights": ["1"],
        "refinercontrolpercentage": 0.2,
        "swarm_version": "0.9.5.1",
    },
    "sui_extra_data": {"date": "2025-01-02", "generation_time": "1.2 (prep) and 5.1 (gen) seconds"},
    "sui_models": [{"name": "sd_xl_base_1.0.safetensors", "param": "model", "hash": "0x31"}],
}


def list_what(found: ReadRecipe) -> set[str]:
    return {one.what for one in found.unusable}


def test_fooocus_in_its_own_scheme(read: Read, write_png: Write) -> None:
    found = read(write_png(fooocus_scheme="fooocus", parameters=json.dumps(FOOOCUS)))
    recipe = found.recipe
    assert found.source == "Fooocus"
    assert (recipe.prompt, recipe.negative_prompt) == ("a red boat", "fog")
    assert (recipe.model, recipe.shape) == ("sdxl-base", "1152x896")
    assert (recipe.steps, recipe.guidance_scale, recipe.scheduler, recipe.seed) == (
        30,
        4.0,
        "dpmpp_2m_sde_karras",
        7716236741046453310,
    )
    assert list_what(found) == {
        "LoRA sd_xl_offset_example-lora_1.0",
        "adm_guidance: (1.5, 0.8, 0.3)",
        "performance: Speed",
        "sharpness: 2.0",
        "styles: ['Fooocus V2', 'Fooocus Cinematic']",
        "vae: Default (model)",
    }


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_fooocus_in_a_jpeg_or_webp(read: Read, write_exif: Write, kind: str) -> None:
    tags = {0x9286: json.dumps(FOOOCUS), 0x0131: "Fooocus v2.5.5", 0x927C: "fooocus"}
    found = read(write_exif(tags, kind=kind, is_flat=True))
    assert (found.source, found.recipe.prompt) == ("Fooocus", "a red boat")


def test_fooocus_in_a1111s_scheme(read: Read, write_png: Write) -> None:
    text = (
        "cinematic still a red boat, a red boat, sharp focus\nNegative prompt: unrealistic, fog\n"
        "Steps: 30, Sampler: DPM++ 2M Karras, Seed: 99, Size: 1152x896, CFG scale: 4.0, Sharpness: 2.0, "
        'ADM Guidance: "(1.5, 0.8, 0.3)", Model: sd_xl_base_1.0, Model hash: be9edd61, Performance: Speed, '
        'Scheduler: karras, VAE: Default (model), Raw prompt: a red boat, Raw negative prompt: fog, Lora hashes: '
        '"offset: 4852686128, b: 12", Lora weights: "offset: 0.1, b: 1.0", Version: Fooocus v2.5.5'
    )  # fmt: skip
    found = read(write_png(parameters=text, fooocus_scheme="a1111"))
    recipe = found.recipe
    assert (found.source, recipe.prompt, recipe.negative_prompt) == ("Fooocus", "a red boat", "fog")
    assert (recipe.scheduler, recipe.seed, recipe.shape) == ("dpmpp_2m_karras", 99, "1152x896")
    assert {"LoRA offset", "LoRA b", "Sharpness: 2.0", "ADM Guidance: (1.5, 0.8, 0.3)"} <= list_what(found)


def test_invokeai_now(read: Read, write_png: Write) -> None:
    found = read(write_png(invokeai_metadata=json.dumps(INVOKE), invokeai_graph="{}"))
    recipe = found.recipe
    assert (found.source, recipe.prompt, recipe.negative_prompt) == ("InvokeAI", "a red boat", "fog")
    assert (recipe.model, recipe.shape, recipe.scheduler) == ("sdxl-base", "1024x1024", "dpmpp_2m_karras")
    assert (recipe.steps, recipe.guidance_scale, recipe.seed) == (30, 7.5, 17)
    assert list_what(found) == {"LoRA pixel-art", "vae: …"}


def test_invokeais_strength_is_that_of_a_picture_to_start_from(read: Read, write_png: Write) -> None:
    plain = read(write_png(invokeai_metadata=json.dumps(INVOKE)))
    assert plain.recipe.strength is None
    from_picture = read(write_png(invokeai_metadata=json.dumps(INVOKE | {"generation_mode": "sdxl_img2img"})))
    assert from_picture.recipe.strength == 0.6
    assert not any("strength" in one.what.lower() for one in (*plain.unusable, *from_picture.unusable))


def test_swarmuis_creativity_is_a_strength(read: Read, write_png: Write) -> None:
    fields = {**SWARM["sui_image_params"], "initimagecreativity": 0.4}
    assert read(write_png(parameters=json.dumps({"sui_image_params": fields}))).recipe.strength == 0.4


def test_invokeai_3(read: Read, write_png: Write) -> None:
    older = INVOKE | {
        "model": {"model_name": "stable-diffusion-xl-base-1-0", "base_model": "sdxl", "model_type": "main"},
        "loras": [{"lora": {"model_name": "pixel-art", "base_model": "sdxl"}, "weight": 0.7}],
    }
    found = read(write_png(invokeai_metadata=json.dumps(older)))
    assert found.recipe.model == "sdxl-base"
    assert "LoRA pixel-art" in list_what(found)


def test_invokeai_2(read: Read, write_png: Write) -> None:
    image = {
        "type": "txt2img",
        "prompt": [{"prompt": "a red boat [fog] [rain]", "weight": 1.0}],
        "steps": 50,
        "cfg_scale": 7.5,
        "threshold": 0,
        "perlin": 0,
        "width": 512,
        "height": 512,
        "seed": 41,
        "sampler": "k_euler_a",
        "hires_fix": True,
        "variations": [],
    }
    older = {
        "model": "stable diffusion",
        "model_weights": "dreamlike-2.0",
        "app_version": "2.3.0",
        "image": image,
    }
    found = read(write_png(Dream='"x" -s 1', sd_metadata=json.dumps(older)))
    recipe = found.recipe
    assert (recipe.prompt, recipe.negative_prompt) == ("a red boat", "fog, rain")
    assert (recipe.model, recipe.shape, recipe.scheduler) == ("demo-sdxl", "256x256", "euler_ancestral")
    assert list_what(found) == {"Model dreamlike-2.0", "hires_fix: True"}


def test_invokeai_1(read: Read, write_png: Write) -> None:
    found = read(write_png(Dream='"a \\"red\\" boat [fog]" -s 50 -S42 -W 512 -H 256 -C 7.5 -A k_euler -G 0.8 -v0.1'))
    recipe = found.recipe
    assert (recipe.prompt, recipe.negative_prompt) == ('a \\"red\\" boat', "fog")
    assert (recipe.steps, recipe.seed, recipe.guidance_scale) == (50, 42, 7.5)
    assert (recipe.shape, recipe.scheduler) == ("320x192", "euler")
    assert list_what(found) == {"-G: 0.8", "-v0.1: on"}


def test_swarmui_in_a_png(read: Read, write_png: Write) -> None:
    found = read(write_png(parameters=json.dumps(SWARM, indent=2)))
    recipe = found.recipe
    assert (found.source, recipe.prompt, recipe.negative_prompt) == ("SwarmUI", "a red boat", "fog")
    assert (recipe.model, recipe.shape, recipe.scheduler) == ("sdxl-base", "1024x1024", "euler_ancestral")
    assert (recipe.steps, recipe.guidance_scale, recipe.seed) == (25, 7.0, 2042464333)
    assert list_what(found) == {"LoRA offset", "refinercontrolpercentage: 0.2"}


@pytest.mark.parametrize("order", ["le", "be"])
def test_swarmui_in_a_jpeg(read: Read, write_exif: Write, order: str) -> None:
    comment = b"UNICODE\0" + json.dumps(SWARM, ensure_ascii=False).encode(f"utf-16-{order}")
    assert read(write_exif({0x9286: comment})).recipe.seed == 2042464333


def test_a1111_in_a_jpeg_with_other_alphabets(read: Read, write_exif: Write) -> None:
    text = "лодка 帆船 🌅\nSteps: 20, Sampler: Euler, Seed: 3, Size: 256x256"
    found = read(write_exif({0x9286: b"UNICODE\0" + text.encode("utf-16-be")}))
    assert (found.recipe.prompt, found.recipe.seed) == ("лодка 帆船 🌅", 3)


@pytest.mark.parametrize(
    ("keyword", "values"),
    [
        ("parameters", FOOOCUS | {"steps": "many"}),
        ("parameters", FOOOCUS | {"resolution": "huge"}),
        ("parameters", FOOOCUS | {"negative_prompt": ["a", "list"]}),
        ("parameters", FOOOCUS | {"loras": {"a": 1}}),
        ("parameters", {"sui_image_params": {"prompt": "x", "seed": True}}),
        ("invokeai_metadata", INVOKE | {"model": "a text"}),
        ("invokeai_metadata", INVOKE | {"width": 10.5}),
        ("invokeai_metadata", INVOKE | {"cfg_scale": [7.5, 7.5]}),
        ("invokeai_metadata", INVOKE | {"cfg_scale": 10**400}),
        ("invokeai_metadata", INVOKE | {"loras": ["ink"]}),
        ("lumesh", {"model": "demo-sdxl", "prompt": "x", "steps": "many"}),
        ("lumesh", {"model": "demo-sdxl", "prompt": "x", "loras": [{"ref": "x", "scale": "much"}]}),
        ("lumesh", {"model": "demo-sdxl", "prompt": "x", "evil": 1}),
        ("lumesh", {"model": "demo-sdxl", "prompt": "x", "shape": "../../etc"}),
    ],
)
def test_one_odd_field_is_listed_and_costs_no_other(read: Read, write_png: Write, keyword: str, values: Any) -> None:
    found = read(write_png(**{keyword: json.dumps(values)}))
    assert found.recipe.prompt
    assert any(one.why.startswith(("is no ", "input should", "is not a known field")) for one in found.unusable)


@pytest.mark.parametrize(
    ("keyword", "values"),
    [
        ("invokeai_metadata", INVOKE | {"cfg_scale": float("nan")}),
        ("invokeai_metadata", []),
        ("sd_metadata", {"image": []}),
        ("sd_metadata", {}),
        ("lumesh", {"model": "demo-sdxl", "prompt": "x", "guidance_scale": float("inf")}),
        ("lumesh", {"model": "demo-sdxl"}),
        ("lumesh", {"model": "demo-sdxl", "prompt": "x", "schema": 99}),
    ],
)
def test_what_is_no_recipe_is_told(read: Read, write_png: Write, keyword: str, values: Any) -> None:
    with pytest.raises(MetadataError, match="Its recipe") as told:
        read(write_png(**{keyword: json.dumps(values)}))
    assert len(told.value.detail) < 400
