"""Attention with a gradient by splash attention's kernels, run without a TPU, against plain attention."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels import attention, splash
from pipelines.runtime.kernels.attention import attend
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.splash import choose_tile, count_vmem_bytes

ARGUMENTS: Any = {"mask": None, "is_causal": False, "scale": None, "has_grouped_heads": False}


def draw(*shape: int, dtype: Any, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


@pytest.mark.parametrize("chips", [set(), {"cpu"}], ids=["splash", "flash"])
@pytest.mark.parametrize(
    ("dtype", "keys", "width", "seen", "limit"),
    [
        (jnp.float32, 1300, 64, None, 1e-4),  # both lengths and the width are filled up
        (jnp.float32, 512, 128, None, 1e-4),
        (jnp.float32, 1100, 64, (1056, 544), 1e-4),  # rows of their own lengths
        (jnp.bfloat16, 900, 128, None, 2e-2),
    ],
)
def test_values_and_gradients_are_those_of_plain_attention(  # noqa: PLR0917 - what is parametrized
    monkeypatch: pytest.MonkeyPatch,
    chips: set[str],
    dtype: Any,
    keys: int,
    width: int,
    seen: tuple[int, int] | None,
    limit: float,
) -> None:
    """Both kernels forwards, the backward one after either."""
    monkeypatch.setattr(splash, "WIDE_UNITS", chips)
    mesh = build_mesh("dp=2", devices=jax.devices()[:2])
    query, weights = (draw(2, 1, 1100, width, dtype=dtype, seed=seed) for seed in (0, 1))
    key, value = (draw(2, 1, keys, width, dtype=dtype, seed=seed) for seed in (2, 3))

    lengths = None if seen is None else jnp.asarray(seen)

    def run(axes: AttentionAxes | None) -> Any:
        def compute(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
            out = attend(*arrays, **ARGUMENTS, key_lengths=lengths, axes=axes)
            return (out.astype(jnp.float32) * weights.astype(jnp.float32)).sum(), out

        traced = jax.jit(jax.value_and_grad(compute, argnums=(0, 1, 2), has_aux=True))
        return traced, traced(query, key, value)

    kernel, ((_, out), gradients) = run(AttentionAxes(mesh=mesh, rows="dp", learns=True, interprets=True))
    text = kernel.lower(query, key, value).as_text(debug_info=True)
    assert "splash_mha_dkv" in text
    assert ("flash_attention" in text, "splash_mha_fwd" in text) == (bool(chips), not chips)
    _, ((_, expected), expected_gradients) = run(None)
    for found, wanted in ((out, expected), *zip(gradients, expected_gradients, strict=True)):
        found, wanted = np.asarray(found, np.float32), np.asarray(wanted, np.float32)
        assert np.abs(found - wanted).max() <= limit * np.abs(wanted).max()


@pytest.mark.parametrize(("queries", "keys"), [(attention.LONG - 128, attention.LONG), (attention.LONG, 77)])
def test_few_queries_and_short_texts_stay_plain(queries: int, keys: int) -> None:
    axes = AttentionAxes(mesh=build_mesh("dp=1", devices=jax.devices()[:1]), learns=True, interprets=True)
    query, key = (jax.ShapeDtypeStruct((1, 2, length, 64), jnp.float32) for length in (queries, keys))
    lowered = jax.jit(lambda query, key: attend(query, key, key, **ARGUMENTS, axes=axes)).lower(query, key)
    assert "splash_mha" not in lowered.as_text(debug_info=True)


@pytest.mark.parametrize(
    ("length", "tile", "count"),
    [(4608, 768, 6), (4096, 1024, 4), (1024, 1024, 1), (14_080, 640, 22), (900, 1024, 1), (512, 512, 1), (130, 256, 1)],
)
def test_tiles_fill_up_as_little_as_they_can(length: int, tile: int, count: int) -> None:
    assert choose_tile(length) == (tile, count)


def test_what_the_backward_kernel_needs_is_counted_about_as_the_compiler_does() -> None:
    assert count_vmem_bytes(768, 768, 2) == pytest.approx(8_916_992, rel=0.1)  # of klein's 4608 tokens, for v6e
    assert count_vmem_bytes(1024, 1024, 2) > 12 * 2**20  # which was refused
