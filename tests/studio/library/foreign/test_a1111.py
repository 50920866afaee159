"""A1111's text, as A1111, Forge and sites write it."""

from collections.abc import Callable

import pytest

from pipelines.recipes.recipe import MAX_PROMPT_CHARS
from studio.library.foreign.found import ReadRecipe

Read = Callable[..., ReadRecipe]

PLAIN = """a red sailboat, <lora:add_detail:0.8>, (sunset:1.2)
on the ocean, Steps: not these
Negative prompt: blurry, low quality,
two masts
Steps: 28, Sampler: Euler a, Schedule type: Karras, CFG scale: 6.5, Seed: 1234567890, Size: 1216x832, Model hash: \
31e35c80fc, Model: sd_xl_base_1.0, VAE hash: 235745af8d, VAE: sdxl_vae.safetensors, Denoising strength: 0.4, \
Clip skip: 2, Hires upscale: 2, Hires steps: 10, Hires upscaler: Latent, Lora hashes: "add_detail: 7c6bad76eb5, x: 1", \
Version: v1.10.1"""


def test_every_setting_arrives_or_is_listed(read_parameters: Read) -> None:
    found = read_parameters(PLAIN)
    recipe = found.recipe
    assert found.source == "A1111"
    assert recipe.prompt == "a red sailboat, (sunset:1.2)\non the ocean, Steps: not these"
    assert recipe.negative_prompt == "blurry, low quality,\ntwo masts"
    assert (recipe.steps, recipe.seed, recipe.guidance_scale) == (28, 1234567890, 6.5)
    assert (recipe.model, recipe.shape, recipe.scheduler) == ("sdxl-base", "1216x832", "euler_ancestral")
    assert {one.what for one in found.unusable} == {
        "LoRA add_detail",
        "Schedule Karras",
        "VAE: sdxl_vae.safetensors",
        "Denoising strength: 0.4",
        "Clip skip: 2",
        "Hires: upscale 2, steps 10, upscaler Latent",
    }
    assert all(one.why for one in found.unusable)
    assert found.notes == ("A1111 draws its noise in another way: the same seed gives another picture here.",)


def test_the_strength_of_a_picture_to_start_from_waits_for_it(read_parameters: Read) -> None:
    found = read_parameters("a boat\nSteps: 20, Model: sd_xl_base_1.0, Denoising strength: 0.4")
    assert (found.recipe.strength, found.unusable) == (0.4, ())
    assert found.notes == ("The strength counts as soon as you choose the picture to start from.",)
    other = read_parameters("a boat\nSteps: 20, Model: demo-flux2, Denoising strength: 0.4")
    assert other.recipe.strength is None
    assert [(one.what, one.why) for one in other.unusable] == [("Strength: 0.4", "demo-flux2 has no strength")]
    damaged = read_parameters("a boat\nSteps: 20, Model: sd_xl_base_1.0, Denoising strength: 7")
    assert (damaged.recipe.strength, [one.what for one in damaged.unusable]) == (None, ["Strength: 7.0"])


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ("Version: f2.0.1v1.10.1-previous-659-gc055f2d4", "Forge"),
        ("App: SD.Next, Version: 4b2c7a1", "SD.Next"),
        ("Version: v1.9.4", "A1111"),
        ("Version: Lumesh", "Lumesh"),
        ("Civitai resources: [{\"type\":\"checkpoint\",\"modelVersionId\":1}], Civitai metadata: {}", "A1111"),
    ],
)  # fmt: skip
def test_relatives_are_told_apart(read_parameters: Read, settings: str, source: str) -> None:
    found = read_parameters(f"a boat\nSteps: 20, Sampler: Undefined, Size: 256x256, Model: demo-sdxl, {settings}")
    assert (found.source, found.recipe.steps, found.unusable, found.notes) == (source, 20, (), ())


def test_without_a_negative_prompt_there_is_none(read_parameters: Read) -> None:
    recipe = read_parameters("a boat\nSteps: 20, Sampler: DPM++ 2M Karras, Model: sd_xl_base_1.0").recipe
    assert (recipe.negative_prompt, recipe.scheduler, recipe.shape, recipe.seed) == ("", "dpmpp_2m_karras", None, None)


def test_quoted_values_keep_their_commas_and_newlines(read_parameters: Read) -> None:
    text = 'words\nSteps: 20, Raw prompt: "a, \\"b\\"\\nc", Raw negative prompt: "d, e", Styles: "[\'A\', \'B\']"'
    found = read_parameters(text)
    assert (found.recipe.prompt, found.recipe.negative_prompt) == ('a, "b"\nc', "d, e")
    assert [one.what for one in found.unusable] == ["Styles: ['A', 'B']"]


