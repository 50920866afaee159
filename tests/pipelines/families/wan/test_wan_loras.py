"""LoRAs of Wan: diffusers' video of the same weights, one expert or both, every trainer's names, fp32 where it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.families.wan.architecture import ARCHITECTURE
from pipelines.families.wan.loras import spell
from pipelines.generate import generate
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.stages import ignore_progress
from tests.pipelines.made_loras import RANK, Pairs, draw_pairs, read_deltas, save_tensors, write_kohya, write_peft

MAX_DIFFERENCE = 2
ORIGINAL = {"attn1.to_q": "self_attn.q", "attn1.to_out.0": "self_attn.o", "ffn.net.0.proj": "ffn.0"}


@pytest.fixture(name="pairs_of", scope="module")
def write_loras(load_wan: Callable[..., Any]) -> Callable[..., Pairs]:
    """A LoRA over all layers of a model's first transformer, which lies in the loras folder under the given name."""

    def pairs_of(model: str, ref: str) -> Pairs:
        family = load_wan(model)
        pairs = draw_pairs(family, "transformer", size=0.2)
        write_peft(family.model.loras_dir / f"{ref}.safetensors", pairs)
        return pairs

    return pairs_of


def of_expert(pairs: Pairs, expert: str) -> Pairs:
    return {name.replace("transformer.", f"{expert}.", 1): pair for name, pair in pairs.items()}


@pytest.fixture(name="load")
def load_and_clean(load_wan: Callable[..., Any], borrow: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *place: borrow(load_wan(*place))


@pytest.mark.parametrize(
    "case",
    [
        ("t2v", "t2v", ("transformer",)),
        ("experts", "both", ("transformer", "transformer_2")),
        ("experts", "x_high_noise", ("transformer",)),
        ("experts", "x-LowNoise", ("transformer_2",)),
    ],
)
def test_the_video_is_that_of_merged_weights_in_diffusers(
    load: Callable[..., Any],
    pairs_of: Callable[..., Pairs],
    draw_wan: Callable[..., Recipe],
    ask_wan: Callable[..., np.ndarray],
    case: tuple[str, str, tuple[str, ...]],
) -> None:
    model, ref, experts = case
    family = load(model)
    pairs = pairs_of(model, ref)
    merged = {name: pair for expert in experts for name, pair in of_expert(pairs, expert).items()}
    plain = generate(family, draw_wan(model)).pixels
    recipe = draw_wan(model, loras=[{"ref": ref, "scale": 0.9}])
    outcome = generate(family, recipe)
    assert outcome.compiles == 0
    assert find_difference(outcome.pixels, ask_wan(recipe, pairs=merged, scale=0.9)) <= MAX_DIFFERENCE
    assert find_difference(outcome.pixels, plain) > 5 * MAX_DIFFERENCE
    assert (generate(family, draw_wan(model)).pixels == plain).all()


def test_parts_of_layers_in_a_stack_get_their_updates(
    load: Callable[..., Any],
    pairs_of: Callable[..., Pairs],
    draw_wan: Callable[..., Recipe],
    assert_same_output: Callable[[Any, Any, Recipe], None],
) -> None:
    assert pairs_of("t2v", "split")
    recipe = draw_wan(loras=[{"ref": "split"}])
    assert_same_output(load("t2v", "dp=2,tp=4"), load("t2v"), recipe)


def test_each_weight_keeps_its_precision_and_its_place(
    load_wan: Callable[..., Any], pairs_of: Callable[..., Pairs], cache_dir: Path
) -> None:
    from pipelines.runtime.devices.mesh import build_mesh

    model = load_wan("t2v").model
    mesh = build_mesh("dp=2,tp=2", choose=lambda _count: {})
    options = {"mesh": mesh, "cache_dir": cache_dir, "on_progress": ignore_progress, "stages": ("denoise",)}
    family = ARCHITECTURE.load(model, **options, dtype=jnp.bfloat16)

    def describe() -> dict[str, Any]:
        return {name: (one.dtype, one.shape, one.sharding) for name, one in family.parts.weights["transformer"].items()}

    before = describe()
    assert {dtype.name for dtype, _, _ in before.values()} == {"float32", "bfloat16"}
    assert pairs_of("t2v", "half")
    family.apply_loras([Lora(ref="half")], on_progress=ignore_progress)
    assert describe() == before
    family.unload()


def read(family: Any, ref: str) -> dict[str, np.ndarray]:
    """Weight of the first transformer -> what the LoRA adds to it."""
    return read_deltas(family, ref, spell, "transformer")["transformer"]


@pytest.mark.parametrize("prefix", ["diffusion_model.", "", "base_model.model."])
def test_the_originals_names_mean_the_same_updates(
    load_wan: Callable[..., Any], pairs_of: Callable[..., Pairs], prefix: str
) -> None:
    family = load_wan("t2v")
    pairs = pairs_of("t2v", "t2v")
    tensors: dict[str, np.ndarray] = {}
    for ours, theirs in ORIGINAL.items():
        up, down = pairs[f"transformer.blocks.2.{ours}"]
        stem = f"{prefix}blocks.2.{theirs}"
        tensors |= {f"{stem}.lora_up.weight": 3 * up, f"{stem}.lora_down.weight": down}
        tensors[f"{stem}.alpha"] = np.asarray(RANK / 3)
    save_tensors(family.model.loras_dir / "original.safetensors", tensors)
    found = read(family, "original")
    assert found.keys() == {f"blocks.2.{ours}.weight" for ours in ORIGINAL}
    for ours in ORIGINAL:
        expected = np.matmul(*pairs[f"transformer.blocks.2.{ours}"])
        np.testing.assert_allclose(found[f"blocks.2.{ours}.weight"], expected, atol=1e-6)


def test_musubis_names_mean_the_same_updates(load_wan: Callable[..., Any], pairs_of: Callable[..., Pairs]) -> None:
    family = load_wan("t2v")
    ours = ("attn1", "attn2", "ffn.net.0.proj", "ffn.net.2")
    theirs = {"attn1.to_": "self_attn.", "attn2.to_": "cross_attn.", "out.0": "o", "net.0.proj": "0", "net.2": "2"}
    pairs = {
        name: pair
        for name, pair in pairs_of("t2v", "t2v").items()
        if name.startswith("transformer.blocks.") and any(part in name for part in ours)
    }
    renamed: Pairs = {}
    for name, (up, down) in pairs.items():
        for one, other in theirs.items():
            name = name.replace(one, other)
        renamed[name] = (2 * up, down)
    file = family.model.loras_dir / "musubi.safetensors"
    write_kohya(file, renamed, prefixes={"transformer": "lora_unet_"}, alpha=RANK / 2)
    found = read(family, "musubi")
    assert found.keys() == {f"{name.removeprefix('transformer.')}.weight" for name in pairs}
    for name, pair in pairs.items():
        np.testing.assert_allclose(found[f"{name.removeprefix('transformer.')}.weight"], np.matmul(*pair), atol=1e-6)


def find_difference(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.abs(one.astype(int) - other.astype(int)).max())
