"""LoRAs of SDXL: diffusers' picture of the same weights, on any mesh, from any trainer's names, undone exactly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.errors import Cancelled, ModelError, RemoteEncoderError
from pipelines.families.remote_encoder import RemoteEncoder
from pipelines.families.sdxl.architecture import spell
from pipelines.generate import generate
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.stages import Progress, ignore_progress
from tests.pipelines.denoising import TO_LATENTS
from tests.pipelines.made_loras import RANK, Pairs, draw_pairs, read_deltas, save_tensors, write_kohya, write_peft

COMPONENTS = ("unet", "text_encoder", "text_encoder_2")
KOHYA = {"unet": "lora_unet_", "text_encoder": "lora_te1_text_model_", "text_encoder_2": "lora_te2_"}
MAX_DIFFERENCE = 2


@pytest.fixture(name="all_parts", scope="module")
def write_all_parts(family: Any) -> Pairs:
    """Of every layer of the tiny SDXL, as `all-parts.safetensors`."""
    pairs = draw_pairs(family, *COMPONENTS)
    write_peft(family.model.loras_dir / "all-parts.safetensors", pairs)
    return pairs


@pytest.fixture(name="unet_only", scope="module")
def write_unet_only(family: Any) -> Pairs:
    pairs = draw_pairs(family, "unet", seed=1)
    write_peft(family.model.loras_dir / "unet-only.safetensors", pairs)
    return pairs


def find_difference(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.abs(one.astype(int) - other.astype(int)).max())


def name(ref: str, scale: float = 1.0) -> dict[str, Any]:
    return {"loras": [{"ref": ref, "scale": scale}]}


def test_the_picture_is_that_of_merged_weights_in_diffusers(
    family: Any,
    borrow: Callable[[Any], Any],
    all_parts: Pairs,
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Callable[..., np.ndarray],
) -> None:
    plain = generate(borrow(family), draw_recipe()).pixels
    recipe = draw_recipe(**name("all-parts", 0.8))
    outcome = generate(family, recipe)
    assert outcome.compiles == 0
    assert find_difference(outcome.pixels, plain) > 10 * MAX_DIFFERENCE
    expected = ask_diffusers(family.model.path, recipe, pairs=all_parts, scale=0.8)
    assert find_difference(outcome.pixels, expected) <= MAX_DIFFERENCE


def test_layers_in_a_stack_have_their_own_updates(
    load_family: Callable[..., Any],
    borrow: Callable[[Any], Any],
    draw_recipe: Callable[..., Recipe],
    ask_diffusers: Callable[..., np.ndarray],
) -> None:
    family = borrow(load_family("middle"))
    pairs = draw_pairs(family, "unet", seed=2)
    write_peft(family.model.loras_dir / "middle.safetensors", pairs)
    recipe = draw_recipe(model="middle", **name("middle"))
    expected = ask_diffusers(family.model.path, recipe, pairs=pairs)
    assert find_difference(generate(family, recipe).pixels, expected) <= MAX_DIFFERENCE


@pytest.mark.usefixtures("all_parts", "unet_only")
def test_taking_a_lora_away_gives_back_the_very_bits(
    family: Any, borrow: Callable[[Any], Any], draw_recipe: Callable[..., Recipe]
) -> None:
    loras = [{"ref": "all-parts", "scale": 0.5}, {"ref": "unet-only", "scale": -0.5}]
    outcomes = [
        generate(borrow(family), draw_recipe(**fields)).pixels
        for fields in ({}, name("unet-only"), {"loras": loras}, {"loras": loras[::-1]}, name("unet-only"), {})
    ]
    first, with_unet, both, turned, again, last = outcomes
    assert (first == last).all()
    assert (with_unet == again).all()
    assert (both == turned).all()
    assert not (first == with_unet).all()
    assert not (with_unet == both).all()


@pytest.mark.usefixtures("all_parts", "unet_only")
def test_only_weights_that_change_are_read_again(family: Any, borrow: Callable[[Any], Any]) -> None:
    weights = borrow(family).parts.weights
    seen: list[Progress] = []

    def change(*loras: Lora) -> set[str]:
        seen.clear()
        before = {component: dict(arrays) for component, arrays in weights.items()}
        family.apply_loras(loras, on_progress=seen.append)
        assert {one.phase for one in seen} <= {"loading"}
        return {
            component
            for component, arrays in weights.items()
            if any(array is not before[component][name] for name, array in arrays.items())
        }

    assert change(Lora(ref="unet-only")) == {"unet"}
    assert {one.detail for one in seen} == {"LoRA unet-only"}
    assert change(Lora(ref="unet-only")) == set()
    assert not seen
    assert change(Lora(ref="unet-only"), Lora(ref="all-parts", scale=0.1)) == {*COMPONENTS}
    assert change(Lora(ref="unet-only")) == {*COMPONENTS}


@pytest.mark.usefixtures("all_parts", "unet_only")
def test_embeddings_of_another_text_encoder_are_not_used_again(
    family: Any, borrow: Callable[[Any], Any], draw_recipe: Callable[..., Recipe]
) -> None:
    generate(borrow(family), draw_recipe())
    found = []
    for loras in ((), (Lora(ref="all-parts"),), (Lora(ref="unet-only"),)):
        family.apply_loras(loras, on_progress=ignore_progress)
        found.append(family.encode(draw_recipe())["prompt_embeds"])
    plain, changed, unet_only = found
    assert unet_only is plain
    assert np.abs(changed - plain).max() > 1e-3


@pytest.mark.usefixtures("all_parts")
def test_work_that_ends_in_the_middle_is_made_good_by_the_next_job(
    family: Any, borrow: Callable[[Any], Any], draw_recipe: Callable[..., Recipe]
) -> None:
    plain = generate(borrow(family), draw_recipe()).pixels
    expected = generate(family, draw_recipe(**name("all-parts"))).pixels
    for wished, pixels in (({}, plain), (name("all-parts"), expected)):

        def cancel(progress: Progress) -> None:
            if progress.done > 3:
                raise Cancelled

        other = (Lora(ref="all-parts", scale=0.3),)
        with pytest.raises(Cancelled):
            family.apply_loras(other, on_progress=cancel)
        outcome = generate(family, draw_recipe(**wished))
        assert (outcome.pixels == pixels).all()
        assert outcome.compiles == 0


@pytest.mark.usefixtures("all_parts")
def test_slices_of_weights_get_slices_of_updates(
    load_family: Callable[..., Any],
    borrow: Callable[[Any], Any],
    draw_recipe: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
) -> None:
    split, whole = borrow(load_family(mesh="dp=2,tp=4", stages=TO_LATENTS)), borrow(load_family())
    assert_same_output(split, whole, draw_recipe(**name("all-parts")))


def read(family: Any, ref: str) -> dict[str, dict[str, np.ndarray]]:
    """Component -> weight -> what the LoRA adds to it."""
    return read_deltas(family, ref, spell, *COMPONENTS)


def test_kohyas_names_and_alphas_mean_the_same_updates(family: Any, all_parts: Pairs) -> None:
    pairs = {name: pair for name, pair in all_parts.items() if "block" in name or "encoder" in name}
    doubled = {name: (2 * up, down) for name, (up, down) in pairs.items()}
    write_peft(family.model.loras_dir / "peft.safetensors", pairs)
    write_kohya(family.model.loras_dir / "kohya.safetensors", doubled, prefixes=KOHYA, alpha=RANK / 2)
    expected, found = read(family, "peft"), read(family, "kohya")
    assert {part: set(own) for part, own in found.items()} == {part: set(own) for part, own in expected.items()}
    assert set(found) == {*COMPONENTS}
    for component, own in expected.items():
        for weight, update in own.items():
            np.testing.assert_allclose(found[component][weight], update, atol=1e-6, err_msg=f"{component}.{weight}")


def test_the_originals_block_names_are_known(family: Any) -> None:
    pairs = {
        "lora_unet_middle_block_1_transformer_blocks_0_attn1_to_q": (32, 32),
        "lora_unet_input_blocks_3_1_proj_in": (32, 32),
    }
    tensors: dict[str, np.ndarray] = {}
    for stem, (rows, columns) in pairs.items():
        tensors |= {f"{stem}.lora_up.weight": np.ones((rows, 2)), f"{stem}.lora_down.weight": np.ones((2, columns))}
    save_tensors(family.model.loras_dir / "original.safetensors", tensors)
    assert set(read(family, "original")["unet"]) == {
        "mid_block.attentions.0.transformer_blocks.0.attn1.to_q.weight",
        "down_blocks.1.attentions.0.proj_in.weight",
    }


def test_a_lora_of_another_size_is_refused_before_any_weight_changes(
    load_family: Callable[..., Any], borrow: Callable[[Any], Any], draw_recipe: Callable[..., Recipe]
) -> None:
    family, larger = borrow(load_family()), load_family("middle")
    plain = generate(family, draw_recipe()).pixels
    write_peft(family.model.loras_dir / "larger.safetensors", draw_pairs(larger, "text_encoder", "unet"))
    with pytest.raises(
        ModelError, match=r"The LoRA larger (is for a model of another size: |changes )unet\."
    ) as refusal:
        generate(family, draw_recipe(**name("larger")))
    assert refusal.value.title == "This LoRA cannot be used"
    assert (generate(family, draw_recipe()).pixels == plain).all()


def test_stages_that_are_not_loaded_are_left_out(
    family: Any, all_parts: Pairs, draw_recipe: Callable[..., Recipe], cache_dir: Path
) -> None:
    from pipelines.registry import load

    assert all_parts
    recipe = draw_recipe(**name("all-parts"))
    encoder = load(family.model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress, stages=("encode",))
    encoder.apply_loras(recipe.loras, on_progress=ignore_progress)
    assert set(encoder.parts.weights) == {"text_encoder", "text_encoder_2"}
    encoder.unload()


def test_a_lora_on_a_text_encoder_elsewhere_is_refused(
    family: Any, all_parts: Pairs, unet_only: Pairs, draw_recipe: Callable[..., Recipe], cache_dir: Path
) -> None:
    """Before anybody is asked; one that leaves the encoder alone gets as far as asking."""
    from pipelines.registry import load

    assert all_parts
    assert unet_only
    nowhere = RemoteEncoder("http://127.0.0.1:9", token=None)
    denoiser = load(family.model, mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress, remote_encoder=nowhere)
    with pytest.raises(ModelError, match="changes the text encoder, which is on another machine"):
        generate(denoiser, draw_recipe(**name("all-parts")))
    with pytest.raises(RemoteEncoderError):
        generate(denoiser, draw_recipe(**name("unet-only")))
    denoiser.unload()