def test_templates_after_the_settings_do_no_harm(read_parameters: Read) -> None:
    found = read_parameters("a boat\nSteps: 20, Seed: 5\nTemplate: a {boat|ship}\nNegative Template: x")
    assert (found.recipe.prompt, found.recipe.seed) == ("a boat", 5)


@pytest.mark.parametrize(
    ("settings", "what", "why"),
    [
        ("Steps: 999", "Steps: 999", "999 is out of range; allowed: 1 to 100"),
        ("Steps: 20, CFG scale: -3", "Guidance: -3.0", "-3.0 is out of range; allowed: 0.0 to 20.0"),
        ("Steps: 20, Seed: -2", "Seed: -2", f"-2 is out of range; allowed: 0 to {2**63 - 1}"),
        (
            "Steps: 20, Seed: 9223372036854775808",
            f"Seed: {2**63}",
            f"{2**63} is out of range; allowed: 0 to {2**63 - 1}",
        ),
        (
            "Steps: 20, Sampler: DPM++ 3M SDE",
            "Sampler DPM++ 3M SDE",
            "Postcards (demo, SDXL layout) has no such scheduler; its default is used",
        ),
        (
            "Steps: 20, Model: juggernautXL_v9",
            "Model juggernautXL_v9",
            "is not among the models here; Postcards (demo, SDXL layout) stays",
        ),
        (
            "Steps: 20, Distilled CFG Scale: 3.5",
            "Distilled guidance: 3.5",
            "Postcards (demo, SDXL layout) takes none",
        ),
    ],
)
def test_what_cannot_be_is_listed_with_the_reason(read_parameters: Read, settings: str, what: str, why: str) -> None:
    found = read_parameters(f"a boat\n{settings}")
    assert (what, why) in {(one.what, one.why) for one in found.unusable}
    assert found.recipe.prompt == "a boat"


def test_forges_distilled_guidance_is_flux2s(read_parameters: Read) -> None:
    found = read_parameters(
        "a boat\nSteps: 20, Sampler: Euler, CFG scale: 1, Distilled CFG Scale: 3.5, Model: flux2_dev"
    )
    recipe = found.recipe
    assert (recipe.model, recipe.guidance_scale, recipe.scheduler) == ("flux2-dev", 3.5, "flow_match_euler")


@pytest.mark.parametrize("odd", ["Seed: 0x10", "CFG scale: nan", "CFG scale: None", "Size: big", "Size: None"])
def test_one_odd_value_costs_no_other(read_parameters: Read, odd: str) -> None:
    found = read_parameters(f"a boat\nSteps: 20, Sampler: Euler, {odd}, Batch size: 2")
    assert (found.recipe.prompt, found.recipe.steps, found.recipe.batch_size) == ("a boat", 20, 2)
    assert [one.what for one in found.unusable] == [odd]


def test_other_texts_are_no_recipes(read: Read) -> None:
    assert read(b"CREATOR: gd-jpeg v1.0 (using IJG JPEG v62), quality = 90") is None
    assert read(b"hello, world\n") is None


def test_a_long_list_is_cut_and_told(read_parameters: Read) -> None:
    found = read_parameters("a boat\nSteps: 20, " + ", ".join(f"Odd {number}: on" for number in range(99)))
    assert [one.what for one in found.unusable][39:] == ["Odd 39: on", "59 more settings"]


def test_a_long_prompt_is_cut_and_told(read_parameters: Read) -> None:
    found = read_parameters(f"{'boat ' * 7000}\nSteps: 20")
    assert len(found.recipe.prompt) == MAX_PROMPT_CHARS
    assert f"The prompt has 34999 characters: its first {MAX_PROMPT_CHARS} are used." in found.notes


@pytest.mark.parametrize(
    "text",
    [
        "a" * 49_000 + "\nSteps: 9, " + "b" * 900,
        "x\nSteps: 9, " + '"\\"' * 16_000,
        "<lora:" * 8000 + "\nSteps: 9",
        "(a" * 20_000 + "\nSteps: 9",
        "a,  " * 12_000 + "<lora:x>\nSteps: 9",
    ],
    ids=lambda text: text[:6],
)
def test_texts_made_to_be_slow_are_read_at_once(read_parameters: Read, text: str) -> None:
    assert read_parameters(text).recipe.steps == 9
