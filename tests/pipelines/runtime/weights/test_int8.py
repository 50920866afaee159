"""Weights in int8 are near those of the checkpoint, the same on every mesh, and half as large on the devices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.torch import save_file

from pipelines.runtime.bridge.modules import LayerPlacement, ScannedLayers, TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.sharding import SCALE
from pipelines.runtime.weights import int8
from pipelines.runtime.weights.components import describe_component, load_component
from pipelines.runtime.weights.lora_update import LowRank
from pipelines.runtime.weights.permuted import PermutedTensor
from pipelines.stages import ignore_progress

RULES = ((r"wide\.weight", P("tp", None)), (r"narrow\.weight", P(None, "tp")), ("", P()))
WIDE, NARROW = "blocks.every_layer.wide.weight", "blocks.every_layer.narrow.weight"

Load = Callable[..., dict[str, jax.Array]]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(16, 32)
        self.narrow = torch.nn.Linear(32, 16)
        self.modulation = torch.nn.Linear(16, 16)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.modulation(hidden_states) + self.narrow(torch.tanh(self.wide(hidden_states)))


class Network(torch.nn.Module):
    def __init__(self, *, is_stacked: bool = True) -> None:
        super().__init__()
        blocks = torch.nn.ModuleList([Block(), Block(), Block()])
        self.first = torch.nn.Linear(16, 16)
        self.blocks = ScannedLayers(blocks, carried=("hidden_states",)) if is_stacked else blocks

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        hidden_states = self.first(hidden_states)
        for block in self.blocks:
            hidden_states = block(hidden_states)
        return hidden_states


def deal_out(stored: Any) -> Any:
    """The wide layers' outputs as two blocks for each of four devices; the narrow ones' inputs likewise."""
    return {
        name: PermutedTensor(stored=one, axis=0 if "wide" in name else 1, blocks=(16, 16), parts=4)
        if name.endswith(("wide.weight", "narrow.weight"))
        else one
        for name, one in stored.items()
    }


@pytest.fixture
def stored() -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    state = Network(is_stacked=False).state_dict()
    state["blocks.1.wide.weight"][3] = 0  # a row without a largest number
    state["blocks.2.wide.weight"][5] *= 1000
    return {name: value.numpy() for name, value in state.items()}


@pytest.fixture
def load(stored: dict[str, np.ndarray], tmp_path: Path) -> Load:
    folder = tmp_path / "transformer"
    folder.mkdir()
    save_file({name: torch.from_numpy(value) for name, value in stored.items()}, folder / "model.safetensors")

    def load(*, mesh: str = "dp=2,tp=4", dtype: Any = jnp.float32, **how: Any) -> dict[str, jax.Array]:
        module = TracedModule(Network())
        usual: dict[str, Any] = {"rounded": int8.list_rounded(module), "on_progress": ignore_progress, "variant": ""}
        return load_component(folder, module, mesh=build_mesh(mesh), rules=RULES, dtype=dtype, **(usual | how))

    return load


def restore(weights: dict[str, jax.Array], name: str) -> np.ndarray:
    return np.asarray(weights[name], np.float32) * np.asarray(weights[name + SCALE], np.float32)


def test_linear_layers_of_blocks_are_rounded_but_not_what_modulates_or_comes_before() -> None:
    assert int8.list_rounded(TracedModule(Network())) == {WIDE, NARROW}
    unstacked = int8.list_rounded(TracedModule(Network(is_stacked=False)), besides=r"\.narrow\.")
    assert unstacked == {f"blocks.{number}.wide.weight" for number in range(3)}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_no_number_is_off_by_more_than_half_a_step_of_its_row(
    load: Load, stored: dict[str, np.ndarray], dtype: Any
) -> None:
    weights = load(dtype=dtype)
    scales = np.asarray(weights[WIDE + SCALE], np.float32)
    for number in range(3):
        exact, rounded = stored[f"blocks.{number}.wide.weight"], np.asarray(weights[WIDE][number], np.float32)
        largest = np.abs(exact).max(1, keepdims=True)
        step = (largest / 127).astype(ml_dtypes.bfloat16 if dtype == jnp.bfloat16 else np.float32).astype(np.float32)
        np.testing.assert_array_equal(scales[number], np.where(step == 0, 1, step))
        # A scale that bf16 rounded down, by 1/256 at most, cannot reach the largest number.
        off = np.abs(rounded * scales[number] - exact)
        assert (off <= np.maximum(step / 2, largest / 256) * (1 + 1e-6)).all()
        assert np.abs(rounded).max() == 127


def test_weights_and_scales_are_the_same_on_every_mesh(load: Load) -> None:
    single = load(mesh="dp=1")
    for mesh in ("tp=8", "dp=2,tp=4"):
        for name, array in load(mesh=mesh).items():
            np.testing.assert_array_equal(np.asarray(array), np.asarray(single[name]))


def test_scales_are_dealt_out_as_their_rows_are(load: Load) -> None:
    plain, dealt = load(), load(arrange=deal_out)
    order = np.concatenate([np.r_[4 * part : 4 * part + 4, 16 + 4 * part : 20 + 4 * part] for part in range(4)])
    np.testing.assert_array_equal(restore(dealt, WIDE), restore(plain, WIDE)[:, order])
    np.testing.assert_array_equal(restore(dealt, NARROW), restore(plain, NARROW)[:, :, order])


def test_devices_hold_int8_and_a_plan_knows_it(load: Load, tmp_path: Path) -> None:
    weights, module, mesh = load(), TracedModule(Network()), build_mesh("dp=2,tp=4")
    assert {name for name, one in weights.items() if one.dtype == jnp.int8} == {WIDE, NARROW}
    assert {one.data.nbytes for one in weights[WIDE].addressable_shards} == {3 * 32 // 4 * 16}
    assert weights[WIDE + SCALE].sharding == NamedSharding(mesh, P(None, "tp", None))
    assert weights[NARROW + SCALE].sharding.is_fully_replicated
    described = describe_component(
        tmp_path, module, mesh=mesh, rules=RULES, dtype=jnp.float32, rounded=int8.list_rounded(module)
    )
    assert [*described] == [*weights]
    for name, one in described.items():
        assert (one.shape, one.dtype, one.sharding) == (
            weights[name].shape,
            weights[name].dtype,
            weights[name].sharding,
        )


def test_a_lora_is_added_before_anything_is_rounded_and_leaves_no_trace(
    load: Load, stored: dict[str, np.ndarray]
) -> None:
    generator = np.random.default_rng(0)
    up, down = generator.normal(size=(32, 4)).astype(np.float32), generator.normal(size=(4, 16)).astype(np.float32)
    updates = {"blocks.0.wide.weight": [LowRank(up=up, down=down, scale=0.5)]}
    merged = stored["blocks.0.wide.weight"] + 0.5 * up @ down
    changed = load(names=[WIDE], updates=updates)
    step = np.abs(merged).max(1, keepdims=True) / 127
    assert (np.abs(restore(changed, WIDE)[0] - merged) <= step / 2 * (1 + 1e-5)).all()
    before, after = load(), load(names=[WIDE], updates={})
    for name in (WIDE, WIDE + SCALE):
        np.testing.assert_array_equal(np.asarray(before[name]), np.asarray(after[name]))


def test_a_kept_copy_holds_int8_and_gives_the_same(load: Load, tmp_path: Path) -> None:
    first = load(layouts=tmp_path / "layouts", dtype=jnp.bfloat16)
    (kept,) = (tmp_path / "layouts").glob("*")
    assert kept.stat().st_size < sum(one.nbytes for one in first.values()) + 10_000
    again = load(layouts=tmp_path / "layouts", dtype=jnp.bfloat16)
    for name, array in first.items():
        assert array.dtype == again[name].dtype
        np.testing.assert_array_equal(np.asarray(array), np.asarray(again[name]))


@pytest.mark.parametrize("is_stacked", [True, False])
def test_a_module_computes_with_the_product_of_weights_and_scales(load: Load, *, is_stacked: bool) -> None:
    weights, mesh = load(), build_mesh("dp=2,tp=4")
    full = {
        name: jnp.asarray(restore(weights, name)) if name + SCALE in weights else one
        for name, one in weights.items()
        if not name.endswith(SCALE)
    }
    if not is_stacked:
        weights, full = (_unstack(one) for one in (weights, full))
    module = TracedModule(Network(is_stacked=is_stacked))
    x = jnp.linspace(-1, 1, 64, dtype=jnp.float32).reshape(1, 4, 16)
    placement = LayerPlacement(mesh=mesh, rules=[("", P())])
    run = jax.jit(lambda weights: module.call(weights, x, running_layer=placement))
    np.testing.assert_allclose(run(weights), run(full), rtol=2e-5, atol=2e-5)


def test_what_is_gathered_for_a_layer_is_the_int8(load: Load) -> None:
    module, mesh = TracedModule(Network()), build_mesh("dp=2,tp=4")
    placement = LayerPlacement(mesh=mesh, rules=[("", P())])
    x = jnp.ones((1, 4, 16), jnp.float32)
    program = jax.jit(lambda weights: module.call(weights, x, running_layer=placement)).lower(load()).compile()
    gathers = [line for line in (program.as_text() or "").splitlines() if " all-gather(" in line]
    assert any("s8[" in line.split(" all-gather(")[0] for line in gathers)
    assert not any("f32[32,16]" in line or "f32[16,32]" in line for line in gathers)


def _unstack(weights: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {
        name.replace("every_layer", str(number)) if "every_layer" in name else name: one[number]
        if "every_layer" in name
        else one
        for name, one in weights.items()
        for number in range(3)
    }
