"""Tokens traded for heads: every device gets all tokens of its heads, turned by their angles, and its own back."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pipelines.runtime.mesh import build_mesh
from pipelines.runtime.rotary import rotate_pairs
from pipelines.runtime.ulysses import gather_features, gather_tokens

# (heads, head_dim): whole lanes, two heads a lane vector, and what no kernel takes
WIDTHS = [(4, 128), (8, 64), (4, 48)]


def draw(heads: int, width: int, *, tokens: int = 36) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    angles = np.repeat(rng.uniform(0, 2 * np.pi, (tokens, width // 2)), 2, axis=1)
    x = rng.standard_normal((2, tokens, heads * width))
    return (
        jnp.asarray(x, jnp.float32),
        jnp.asarray(np.cos(angles), jnp.float32),
        jnp.asarray(np.sin(angles), jnp.float32),
    )


@pytest.mark.parametrize(("heads", "width"), WIDTHS)
def test_a_device_gets_all_tokens_of_its_heads_turned_by_their_angles(heads: int, width: int) -> None:
    x, cos, sin = draw(heads, width)
    run = jax.shard_map(
        lambda x, cos, sin: gather_tokens(x, "sp", parts=4, tables=(cos, sin), interpret=True),
        mesh=build_mesh("sp=4"),
        in_specs=(P(None, "sp"), P("sp"), P("sp")),
        out_specs=P(None, None, "sp"),
        check_vma=False,
    )
    expected = rotate_pairs(x.reshape(2, 36, heads, width), cos, sin).reshape(x.shape)
    np.testing.assert_allclose(jax.jit(run)(x, cos, sin), expected, atol=1e-6)


@pytest.mark.parametrize(("heads", "width"), WIDTHS)
def test_there_and_back_changes_nothing(heads: int, width: int) -> None:
    x, *_ = draw(heads, width)
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
    x, cos, sin = draw(2, 128)
    turned = gather_tokens(x, None, parts=1, tables=(cos, sin), interpret=True)
    np.testing.assert_allclose(turned, rotate_pairs(x.reshape(2, 36, 2, 128), cos, sin).reshape(x.shape), atol=1e-6)
