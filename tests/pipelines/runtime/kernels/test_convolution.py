"""Convolutions and doublings of pictures split over a mesh are those of the whole picture, kernels interpreted."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels import operators
from pipelines.runtime.kernels.convolution import PictureAxes, convolve_split, double_split
from pipelines.runtime.kernels.convolution_gradient import (
    convolve_learning,
    double_learning,
    has_kernel,
    is_of_single_pixels,
    mix_channels,
)
from pipelines.runtime.kernels.taps import block_taps

BATCH, INPUTS, OUTPUTS, FRAMES = 2, 6, 10, 2
SPLITS = {
    "columns": P(None, None, None, None, ("dp", "sp")),
    "rows": P(None, None, None, ("dp", "sp")),
    "batch": P("dp"),
    "batch and columns": P("dp", None, None, None, "sp"),
    "batch and rows": P("dp", None, None, "sp"),
    "nothing": P(),
}


def lay(split: str) -> PictureAxes:
    return PictureAxes(mesh=build_mesh("dp=2,sp=4"), spec=SPLITS[split], interprets=True)


def draw(*shape: int, seed: int, scale: float = 1.0) -> jax.Array:
    """Values that bf16 has, in fp32."""
    values = scale * np.random.default_rng(seed).standard_normal(shape)
    return jnp.asarray(values, jnp.bfloat16).astype(jnp.float32)


def draw_weight(*, time_taps: int = 3) -> tuple[jax.Array, jax.Array]:
    weight = draw(OUTPUTS, INPUTS, time_taps, 3, 3, seed=1, scale=(9 * time_taps * INPUTS) ** -0.5)
    return weight, draw(OUTPUTS, seed=2)


def convolve_causally(x_BCFHW: jax.Array, weight: jax.Array, bias: jax.Array, before: jax.Array | None) -> np.ndarray:
    """XLA's own of the whole, with zeros for frames that are missing."""
    frames = x_BCFHW.shape[2]
    seen = x_BCFHW if before is None else jnp.concatenate([before, x_BCFHW], 2)
    missing = frames + weight.shape[2] - 1 - seen.shape[2]
    out = jax.lax.conv_general_dilated(
        seen,
        weight,
        window_strides=(1, 1, 1),
        padding=((missing, 0), (1, 1), (1, 1)),
        precision=jax.lax.Precision.HIGHEST,
    )
    return np.asarray(out + bias[:, None, None, None])


def check_convolution(
    axes: PictureAxes, *, height: int = 8, width: int = 16, before_frames: int = 0, time_taps: int = 3, is_kernel: bool
) -> None:
    x = draw(BATCH, INPUTS, FRAMES, height, width, seed=0)
    before = draw(BATCH, INPUTS, before_frames, height, width, seed=3) if before_frames else None
    weight, bias = draw_weight(time_taps=time_taps)
    traced = jax.jit(convolve_split, static_argnames="axes").trace(x, block_taps(weight), bias, before, axes=axes)
    assert ("convolve_taps" in str(traced.jaxpr)) == is_kernel
    found = traced.lower().compile()(x, block_taps(weight), bias, before)
    np.testing.assert_allclose(found, convolve_causally(x, weight, bias, before), atol=1e-5)


@pytest.mark.parametrize(
    ("split", "before_frames"),
    [("columns", 0), ("columns", 1), ("columns", 2), ("rows", 2), ("batch and columns", 1)],
)
def test_three_frames_of_a_split_picture_are_convolved_as_one(split: str, before_frames: int) -> None:
    check_convolution(lay(split), before_frames=before_frames, is_kernel=True)


@pytest.mark.parametrize("split", SPLITS)
def test_a_frame_alone_is_convolved_wherever_it_is_split(split: str) -> None:
    check_convolution(lay(split), time_taps=1, is_kernel=True)


