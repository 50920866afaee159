"""Attention with a gradient by our kernels, run without a TPU, against plain attention."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels import attention, flash_gradient
from pipelines.runtime.kernels.attention import attend
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.flash import Tiles, flash_attention
from pipelines.runtime.kernels.flash_gradient import Part, choose_part, count_vmem_bytes, differentiate

ARGUMENTS: Any = {"mask": None, "is_causal": False, "scale": None, "has_grouped_heads": False}
SMALL = Tiles(queries=512, keys=512, step=256)


def draw(*shape: int, dtype: Any, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def measure_error(found: jax.Array, expected: jax.Array) -> float:
    """Returns the largest difference, as a share of the largest value."""
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(
    ("dtype", "keys", "heads", "width", "seen", "limit"),
    [
        (jnp.float32, 512, 1, 128, None, 1e-4),
        (jnp.float32, 1100, 2, 64, (1056, 544), 1e-4),  # two heads side by side, rows of their own lengths
        (jnp.float32, 600, 1, 128, (556, 300), 1e-4),
        (jnp.float32, 400, 3, 64, None, 1e-4),  # the last block has one of two heads
        (jnp.float32, 400, 3, 32, (400, 200), 1e-4),
        (jnp.float32, 400, 2, 40, None, 1e-4),  # heads that never fill vectors side by side are filled up
        (jnp.bfloat16, 600, 1, 128, None, 1e-2),
    ],
)
def test_values_and_gradients_are_those_of_plain_attention(  # noqa: PLR0917 - what is parametrized
    dtype: Any, keys: int, heads: int, width: int, seen: tuple[int, int] | None, limit: float
) -> None:
    mesh = build_mesh("dp=2", devices=jax.devices()[:2])
    query, weights = (draw(2, heads, 900, width, dtype=dtype, seed=seed) for seed in (0, 1))
    key, value = (draw(2, heads, keys, width, dtype=dtype, seed=seed) for seed in (2, 3))
    lengths = None if seen is None else jnp.asarray(seen)

    def run(axes: AttentionAxes | None) -> Any:
        def compute(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
            out = attend(*arrays, **ARGUMENTS, key_lengths=lengths, axes=axes)
            return (out.astype(jnp.float32) * weights.astype(jnp.float32)).sum(), out

        traced = jax.jit(jax.value_and_grad(compute, argnums=(0, 1, 2), has_aux=True))
        return traced, traced(query, key, value)

    kernel, ((_, out), gradients) = run(AttentionAxes(mesh=mesh, rows="dp", learns=True, interprets=True))
    text = kernel.lower(query, key, value).as_text(debug_info=True)
    assert "flash_attention" in text
    assert flash_gradient.NAME in text
    _, ((_, expected), expected_gradients) = run(None)
    for found, wanted in ((out, expected), *zip(gradients, expected_gradients, strict=True)):
        assert measure_error(found, wanted) <= limit


@pytest.mark.parametrize("visits", [3, 1])
@pytest.mark.parametrize("seen", [None, (1034, 300)])
def test_several_tiles_and_parts_of_keys_add_up(visits: int, seen: tuple[int, int] | None) -> None:
    """1100 keys are three tiles of 512: in one part, or in three, of which a row of 300 sees the first alone."""
    query, gradient = (draw(2, 600, 128, dtype=jnp.float32, seed=seed) for seed in (0, 1))
    key, value = (draw(2, 1100, 128, dtype=jnp.float32, seed=seed) for seed in (2, 3))
    lengths = None if seen is None else jnp.asarray(seen)
    options: Any = {"heads": 2, "scale": 0.125, "key_lengths_B": lengths, "vmem_bytes": 2**24, "interpret": True}
    out, sums = flash_attention(query, key, value, tells_sums=True, **options)
    part = Part(tiles=SMALL, visits=visits)
    found = differentiate(query, key, value, out, sums, gradient, part=part, **options)

    def attend_plainly(*arrays: jax.Array) -> jax.Array:
        apart = (x.reshape(2, -1, 2, 64).swapaxes(1, 2) for x in arrays)
        return attend(*apart, **ARGUMENTS, key_lengths=lengths).swapaxes(1, 2).reshape(out.shape)

    expected = jax.vjp(attend_plainly, query, key, value)[1](gradient)
    for one, wanted in zip(found, expected, strict=True):
        assert measure_error(one, wanted) <= 1e-4


def test_large_logits_lose_no_more_than_bf16_has_rounded() -> None:
    """Both kernels compute the very same logits: a weight of 1.01 in one and 1 in the other would err by a percent."""
    query, key, value, gradient = (draw(1, 1100, 128, dtype=jnp.bfloat16, seed=seed) for seed in range(4))
    options: Any = {"heads": 1, "scale": 4 * 128**-0.5, "vmem_bytes": 2**24, "interpret": True}
    out, sums = flash_attention(query, key, value, tells_sums=True, **options)
    found = differentiate(query, key, value, out, sums, gradient, **options)

    def attend_exactly(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        return jax.nn.softmax(query @ key.swapaxes(1, 2) * options["scale"]) @ value

    wide = [x.astype(jnp.float32) for x in (query, key, value, gradient)]
    expected = jax.vjp(attend_exactly, *wide[:3])[1](wide[3])
    for one, wanted in zip(found, expected, strict=True):
        difference = np.asarray(one, np.float32) - np.asarray(wanted)
        assert np.linalg.norm(difference) <= 8e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize(("queries", "keys"), [(attention.LONG - 128, attention.LONG), (attention.LONG, 77)])
def test_few_queries_and_short_texts_stay_plain(queries: int, keys: int) -> None:
    axes = AttentionAxes(mesh=build_mesh("dp=1", devices=jax.devices()[:1]), learns=True, interprets=True)
    query, key = (jax.ShapeDtypeStruct((1, 2, length, 64), jnp.float32) for length in (queries, keys))
    lowered = jax.jit(lambda query, key: attend(query, key, key, **ARGUMENTS, axes=axes)).lower(query, key)
    assert "flash" not in lowered.as_text(debug_info=True)


@pytest.mark.parametrize(
    ("length", "vmem_mib", "has_large_units", "expected"),
    [
        (4608, 96, True, Part(tiles=Tiles(queries=1536, keys=4608, step=768), visits=1)),  # FLUX.2's
        (14_040, 96, True, Part(tiles=Tiles(queries=2048, keys=8192, step=512), visits=2)),  # Wan's, of 33 frames
        (14_040, 48, False, Part(tiles=Tiles(queries=1280, keys=8192, step=512), visits=2)),
        (75_600, 48, False, Part(tiles=Tiles(queries=2048, keys=8192, step=512), visits=2)),  # parts of the keys
        (1024, 12, True, Part(tiles=Tiles(queries=1024, keys=1024, step=512), visits=1)),
    ],
)
def test_all_keys_come_at_once_where_there_is_room_for_their_gradients(
    length: int, vmem_mib: int, *, has_large_units: bool, expected: Part
) -> None:
    sizes = {"group": 1, "width": 128, "itemsize": 2}
    part = choose_part(length, length, **sizes, vmem_bytes=vmem_mib * 2**20, has_large_units=has_large_units)
    assert part == expected
    assert count_vmem_bytes(part, **sizes) <= vmem_mib * 2**20
    assert (part.keys >= length) == (math.ceil(length / part.tiles.keys) == part.visits)
