"""The deep autoencoder starts as its teacher: nothing is lost in folding, and the outer levels are the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.demos.stills import architecture, deepen


def test_folding_loses_nothing() -> None:
    latents = np.random.default_rng(0).standard_normal((2, 4, 6, 8)).astype(np.float32)
    average, across, down, diagonal = np.split(np.asarray(deepen.fold_latents(jnp.asarray(latents))), 4, axis=1)
    assert average.shape == (2, 4, 3, 4)
    np.testing.assert_allclose(average, latents.reshape(2, 4, 3, 2, 4, 2).mean((3, 5)), atol=1e-6)
    for row, column in np.ndindex(2, 2):
        signs = (-1) ** column * across + (-1) ** row * down + (-1) ** (row + column) * diagonal
        np.testing.assert_allclose(latents[:, :, row::2, column::2], average + signs / 2, atol=1e-6)


def test_a_flat_picture_has_no_details() -> None:
    folded = np.asarray(deepen.fold_latents(jnp.full((1, 4, 4, 4), 0.7)))
    np.testing.assert_allclose(folded[:, :4], 0.7, atol=1e-6)
    np.testing.assert_allclose(folded[:, 4:], 0.0, atol=1e-6)


@pytest.fixture(scope="module")
def outer() -> dict[str, jax.Array]:
    _, teacher = architecture.trace_and_initialise(architecture.build_shallow_vae, seed=0)
    _, initial = architecture.trace_and_initialise(architecture.build_vae, seed=1)
    return deepen._take_outer({name: jnp.asarray(value) for name, value in teacher.items()}, initial)


def test_the_outer_levels_give_what_the_teachers_give(outer: dict[str, jax.Array]) -> None:
    shallow, teacher = architecture.trace_and_initialise(architecture.build_shallow_vae, seed=0)
    deep, _ = architecture.trace_and_initialise(architecture.build_vae, seed=1)
    pixels = jnp.asarray(np.random.default_rng(0).standard_normal((1, 3, 32, 32)), jnp.float32)

    def run(vae: Any, pixels: Any) -> Any:
        hidden = vae.encoder.conv_in(pixels)
        for block in vae.encoder.down_blocks[:3]:
            hidden = block(hidden)
        return vae.encoder.down_blocks[3].resnets[0](hidden, None)

    expected, found = (
        jax.jit(lambda weights, pixels, vae=vae: vae.call(weights, pixels, method=run))(weights, pixels)
        for vae, weights in ((shallow, teacher), (deep, outer))
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_only_the_new_level_and_what_touches_it_are_left_to_learn(outer: dict[str, jax.Array]) -> None:
    _, initial = architecture.trace_and_initialise(architecture.build_vae, seed=1)
    left = {name.rsplit(".", 3)[0] for name in initial.keys() - outer.keys()}
    assert not any(name.startswith(("encoder.conv_in", "decoder.conv_out", "decoder.up_blocks.4")) for name in left)
    assert {name for name in initial if name.startswith("decoder.up_blocks.0.")} <= initial.keys() - outer.keys()
