"""Components take turns on the devices when not all have room, and what they make stays the same to the bit."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.generate import generate
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.registry import choose_sizes_for, find_architecture
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.offload import Offloader, Parked, measure
from pipelines.stages import ignore_progress
from tests.pipelines.made_loras import draw_pairs, write_peft

MESH = "dp=2,tp=4"


def put(value: float, *, split: bool = False) -> jax.Array:
    place = NamedSharding(build_mesh(MESH), PartitionSpec("tp" if split else None))
    return jax.device_put(np.full(8, value, np.float32), place)


def fill(size: int) -> jax.Array:
    """So many values of four bytes, whole on every device."""
    return jax.device_put(np.ones(size, np.float32), NamedSharding(build_mesh(MESH), PartitionSpec()))


@dataclass(frozen=True, kw_only=True)
class Working:
    """A program by its memory alone."""

    temp_size_in_bytes: int
    output_size_in_bytes: int = 0
    alias_size_in_bytes: int = 0
    generated_code_size_in_bytes: int = 0

    def memory_analysis(self) -> "Working":
        return self


def make_room(limit_bytes: int | None, *, host_bytes: float = math.inf, **components: dict[str, Any]) -> Offloader:
    room = Offloader(limit_bytes=limit_bytes, host_bytes=host_bytes)
    for name, weights in components.items():
        room.prepare(name, weights)
        room.add(name, weights)
    return room


def find_parked(components: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, own in components.items() if any(isinstance(one, Parked) for one in own.values())}


def test_bytes_are_those_of_one_device() -> None:
    assert measure({"whole": put(1), "split": put(1, split=True)}) == 32 + 8


def test_whatever_was_used_longest_ago_leaves_and_comes_back_as_it_was() -> None:
    components = {name: {"w": put(value, split=True)} for value, name in enumerate(("text", "unet", "vae"))}
    placed = components["text"]["w"].sharding
    room = make_room(2 * 8, **components)
    assert find_parked(components) == {"text"}
    assert (components["text"]["w"].shape, components["text"]["w"].sharding) == ((8,), placed)
    room.use("text")
    assert find_parked(components) == {"unet"}
    assert components["text"]["w"].sharding == placed
    np.testing.assert_array_equal(components["text"]["w"], np.zeros(8))
    room.use("text", "vae")
    assert find_parked(components) == {"unet"}
    room.use("unet")
    assert find_parked(components) == {"text"}


def test_the_fewest_bytes_leave_that_make_room() -> None:
    """A text encoder, a transformer and an autoencoder, any two of which have room unless the large ones meet."""
    components = {name: {"w": fill(size)} for name, size in (("text", 12), ("transformer", 18), ("vae", 1))}
    room = make_room(4 * 20, **components)
    away = []
    for _ in range(2):
        for name in components:
            room.use(name)
            away.append(find_parked(components))
    assert away == [{"transformer"}, {"text"}, {"text"}] * 2, "the autoencoder stays"


def test_a_small_component_leaves_where_it_alone_is_enough() -> None:
    components = {name: {"w": fill(size)} for name, size in (("text", 12), ("transformer", 18), ("vae", 1))}
    room = make_room(4 * 31, **components)
    room.use("transformer", program=Working(temp_size_in_bytes=4))
    assert find_parked(components) == {"vae"}


def test_leaving_again_moves_nothing() -> None:
    components = {name: {"w": put(value)} for value, name in enumerate(("text", "unet"))}
    room = make_room(32, **components)
    parked = components["text"]["w"]
    room.use("text")
    room.use("unet")
    assert components["text"]["w"] is parked
    room.use("text")
    np.testing.assert_array_equal(components["text"]["w"], np.zeros(8))


def test_a_host_without_memory_to_spare_keeps_only_what_is_away() -> None:
    components = {name: {"w": put(value)} for value, name in enumerate(("text", "unet"))}
    room = make_room(32, host_bytes=8 * 32, **components)
    parked = components["text"]["w"]
    room.use("text")
    assert parked.host.is_deleted(), "eight devices have one copy each, and the other component's are as large"
    room.use("unet")
    assert components["text"]["w"] is not parked
    np.testing.assert_array_equal(jax.device_get(components["text"]["w"].host), np.zeros(8))


def test_weights_that_were_written_are_not_mixed_up_with_their_copies() -> None:
    components = {name: {"w": put(value), "bias": put(value)} for value, name in enumerate(("text", "unet"))}
    room = make_room(64, **components)
    room.use("text")
    room.forget_copies("text", ["w"])
    components["text"]["w"].delete()
    components["text"]["w"] = put(7)
    room.use("unet")
    room.use("text")
    np.testing.assert_array_equal(components["text"]["w"], np.full(8, 7))
    np.testing.assert_array_equal(components["text"]["bias"], np.zeros(8))


def test_weights_that_a_failed_merging_lost_do_not_hold_up_the_others() -> None:
    components = {name: {"w": put(value)} for value, name in enumerate(("text", "unet"))}
    room = make_room(32, **components)
    components["unet"]["w"].delete()
    room.use("text")
    np.testing.assert_array_equal(components["text"]["w"], np.zeros(8))


def test_nothing_stays_in_the_hosts_memory() -> None:
    components = {name: {"w": put(value)} for value, name in enumerate(("text", "unet"))}
    room = make_room(32, **components)
    parked = components["text"]["w"]
    room.clear()
    assert parked.host.is_deleted()


def test_working_memory_and_code_count_too() -> None:
    components = {name: {"w": put(1)} for name in ("text", "unet")}
    room = make_room(100, **components)
    program = jax.jit(lambda x: (x[:, None] * x[None]).reshape(-1)).lower(put(1)).compile()
    room.use("unet", program=program)
    assert find_parked(components) == {"text"}


def test_without_a_limit_nothing_ever_leaves() -> None:
    components = {name: {"w": put(1)} for name in ("text", "unet")}
    make_room(None, **components).use("unet")
    assert not find_parked(components)
    assert Offloader.of_mesh(build_mesh(MESH)).limit_bytes is None  # a CPU does not say what it has


def test_weights_that_are_away_say_what_they_are_to_the_compiler() -> None:
    weights = {"w": put(1, split=True)}
    make_room(0, text=weights, unet={"w": put(1)})
    parked = weights["w"]
    assert isinstance(parked, Parked)
    assert (parked.shape, parked.dtype, parked.sharding.spec) == ((8,), np.float32, PartitionSpec("tp"))


@pytest.fixture
def load_tight(local_catalog: Catalog, cache_dir: Any) -> Callable[..., Any]:
    """A model on devices that have room for one component at a time."""

    def load_with(model_id: str) -> Any:
        model = local_catalog.get(model_id)
        mesh = build_mesh("dp=1", choose=choose_sizes_for(model))
        architecture: Any = find_architecture(model)
        return architecture.load(
            model, mesh=mesh, cache_dir=cache_dir, on_progress=ignore_progress, offloader=Offloader(limit_bytes=1)
        )

    return load_with


def test_a_picture_is_the_same_and_the_next_one_too(
    load_tight: Callable[..., Any], family: Any, draw_recipe: Callable[..., Recipe]
) -> None:
    tight = load_tight("tiny")
    for prompt in ("a red boat", "a blue boat"):
        recipe = draw_recipe(prompt=prompt)
        np.testing.assert_array_equal(generate(tight, recipe).pixels, generate(family, recipe).pixels)
        assert find_parked(tight.parts.weights) == {"text_encoder", "text_encoder_2", "unet"}
    tight.unload()


def test_loras_are_merged_into_components_that_are_away(
    load_tight: Callable[..., Any],
    family: Any,
    borrow: Callable[[Any], Any],
    draw_recipe: Callable[..., Recipe],
) -> None:
    pairs = draw_pairs(family, "unet", "text_encoder", "text_encoder_2", seed=4)
    write_peft(family.model.loras_dir / "away.safetensors", pairs)
    tight = load_tight("tiny")
    for recipe in (draw_recipe(), draw_recipe(loras=[{"ref": "away", "scale": 0.7}]), draw_recipe()):
        np.testing.assert_array_equal(generate(tight, recipe).pixels, generate(borrow(family), recipe).pixels)
    tight.unload()


def test_a_video_is_the_same(load_tight: Callable[..., Any], load_family: Callable[..., Any]) -> None:
    tight = load_tight("demo-wan")
    wish = Recipe(model="demo-wan", prompt="A red balloon rises", shape="128x128x17", steps=2, seed=3)
    recipe = resolve(wish, Catalog((tight.model,)))
    expected = generate(load_family("demo-wan"), recipe).pixels
    np.testing.assert_array_equal(generate(tight, recipe).pixels, expected)
    assert find_parked(tight.parts.weights) == {"text_encoder", "transformer"}
