"""Tokens traded for heads: every device gets all tokens of its heads, turned by their angles, and its own back."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.ulysses import NormAndRotary, gather_features, gather_tokens

# (heads, head_dim): whole lanes, two heads a lane vector, and what no kernel takes
WIDTHS = [(4, 128), (8, 64), (4, 48)]


def draw(heads: int, width: int, *, tokens: int = 36) -> tuple[jax.Array, NormAndRotary]:
    rng = np.random.default_rng(0)
    angles = np.repeat(rng.uniform(0, 2 * np.pi, (tokens, width // 2)), 2, axis=1)
    arrays = (
        rng.standard_normal((2, tokens, heads * width)),
        np.cos(angles),
        np.sin(angles),
        rng.uniform(0.5, 2, (2, tokens, 1)),
        rng.standard_normal(heads * width),
    )
    x, *turn = (jnp.asarray(array, jnp.float32) for array in arrays)
    return x, NormAndRotary(*turn)


def turn_plainly(x: jax.Array, turn: NormAndRotary) -> np.ndarray:
    """In fp64, pair by pair."""
    cos, sin, gain, weight = (np.asarray(array, np.float64) for array in turn)
    scaled = (np.asarray(x) * gain * weight).reshape(*x.shape[:2], -1, cos.shape[-1])
    first, second = scaled[..., ::2], scaled[..., 1::2]
    cos, sin = cos[:, None, ::2], sin[:, None, ::2]
    return np.stack((first * cos - second * sin, first * sin + second * cos), -1).reshape(x.shape)


@pytest.mark.parametrize(("heads", "width"), WIDTHS)
def test_a_device_gets_all_tokens_of_its_heads_scaled_and_turned(heads: int, width: int) -> None:
    x, turn = draw(heads, width)
    run = jax.shard_map(
        lambda x, turn: gather_tokens(x, "sp", parts=4, turn=turn, interpret=True),
        mesh=build_mesh("sp=4"),
        in_specs=(P(None, "sp"), NormAndRotary(P("sp"), P("sp"), P(None, "sp"), P())),
        out_specs=P(None, None, "sp"),
        check_vma=False,
    )
    np.testing.assert_allclose(jax.jit(run)(x, turn), turn_plainly(x, turn), atol=5e-6)


@pytest.mark.parametrize(("heads", "width"), WIDTHS)
def test_there_and_back_changes_nothing(heads: int, width: int) -> None:
    x, _ = draw(heads, width)
    trade = functools.partial(gather_tokens, axis="sp", parts=4, interpret=True)
    run = jax.shard_map(
        lambda x: gather_features(trade(x), "sp", parts=4, interpret=True),
        mesh=build_mesh("sp=4"),
        in_specs=P(None, "sp"),
        out_specs=P(None, "sp"),
        check_vma=False,
    )
    np.testing.assert_array_equal(jax.jit(run)(x), x)


def test_one_device_turns_and_trades_nothing() -> None:
    x, turn = draw(2, 128)
    turned = gather_tokens(x, None, parts=1, turn=turn, interpret=True)
    np.testing.assert_allclose(turned, turn_plainly(x, turn), atol=5e-6)