@pytest.mark.parametrize(
    ("split", "height", "width", "before_frames"),
    [("columns", 8, 12, 0), ("rows", 12, 8, 1), ("batch and columns", 8, 6, 2)],
)
def test_what_does_not_divide_is_xlas_own(split: str, height: int, width: int, before_frames: int) -> None:
    check_convolution(lay(split), height=height, width=width, before_frames=before_frames, is_kernel=False)


def test_what_has_no_room_is_xlas_own() -> None:
    axes = lay("columns")
    assert axes.choose_blocks((1, 384, 2, 180, 320), blocks=3, time_taps=3)
    assert axes.choose_blocks((1, 16384, 2, 180, 320), blocks=3, time_taps=3) is None


def test_results_are_of_the_biass_dtype() -> None:
    x, (weight, bias) = draw(BATCH, INPUTS, FRAMES, 8, 16, seed=0), draw_weight()
    found = convolve_split(x, block_taps(weight), bias.astype(jnp.bfloat16), axes=lay("columns"))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(jnp.float32), convolve_causally(x, weight, bias, None), rtol=2**-7)


@pytest.mark.parametrize(
    ("split", "stride", "is_on"), [("batch", 1, True), ("batch", 1, False), ("columns", 1, True), ("batch", 2, True)]
)
def test_gradients_are_those_of_xlas_own(
    split: str, stride: int, monkeypatch: pytest.MonkeyPatch, *, is_on: bool
) -> None:
    monkeypatch.setattr("pipelines.runtime.kernels.convolution.is_on", lambda name: is_on or name == "conv3x3")
    axes = lay(split)
    weight = draw(OUTPUTS, INPUTS, 3, 3, seed=1, scale=0.1)
    arrays = draw(BATCH, INPUTS, 8, 16, seed=0), weight, draw(OUTPUTS, seed=2)
    counted = draw(BATCH, OUTPUTS, 8 // stride, 16 // stride, seed=4)

    def run(convolve: Callable[..., jax.Array]) -> Any:
        return jax.jit(jax.grad(lambda *arrays: (convolve(*arrays) * counted).sum(), (0, 1, 2)))

    by_kernel = run(functools.partial(convolve_learning, axes=axes, stride=stride))
    program = str(by_kernel.trace(*arrays).jaxpr)
    assert program.count("name=convolve_taps") == (2 if stride == 1 else 1)  # backwards, and forwards if of all pixels
    assert program.count("name=spread_pixels") == stride - 1
    # The gradient by the weight is the kernel's where a device has whole pictures.
    assert program.count("name=conv3x3_gradient") == (split == "batch" and stride == 1 and is_on)
    by_xla = run(functools.partial(operators.convolve, padding=1, stride=stride))
    for found, expected in zip(by_kernel(*arrays), by_xla(*arrays), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_gradients_of_what_the_mesh_does_not_divide_are_xlas_own() -> None:
    weight, axes = draw(OUTPUTS, INPUTS, 3, 3, seed=1, scale=0.1), lay("columns")
    arrays = draw(BATCH, INPUTS, 8, 12, seed=0), weight, draw(OUTPUTS, seed=2)
    counted = draw(BATCH, OUTPUTS, 8, 12, seed=4)

    def run(convolve: Callable[..., jax.Array]) -> Any:
        return jax.jit(jax.grad(lambda *arrays: (convolve(*arrays) * counted).sum(), (0, 1, 2)))

    found = run(functools.partial(convolve_learning, axes=axes))
    assert "pallas_call" not in str(found.trace(*arrays).jaxpr)
    expected = run(functools.partial(operators.convolve, padding=1))
    for one, other in zip(found(*arrays), expected(*arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("has_bias", [True, False])
def test_single_pixels_are_mixed_as_by_a_convolution(*, has_bias: bool) -> None:
    x, weight = draw(BATCH, INPUTS, 8, 16, seed=0), draw(OUTPUTS, INPUTS, 1, 1, seed=1, scale=0.1)
    arrays = (x, weight, draw(OUTPUTS, seed=2)) if has_bias else (x, weight)
    counted = draw(BATCH, OUTPUTS, 8, 16, seed=4)

    def run(convolve: Callable[..., jax.Array]) -> Any:
        total = lambda *arrays: (convolve(*arrays, *(() if has_bias else (None,))) * counted).sum()  # noqa: E731
        return jax.jit(jax.value_and_grad(total, tuple(range(len(arrays)))))(*arrays)

    for found, expected in zip(*map(jax.tree.leaves, (run(mix_channels), run(operators.convolve))), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "how", "is_taken"),
    [
        ((8, 4, 1, 1), {}, True),
        ((8, 4, 1, 1), {"padding": "valid"}, False),
        ((8, 4, 1, 1), {"padding": (0, 1)}, False),
        ((8, 4, 1, 1), {"stride": (2, 2)}, False),
        ((8, 4, 1, 1), {"groups": 2}, False),
        ((8, 4, 1, 3), {}, False),
        ((8, 4, 1, 1, 1), {}, False),
    ],
)
def test_only_plain_ones_are_mixed(shape: tuple[int, ...], how: Any, *, is_taken: bool) -> None:
    assert is_of_single_pixels(shape, **{"stride": 1, "padding": (0, 0), "groups": 1} | how) == is_taken


def test_what_a_doubled_picture_gives_back_is_added_up() -> None:
    axes = lay("batch")
    x, counted = draw(BATCH, INPUTS, 8, 16, seed=0), draw(BATCH, INPUTS, 16, 32, seed=1).astype(jnp.bfloat16)

    def run(double: Callable[[jax.Array], jax.Array]) -> Any:
        return jax.jit(jax.grad(lambda x: (double(x) * counted).astype(jnp.float32).sum()))(x.astype(jnp.bfloat16))

    found = run(functools.partial(double_learning, axes=axes))
    wide = counted.astype(jnp.float32).reshape(BATCH, INPUTS, 8, 2, 16, 2).sum((3, 5))
    np.testing.assert_array_equal(found, wide.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("shape", "how", "is_taken"),
    [
        ((8, 4, 3, 3), {"padding": (1, 1)}, True),
        ((8, 4, 3, 3), {"padding": 1, "stride": (2, 2)}, True),
        ((8, 4, 3, 3), {"padding": 1, "stride": (1, 2)}, False),
        ((8, 4, 3, 3), {"padding": "same"}, False),
        ((8, 4, 3, 3), {"padding": 1, "groups": 2}, False),
        ((8, 4, 1, 1), {"padding": 1}, False),
        ((8, 4, 3, 3, 3), {"padding": 1}, False),
    ],
)
def test_only_plain_ones_have_a_gradient_by_the_kernel(shape: tuple[int, ...], how: Any, *, is_taken: bool) -> None:
    assert has_kernel((2, 4, 6, 8), shape, **{"stride": 1, "dilation": 1, "groups": 1} | how) == is_taken


def test_half_of_an_odd_side_is_for_xla() -> None:
    assert not has_kernel((2, 4, 7, 8), (8, 4, 3, 3), stride=2, padding=1, dilation=1, groups=1)


@pytest.mark.parametrize(("height", "width"), [(8, 24), (12, 8)])
@pytest.mark.parametrize("split", SPLITS)
def test_a_split_picture_doubles_as_one(split: str, height: int, width: int) -> None:
    """Also where the mesh does not divide it."""
    x = draw(BATCH, INPUTS, height, width, seed=0)
    found = jax.jit(double_split, static_argnames="axes")(x, axes=lay(split))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, x.repeat(2, axis=2).repeat(2, axis=3))


def test_attentions_between_convolutions_split_a_frames_pixels_as_it_lies() -> None:
    for split in ("columns", "rows"):
        assert lay(split).attention.tokens == ("dp", "sp")
    assert lay("batch and rows").attention.rows == "dp"
    assert lay("nothing").attention.tokens is None
