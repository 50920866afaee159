"""Layers whose weights are int8: their outputs, and those of tokens that are rounded, too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.sharding import SCALE

INPUTS, OUTPUTS = 64, 24


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(INPUTS, OUTPUTS)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.linear(states)


@pytest.fixture
def weights() -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)
    return {
        "linear.weight": jnp.asarray(rng.integers(-127, 128, (OUTPUTS, INPUTS)), jnp.int8),
        "linear.weight" + SCALE: jnp.asarray(rng.uniform(0.01, 0.02, (OUTPUTS, 1)), jnp.float32),
        "linear.bias": jnp.asarray(rng.normal(size=OUTPUTS), jnp.float32),
    }


@pytest.fixture
def states() -> np.ndarray:
    states = np.random.default_rng(1).normal(size=(2, 6, INPUTS)).astype(np.float32)
    states[0, 1] *= 1000  # tokens have scales of their own
    states[1, 2] = 0
    return states


def compute(weights: dict[str, jax.Array], states: np.ndarray) -> np.ndarray:
    matrix = np.asarray(weights["linear.weight"], np.float64) * np.asarray(weights["linear.weight" + SCALE], np.float64)
    return states.astype(np.float64) @ matrix.T + np.asarray(weights["linear.bias"], np.float64)


def test_outputs_are_those_of_the_scaled_weights(weights: dict[str, jax.Array], states: np.ndarray) -> None:
    out = jax.jit(TracedModule(Layer()).call)(weights, states)
    np.testing.assert_allclose(out, compute(weights, states), rtol=1e-4, atol=1e-3)


def test_tokens_are_rounded_each_by_its_largest_number(weights: dict[str, jax.Array], states: np.ndarray) -> None:
    module = TracedModule(Layer())
    module.rounds_inputs = True
    program = jax.jit(module.call)
    step = np.abs(states).max(-1, keepdims=True) / np.float32(127)
    step[step == 0] = 1
    rounded = np.rint(states / step)
    assert np.abs(rounded).max() == 127
    np.testing.assert_allclose(program(weights, states), compute(weights, rounded * step), rtol=1e-4, atol=1e-4)
    assert "tensor<2x6x24xi32>" in program.lower(weights, states).as_text(), "or products are not of int8"


@pytest.mark.parametrize("place", [("tp", None), (None, "tp")])
def test_devices_that_share_a_layer_find_the_same(
    weights: dict[str, jax.Array], states: np.ndarray, place: tuple[str | None, str | None]
) -> None:
    """Where inputs are split, the largest number of a token is that of all devices, and sums are exact."""
    module = TracedModule(Layer())
    module.rounds_inputs = True
    mesh = build_mesh("tp=4", devices=jax.devices()[:4])
    split = weights | {
        "linear.weight": jax.device_put(
            weights["linear.weight"], jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*place))
        )
    }
    np.testing.assert_allclose(
        jax.jit(module.call)(split, states), jax.jit(module.call)(weights, states), rtol=1e-6, atol=1e-6
    )
