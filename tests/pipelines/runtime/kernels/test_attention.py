"""Long self-attention over a mesh: however batch, heads and tokens are split, it is the attention of one device."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.attention import (
    AttentionAxes,
    attend,
    attend_long,
    attend_merged,
    attend_rotated,
    attend_text,
)
from pipelines.runtime.kernels.flash import Tiles
from pipelines.runtime.kernels.operators import find_gain
from pipelines.runtime.kernels.ulysses import NormAndRotary

TILES = Tiles(queries=128, keys=128, step=128)


def draw(heads: int) -> list[jax.Array]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal((2, heads, 96, 8)), jnp.float32) for _ in range(3)]


def build(function: Callable[..., jax.Array], *inputs: jax.Array) -> Any:
    """The function compiled for these inputs, once: it runs, and its program can be read."""
    return jax.jit(function).lower(*inputs).compile()


@pytest.mark.parametrize(
    ("mesh", "heads", "collective"),
    [
        ("dp=2,sp=4", 4, "all-to-all"),
        ("dp=2,sp=2,tp=2", 4, "all-to-all"),
        ("sp=4", 6, "all-gather"),
        ("dp=4,sp=2", 3, "all-gather"),
        ("tp=8", 8, ""),
    ],
    ids=["heads for tokens", "slices too", "heads that do not divide", "rows that do not divide", "heads alone"],
)
def test_a_split_attention_is_the_whole_one(mesh: str, heads: int, collective: str) -> None:
    built = build_mesh(mesh)
    axes = AttentionAxes(mesh=built, rows="dp", heads="tp", tokens="sp", interprets=True)
    inputs = draw(heads)
    expected = attend(*inputs, mask=None, is_causal=False, scale=None, has_grouped_heads=False)
    rows, tokens, slices = axes.choose_spec((2, 96, heads))
    placed = [jax.device_put(x, NamedSharding(built, P(rows, slices, tokens))) for x in inputs]
    run = build(lambda *inputs: attend_long(*inputs, scale=8**-0.5, axes=axes, tiles=TILES), *placed)
    np.testing.assert_allclose(run(*placed), expected, atol=2e-6)
    text = run.as_text()
    assert {name for name in ("all-to-all", "all-gather") if name in text} == ({collective} if collective else set())


@pytest.mark.parametrize("is_on", [True, False], ids=["kernel", "switched off"])
@pytest.mark.parametrize(("mesh", "collective"), [("dp=2,sp=4", "all-to-all"), ("sp=2,tp=3", "all-gather")])
def test_rows_of_their_own_lengths_and_a_head_too_few(
    mesh: str, collective: str, monkeypatch: pytest.MonkeyPatch, *, is_on: bool
) -> None:
    """15 heads become 16 for four devices; five for each of two would become six, which is too much."""
    monkeypatch.setattr("pipelines.runtime.kernels.attention.LONG", 8)
    monkeypatch.setattr("pipelines.runtime.kernels.attention.is_on", lambda _name: is_on)
    built = build_mesh(mesh, devices=jax.devices()[: 8 if "dp" in mesh else 6])
    inputs, lengths = draw(15), jnp.asarray([33, 96])
    options = {"is_causal": False, "scale": None, "has_grouped_heads": False}
    mask = (jnp.arange(96) < lengths[:, None])[:, None, None]
    expected = attend(*inputs, mask=mask, **options)
    np.testing.assert_allclose(attend(*inputs, mask=None, key_lengths=lengths, **options), expected, atol=2e-6)
    axes = AttentionAxes(mesh=built, rows="dp", heads="tp", tokens="sp", interprets=True)
    given = (*inputs, lengths)
    run = build(lambda *own: attend(*own[:3], mask=None, key_lengths=own[3], axes=axes, **options), *given)
    np.testing.assert_allclose(run(*given), expected, atol=2e-6)
    assert collective in run.as_text()


def test_keys_and_values_are_gathered_where_heads_are_not_to_be_traded() -> None:
    built = build_mesh("sp=4")
    axes = AttentionAxes(mesh=built, tokens="sp", trades_heads=False, interprets=True)
    inputs = draw(4)
    expected = attend(*inputs, mask=None, is_causal=False, scale=None, has_grouped_heads=False)
    run = build(lambda *inputs: attend_long(*inputs, scale=8**-0.5, axes=axes, tiles=TILES), *inputs)
    np.testing.assert_allclose(run(*inputs), expected, atol=2e-6)
    assert "all-to-all" not in run.as_text()


def test_queries_in_parts_attend_to_a_text_that_is_whole_everywhere() -> None:
    built = build_mesh("dp=2,sp=2,tp=2")
    axes = AttentionAxes(mesh=built, rows="dp", heads="tp", tokens="sp", interprets=True)
    query, key, value = draw(4)
    key, value = key[:, :, :33], value[:, :, :33]
    expected = attend(query, key, value, mask=None, is_causal=False, scale=None, has_grouped_heads=False)
    run = jax.jit(lambda *inputs: attend_long(*inputs, scale=8**-0.5, axes=axes, tiles=TILES))
    np.testing.assert_allclose(run(query, key, value), expected, atol=2e-6)


def test_it_runs_inside_a_shard_map_over_heads() -> None:
    built = build_mesh("sp=2,tp=4")
    axes = AttentionAxes(mesh=built, rows="dp", tokens="sp", entered=frozenset({"tp"}), interprets=True)
    inputs = draw(8)
    expected = attend(*inputs, mask=None, is_causal=False, scale=None, has_grouped_heads=False)
    run = jax.shard_map(
        lambda *inputs: attend_long(*inputs, scale=8**-0.5, axes=axes, tiles=TILES),
        mesh=built,
        in_specs=P(None, "tp"),
        out_specs=P(None, "tp"),
        axis_names={"tp"},
        check_vma=False,
    )
    np.testing.assert_allclose(jax.jit(run)(*inputs), expected, atol=2e-6)


@pytest.mark.parametrize("mesh", ["sp=1", "dp=2,sp=4", "sp=2,tp=2", "sp=8"])
def test_rotated_attention_does_not_see_tokens_that_fill_up(mesh: str) -> None:
    """On one device, with heads traded, with slices too, and with heads that do not divide."""
    rng = np.random.default_rng(1)
    tokens, heads, width = 90, 4, 8
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    merged = [draw(2, tokens, heads * width) for _ in range(3)]
    tables = [jnp.repeat(draw(tokens, width // 2), 2, axis=1) for _ in "cs"]
    weights = [draw(heads * width) for _ in "qk"]
    attend_own = functools.partial(attend_rotated, heads=heads, eps=1e-6)
    expected = attend_own(*merged, *tables, *weights)
    fill = lambda x, axis: jnp.pad(x, [(0, 6 * (axis == own)) for own in range(x.ndim)], constant_values=3.0)  # noqa: E731
    longer = [fill(x, 1) for x in merged]
    np.testing.assert_allclose(attend_own(*longer, *tables, *weights)[:, :tokens], expected, atol=2e-6)
    axes = AttentionAxes(mesh=build_mesh(mesh), rows="dp", heads="tp", tokens="sp", interprets=True)
    turns = tuple(
        NormAndRotary(*(fill(table, 0) for table in tables), find_gain(x, 1e-6), weight)
        for x, weight in zip(longer[:2], weights, strict=True)
    )
    run = jax.jit(
        lambda *inputs: attend_merged(
            *inputs,
            heads=heads,
            scale=width**-0.5,
            axes=axes,
            is_self=True,
            turns=turns,
            key_length=tokens,
            tiles=TILES,
        )
    )
    np.testing.assert_allclose(run(*longer)[:, :tokens], expected, atol=2e-6)


@pytest.mark.parametrize("mesh", ["sp=1", "dp=2,sp=2,tp=2"])
def test_a_norm_of_the_queries_may_be_left_to_the_kernel_and_to_the_keys(mesh: str) -> None:
    rng = np.random.default_rng(2)
    heads, width = 4, 8
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    query, key, value = draw(2, 96, heads * width), draw(2, 33, heads * width), draw(2, 33, heads * width)
    weight = draw(heads * width)
    expected = attend_text(query, key, value, weight, heads=heads, eps=1e-6)
    axes = AttentionAxes(mesh=build_mesh(mesh), rows="dp", heads="tp", tokens="sp", interprets=True)
    run = jax.jit(
        lambda query, key, value: attend_merged(
            query,
            key * weight,
            value,
            heads=heads,
            scale=width**-0.5,
            axes=axes,
            is_self=False,
            query_gain=find_gain(query, 1e-6),
            tiles=TILES,
        )
    )
    np.testing.assert_allclose(run(query, key, value), expected, atol=5e-6)


@pytest.mark.parametrize(
    ("mesh", "trades_heads"),
    [("sp=1", True), ("sp=4", True), ("sp=4", False), ("dp=2,sp=2,tp=2", True), ("dp=2,sp=2,tp=2", False)],
    ids=["one", "heads traded", "keys gathered", "heads traded on all axes", "keys gathered on all axes"],
)
@pytest.mark.parametrize("window", [5, 40])
def test_a_window_goes_by_a_tokens_own_place_on_every_device(mesh: str, window: int, *, trades_heads: bool) -> None:
    axes = AttentionAxes(
        mesh=build_mesh(mesh), rows="dp", heads="tp", tokens="sp", trades_heads=trades_heads, interprets=True
    )
    inputs = draw(4)
    expected = attend(*inputs, mask=None, is_causal=False, scale=None, has_grouped_heads=False, window=window)
    distance = jnp.abs(jnp.arange(96)[:, None] - jnp.arange(96))
    masked = attend(*inputs, mask=distance <= window, is_causal=False, scale=None, has_grouped_heads=False)
    np.testing.assert_allclose(expected, masked, atol=2e-6)
    run = jax.jit(lambda *inputs: attend_long(*inputs, scale=8**-0.5, axes=axes, tiles=TILES, window=window))
    np.testing.assert_allclose(run(*inputs), expected, atol=2e-6)


@pytest.mark.parametrize("mesh", ["sp=1", "sp=4", "sp=2,tp=2", "sp=8"])
def test_a_models_window_and_centred_keys_are_the_same_through_the_kernel(
    mesh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.runtime.kernels.attention.LONG", 8)
    rng = np.random.default_rng(1)
    tokens, heads, width = 90, 4, 8
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    merged = [jnp.pad(draw(2, tokens, heads * width), [(0, 0), (0, 6), (0, 0)], constant_values=3.0) for _ in range(3)]
    tables = [jnp.repeat(draw(tokens, width // 2), 2, axis=1) for _ in "cs"]
    weights = [draw(heads * width) for _ in "qk"]
    own = functools.partial(attend_rotated, *merged, *tables, *weights, heads=heads, eps=1e-6)
    place = functools.partial(AttentionAxes, mesh=build_mesh(mesh), rows="dp", heads="tp", tokens="sp", window=7)
    plain = own(axes=place())[:, :tokens]
    assert not np.allclose(plain, own(axes=None)[:, :tokens], atol=1e-2)
    of_kernel = [place(interprets=True, **option) for option in ({}, {"smooths_keys": True}, {"bounds_logits": True})]
    for axes in (*of_kernel, place(smooths_keys=True)):
        found = jax.jit(lambda axes=axes: own(axes=axes))()
        np.testing.assert_allclose(found[:, :tokens], plain, atol=5e-6)


@pytest.mark.parametrize("interprets", [True, False], ids=["kernel", "plain"])
@pytest.mark.parametrize("mesh", ["sp=1", "sp=4", "sp=8"])
def test_keys_with_much_in_common_are_centred_before_they_are_rounded(
    mesh: str, monkeypatch: pytest.MonkeyPatch, *, interprets: bool
) -> None:
    monkeypatch.setattr("pipelines.runtime.kernels.attention.LONG", 8)
    rng = np.random.default_rng(1)
    tokens, heads, width = 96, 4, 8
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.bfloat16)  # noqa: E731
    query, key, value = (draw(1, tokens, heads * width) for _ in range(3))
    key += 8 * draw(1, 1, heads * width)
    tables = [jnp.full((tokens, width), fill, jnp.float32) for fill in (1.0, 0.0)]  # nothing turns
    weights = [jnp.asarray(1 + rng.random(heads * width), jnp.float32) for _ in "qk"]
    attend_own = functools.partial(attend_rotated, heads=heads, eps=1e-6)
    merged = [x.astype(jnp.float32) for x in (query, key, value)]
    expected = attend_own(*merged, *tables, *weights)
    place = functools.partial(AttentionAxes, mesh=build_mesh(mesh), rows="dp", heads="tp", tokens="sp")
    errors = []
    for smooths_keys in (False, True):
        axes = place(interprets=interprets, smooths_keys=smooths_keys)
        run = jax.jit(lambda *inputs, axes=axes: attend_own(*inputs, *tables, *weights, axes=axes))
        errors.append(float(jnp.linalg.norm(run(query, key, value) - expected) / jnp.linalg.norm(expected)))
    assert errors[1] < 0.8 * errors[0]
