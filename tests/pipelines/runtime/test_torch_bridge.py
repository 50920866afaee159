"""Torch modules run as JAX functions with torch's own results; weights stay arguments, buffers stay values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec
from torch.nn import functional

from pipelines.runtime.mesh import build_mesh
from pipelines.runtime.torch_bridge import TracedModule, parameters_on_meta, to_jax_dtype


class Calls(torch.nn.Module):
    """A module that is one function of its inputs."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def to_jax(tensor: torch.Tensor) -> jax.Array:
    if tensor.dtype == torch.bfloat16:
        return jnp.asarray(tensor.float().numpy(), jnp.bfloat16)
    return jnp.asarray(tensor.numpy())


def run_both(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What torch gives, and what the same function gives through jit; both fp32."""
    module = TracedModule(Calls(function))
    traced = jax.jit(lambda *arrays: module.call({}, *arrays))(*map(to_jax, tensors))
    expected = function(*tensors)
    assert traced.dtype == to_jax_dtype(expected.dtype)
    return expected.float().numpy(), np.asarray(traced, np.float32)


@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 8, 5, 7), 4), ((1, 6, 9), 1), ((3, 12), 3)], ids=["picture", "sequence", "vector"]
)
@pytest.mark.parametrize("is_affine", [True, False])
def test_group_norm_is_torchs(shape: tuple[int, ...], groups: int, *, is_affine: bool) -> None:
    affine = (draw(shape[1], seed=1), draw(shape[1], seed=2)) if is_affine else ()
    expected, found = run_both(
        lambda x, *affine: functional.group_norm(x, groups, *affine, eps=1e-6), draw(*shape) * 3 + 5, *affine
    )
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_layer_norm_is_torchs(shape: tuple[int, ...]) -> None:
    weight, bias = draw(*shape, seed=1), draw(*shape, seed=2)
    expected, found = run_both(
        lambda x, weight, bias: functional.layer_norm(x, shape, weight, bias), draw(4, 5, 6) + 5, weight, bias
    )
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(
    "norm",
    [lambda x: functional.layer_norm(x, (x.shape[-1],)), lambda x: functional.group_norm(x, 1)],
    ids=["layer_norm", "group_norm"],
)
def test_statistics_stay_in_fp32_when_the_model_runs_in_bf16(norm: Callable[..., torch.Tensor]) -> None:
    """Values near 100 in bf16 are 0.5 apart; a mean taken in bf16 would be off by as much."""
    values = (draw(4, 2048) + 100).bfloat16()
    exact = norm(values.float()).numpy()
    _, found = run_both(norm, values)
    np.testing.assert_allclose(found, exact, atol=0.02)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same"},
        {"padding": (0, 2), "stride": (2, 1)},
        {"dilation": 2, "padding": 2},
        {"groups": 4, "padding": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_conv2d_is_torchs(options: dict[str, Any], *, has_bias: bool) -> None:
    weight = draw(12, 8 // options.get("groups", 1), 3, 3, seed=1)
    bias = draw(12, seed=2) if has_bias else torch.zeros(12)

    def convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, weight, bias if has_bias else None, **options)

    expected, found = run_both(convolve, draw(2, 8, 10, 9), weight, bias)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"stride": (2, 1, 1)}, {"padding": 1}, {"padding": (0, 1, 2), "groups": 2}], ids=str
)
def test_conv3d_is_torchs(options: dict[str, Any]) -> None:
    weight, bias = draw(6, 4 // options.get("groups", 1), 3, 3, 3, seed=1), draw(6, seed=2)
    expected, found = run_both(
        lambda x, weight, bias: functional.conv3d(x, weight, bias, **options), draw(2, 4, 5, 6, 7), weight, bias
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("options", [{"scale_factor": 2.0}, {"scale_factor": (3.0, 1.0)}, {"size": (9, 5)}], ids=str)
def test_nearest_pixels_are_torchs(mode: str, options: dict[str, Any]) -> None:
    expected, found = run_both(lambda x: functional.interpolate(x, mode=mode, **options), draw(2, 3, 4, 5))
    np.testing.assert_array_equal(found, expected)


def test_the_inputs_of_named_submodules_lie_on_the_mesh_as_told() -> None:
    module = TracedModule(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)))
    weights = {name: jnp.zeros(shape) for name, shape in module.parameter_shapes().items()}
    halves = NamedSharding(build_mesh("sp=2"), PartitionSpec(None, "sp"))

    def count_constraints(shardings: dict[str, NamedSharding]) -> int:
        traced = jax.make_jaxpr(lambda x: module.call(weights, x, input_shardings=shardings))(jnp.zeros((2, 4)))
        return str(traced).count("sharding_constraint[")

    assert [count_constraints(names) for names in ({"1": halves}, {"0": halves, "1": halves}, {})] == [1, 2, 0]


@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "added"])
def test_attention_is_torchs(mask: str) -> None:
    query, key, value = draw(2, 4, 6, 8, seed=1), draw(2, 4, 9, 8, seed=2), draw(2, 4, 9, 8, seed=3)
    if mask == "causal":
        key, value = key[:, :, :6], value[:, :, :6]
    masks = {"boolean": draw(1, 1, 6, 9, seed=4) > -1, "added": draw(2, 4, 6, 9, seed=4)}

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *mask_given: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask_given[0] if mask_given else None, is_causal=mask == "causal"
        )

    given = (masks[mask],) if mask in masks else ()
    expected, found = run_both(attend, query, key, value, *given)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("options", [{"scale": 0.3}, {"enable_gqa": True}], ids=str)
def test_attention_takes_a_scale_and_shared_heads(options: dict[str, Any]) -> None:
    heads = 2 if "enable_gqa" in options else 4
    tensors = draw(1, 4, 5, 8, seed=1), draw(1, heads, 7, 8, seed=2), draw(1, heads, 7, 8, seed=3)
    expected, found = run_both(lambda *qkv: functional.scaled_dot_product_attention(*qkv, **options), *tensors)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_attention_keeps_its_softmax_in_fp32_under_bf16() -> None:
    query, key, value = (draw(1, 2, 32, 16, seed=seed).bfloat16() * 2 for seed in (1, 2, 3))
    exact = functional.scaled_dot_product_attention(query.float(), key.float(), value.float()).numpy()
    _, found = run_both(functional.scaled_dot_product_attention, query, key, value)
    np.testing.assert_allclose(found, exact, atol=0.05)


class Table(torch.nn.Module):
    """A linear layer, a buffer a checkpoint holds, and one it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3, bias=False)
        self.register_buffer("saved", torch.ones(3))
        self.register_buffer("positions", torch.arange(3.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.saved + self.positions

    def double(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.forward(x)


@pytest.fixture
def table() -> TracedModule:
    with parameters_on_meta():
        return TracedModule(Table())


def test_modules_are_built_without_memory_for_weights_but_with_their_buffers(table: TracedModule) -> None:
    assert table.module.linear.weight.is_meta
    assert table.module.positions.tolist() == [0, 1, 2]


def test_building_on_meta_ends_with_the_block(table: TracedModule) -> None:
    assert not torch.nn.Linear(2, 2).weight.is_meta


def test_a_checkpoint_must_hold_parameters_and_saved_buffers(table: TracedModule) -> None:
    assert table.parameter_shapes() == {"linear.weight": (3, 3), "saved": (3,)}
    assert list(table.constant_buffers()) == ["positions"]


def test_weights_are_arguments_of_the_program_and_not_part_of_it(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    program = jax.jit(table.call).lower(weights, jnp.ones(3)).compile()
    np.testing.assert_array_equal(program(weights, jnp.ones(3)), [1, 2, 3])
    other = weights | {"linear.weight": 5 * jnp.eye(3), "saved": jnp.full(3, 10.0)}
    np.testing.assert_array_equal(program(other, jnp.ones(3)), [15, 16, 17])
    assert jax.make_jaxpr(table.call)(weights, jnp.ones(3)).consts == []


def test_another_method_than_forward_may_be_called(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    np.testing.assert_array_equal(table.call(weights, jnp.ones(3), method=Table.double), [2, 4, 6])


def test_the_module_is_left_as_it_was(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    table.call(weights, jnp.ones(3))
    assert table.module.linear.weight.is_meta
    assert torch.ones(1).add(1).item() == 2  # torch itself is not redirected


def test_gradients_flow_through_a_module(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    found = jax.grad(lambda weights: table.call(weights, jnp.array([1.0, 2.0, 3.0])).sum())(weights)
    np.testing.assert_array_equal(found["linear.weight"], np.tile([1.0, 2.0, 3.0], (3, 1)))
