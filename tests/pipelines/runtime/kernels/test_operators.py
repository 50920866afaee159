"""Norms, convolutions, resizing and attention give torch's own results through the bridge, gradients too."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional

from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.kernels import operators
from tests.pipelines.runtime.kernels.side_by_side import Calls, draw, run_both, to_jax


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


@pytest.mark.parametrize("is_affine", [True, False])
def test_rms_norm_is_torchs_and_rounds_once_under_bf16(*, is_affine: bool) -> None:
    norm = lambda x, *weight: functional.rms_norm(x, (48,), *weight, eps=1e-6)  # noqa: E731
    expected, found = run_both(norm, draw(4, 5, 48) * 3, *([draw(48, seed=1)] if is_affine else []))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    values = (draw(64, 48) * 3).bfloat16()
    exact = norm(values.float()).bfloat16().float().numpy()
    _, found = run_both(norm, values)
    assert (np.asarray(found, np.float32) == exact).mean() > 0.999


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


VOLUMES = pytest.mark.parametrize(
    "options",
    [{}, {"stride": (2, 1, 1)}, {"stride": 2}, {"padding": 1}, {"padding": (0, 1, 2), "groups": 2}, {"dilation": 2}],
    ids=str,
)


@VOLUMES
def test_conv3d_is_torchs(options: dict[str, Any]) -> None:
    weight, bias = draw(6, 4 // options.get("groups", 1), 3, 3, 3, seed=1), draw(6, seed=2)
    expected, found = run_both(
        lambda x, weight, bias: functional.conv3d(x, weight, bias, **options), draw(2, 4, 5, 6, 7), weight, bias
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


@VOLUMES
def test_gradients_of_conv3d_are_torchs(options: dict[str, Any]) -> None:
    x, weight = draw(2, 4, 5, 6, 7), draw(6, 4 // options.get("groups", 1), 3, 3, 3, seed=1)
    x_t, weight_t = x.clone().requires_grad_(), weight.clone().requires_grad_()
    functional.conv3d(x_t, weight_t, **options).sin().sum().backward()
    module = TracedModule(Calls(lambda x, weight: functional.conv3d(x, weight, **options).sin().sum()))
    found = jax.jit(jax.grad(lambda both: module.call({}, *both)))((to_jax(x), to_jax(weight)))
    for gradient, expected in zip(found, (x_t.grad, weight_t.grad), strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("options", [{"scale_factor": 2.0}, {"scale_factor": (3.0, 1.0)}, {"size": (9, 5)}], ids=str)
def test_nearest_pixels_are_torchs(mode: str, options: dict[str, Any]) -> None:
    expected, found = run_both(lambda x: functional.interpolate(x, mode=mode, **options), draw(2, 3, 4, 5))
    np.testing.assert_array_equal(found, expected)


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


@pytest.mark.parametrize("rows", [(2, 200), (300,), (2, 5)])
def test_a_biass_gradient_is_summed_up_in_fp32_either_way(rows: tuple[int, ...]) -> None:
    out = to_jax(draw(*rows, 24)).astype(jnp.bfloat16)
    bias, counted = out[..., 0, :].reshape(-1, 24)[0], out[..., ::-1]

    def differentiate(on_matrix_units: bool) -> Any:  # noqa: FBT001
        def add_up(bias: jax.Array) -> jax.Array:
            return (operators.add_bias(out, bias, on_matrix_units) * counted).astype(jnp.float32).sum()

        return jax.jit(jax.grad(add_up))

    wide = counted.astype(jnp.float32).reshape(-1, 24).sum(0).astype(jnp.bfloat16)
    for on_matrix_units in (False, True):
        np.testing.assert_allclose(
            differentiate(on_matrix_units)(bias).astype(jnp.float32), wide.astype(jnp.float32), rtol=2**-7
        )
        has_product = "dot_general" in str(jax.make_jaxpr(differentiate(on_matrix_units))(bias))
        assert has_product == (on_matrix_units and rows != (2, 5))
