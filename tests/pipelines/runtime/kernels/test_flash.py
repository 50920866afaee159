"""The attention kernel, interpreted, against a softmax in fp64: lengths that fill no tile, extreme logits, windows."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.runtime.kernels import flash
from pipelines.runtime.kernels.flash import (
    Tiles,
    center_keys,
    choose_tiles,
    count_keys,
    count_vmem_bytes,
    find_vmem_bytes,
    flash_attention,
)

SMALL = Tiles(queries=128, keys=256, step=128)


def attend_in_tiles(query: np.ndarray, key: np.ndarray, value: np.ndarray, **options: Any) -> np.ndarray:
    """The kernel, interpreted, on (batch, heads, length, width)."""
    batch, heads, length, width = query.shape
    merged = (x.swapaxes(1, 2).reshape(batch, -1, heads * width) for x in (query, key, value))
    found = flash_attention(*merged, heads=heads, tiles=SMALL, interpret=True, **options)
    return np.asarray(found).reshape(batch, length, heads, width).swapaxes(1, 2)


def draw(*shape: int, seed: int, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def attend_exactly(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, *, scale: float, window: int | None = None
) -> np.ndarray:
    query, key, value = (x.astype(np.float64) for x in (query, key, value))
    logits = np.einsum("bhqd,bhkd->bhqk", query, key) * scale
    if window is not None:
        distance = np.abs(np.arange(query.shape[2])[:, None] - np.arange(key.shape[2]))
        logits = np.where(distance <= window, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), value)


@pytest.mark.parametrize(
    ("heads", "width", "queries", "keys"),
    [
        *((3, 64, *lengths) for lengths in ((128, 256), (5, 3), (140, 257), (17, 600))),
        *((*heads, 140, 257) for heads in ((2, 64), (4, 64), (2, 128), (3, 8), (6, 32))),
    ],
    ids=["whole tiles", "less than one", "one key more", "several tiles", "pair", "pairs", "wide", "narrow", "mixed"],
)
def test_it_is_the_softmax_whatever_the_lengths_and_heads(heads: int, width: int, queries: int, keys: int) -> None:
    query, key, value = (draw(1, heads, length, width, seed=seed) for seed, length in enumerate((queries, keys, keys)))
    found = attend_in_tiles(query, key, value, scale=width**-0.5)
    np.testing.assert_allclose(found, attend_exactly(query, key, value, scale=width**-0.5), atol=2e-6)


@pytest.mark.parametrize(
    "lengths", [(16, 600), (128, 256), (257, 300)], ids=["fewest and all", "tiles", "parts of one"]
)
def test_rows_may_see_as_many_keys_as_is_told_only_when_it_runs(lengths: tuple[int, int]) -> None:
    query, key, value = (draw(2, 2, length, 64, seed=seed) for seed, length in enumerate((140, 600, 600)))
    for row, length in enumerate(lengths):
        key[row, :, length:], value[row, :, length:] = 1e4, np.nan  # whatever lies there
    found = attend_in_tiles(query, key, value, scale=0.125, key_lengths_B=jnp.asarray(lengths))
    for row, length in enumerate(lengths):
        seen = (query[row : row + 1], *(x[row : row + 1, :, :length] for x in (key, value)))
        np.testing.assert_allclose(found[row : row + 1], attend_exactly(*seen, scale=0.125), atol=2e-6)


@pytest.mark.parametrize("size", [1e-3, 30.0, 1e3], ids=["flat", "sharp", "extreme"])
def test_extreme_logits_neither_overflow_nor_lose_the_largest(size: float) -> None:
    query, key, value = (draw(1, 1, 300, 64, seed=seed) for seed in range(3))
    found = attend_in_tiles(size * query, key, value, scale=0.125)
    expected = attend_exactly((size * query).astype(np.float32), key, value, scale=0.125)
    # A sharp softmax turns the rounding of its logits (about 2e-7 of them) into differences of the weights.
    np.testing.assert_allclose(found, expected, atol=2e-6 * max(1.0, size))


def test_a_logit_far_below_all_others_in_the_first_tile_counts_for_nothing_later() -> None:
    query, key, value = np.ones((1, 1, 1, 64)), np.zeros((1, 1, 512, 64)), np.zeros((1, 1, 512, 64))
    key[:, :, :256], value[:, :, :256] = -1e4, 7.0
    found = attend_in_tiles(*(x.astype(np.float32) for x in (query, key, value)), scale=1.0)
    assert not found.any()


@pytest.mark.parametrize("place", [20, 200, 300, 599], ids=["same step", "next step", "next tile", "cut step"])
@pytest.mark.parametrize("height", [60.0, 500.0], ids=["within the excess", "beyond it"])
def test_a_key_that_towers_over_all_before_is_not_lost(place: int, height: float) -> None:
    query, key, value = (draw(1, 2, length, 64, seed=seed) for seed, length in enumerate((140, 600, 600)))
    query[..., 0], key[..., 0] = 1.0, 0.0
    key[:, 1, place, 0] = height / 0.125  # of one head alone
    found = attend_in_tiles(query, key, value, scale=0.125)
    np.testing.assert_allclose(found, attend_exactly(query, key, value, scale=0.125), atol=2e-5)


@pytest.mark.parametrize("window", [0, 5, 200, 10_000])
def test_a_window_hides_what_is_further_away(window: int) -> None:
    query, key, value = (draw(1, 1, 530, 64, seed=seed) for seed in range(3))
    found = attend_in_tiles(query, key, value, scale=0.125, window=window)
    np.testing.assert_allclose(found, attend_exactly(query, key, value, scale=0.125, window=window), atol=2e-6)


@pytest.mark.parametrize("size", [1.0, 5.5, 30.0], ids=["small", "small for half of the queries", "large"])
@pytest.mark.parametrize(("heads", "width"), [(2, 64), (3, 64), (1, 128)])
def test_logits_that_are_known_to_be_small_need_no_maximum(size: float, heads: int, width: int) -> None:
    query, key, value = (draw(1, heads, length, width, seed=seed) for seed, length in enumerate((260, 600, 600)))
    for x in (query, key):
        x *= width**0.5 / np.linalg.norm(x, axis=-1, keepdims=True)
    query *= np.where(np.arange(260) < 128, 1.0, size)[:, None]
    found = attend_in_tiles(query, key, value, scale=width**-0.5, bounds_logits=True)
    np.testing.assert_allclose(found, attend_exactly(query, key, value, scale=width**-0.5), atol=2e-6 * max(1.0, size))


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["high", "low"])
def test_small_logits_are_exact_up_to_their_bound_with_many_large_values(sign: float) -> None:
    """Keys that are all as far from 0 as they may be, and values of 10 000: sums neither overflow nor vanish."""
    query, key = np.ones((1, 1, 140, 64), np.float32), np.ones((1, 1, 600, 64), np.float32)
    value = 1e4 + draw(1, 1, 600, 64, seed=2)
    key *= sign * 0.999 * flash.MOST_SMALL * np.log(2) / 8
    found = attend_in_tiles(query, key, value, scale=0.125, bounds_logits=True)
    np.testing.assert_allclose(found, attend_exactly(query, key, value, scale=0.125), rtol=1e-6)


@pytest.mark.parametrize("options", [{"window": 5}, {"window": 200}, {"key_lengths_B": jnp.asarray([530])}], ids=repr)
def test_small_logits_may_be_masked(options: dict[str, Any]) -> None:
    query, key, value = (draw(1, 1, 530, 64, seed=seed) for seed in range(3))
    found = attend_in_tiles(query, key, value, scale=0.125, bounds_logits=True, **options)
    expected = attend_exactly(query, key, value, scale=0.125, window=options.get("window"))
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_without_the_bound_large_logits_would_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (draw(1, 1, 300, 64, seed=seed, scale=6.0) for seed in range(3))
    run = functools.partial(attend_in_tiles, query, key, value, scale=0.5, bounds_logits=True)
    assert np.isfinite(run()).all()
    monkeypatch.setattr(flash, "MOST_SMALL", 1e9)
    flash_attention.clear_cache()  # it is traced once a shape
    try:
        assert not np.isfinite(run()).all()
    finally:
        flash_attention.clear_cache()


def test_centered_keys_give_the_same_attention() -> None:
    query, key, value = draw(1, 2, 20, 64, seed=0), draw(1, 2, 300, 64, seed=1) + 50, draw(1, 2, 300, 64, seed=2)
    centered = np.stack([np.asarray(center_keys(own)) for own in key.swapaxes(0, 1)], axis=1)
    assert abs(centered.mean(2)).max() < 1e-4
    found = attend_in_tiles(query, centered, value, scale=0.125)
    np.testing.assert_allclose(found, attend_exactly(query, key, value, scale=0.125), atol=1e-4)


def measure_bf16(query: np.ndarray, key: np.ndarray, value: np.ndarray, expected: np.ndarray) -> float:
    """The kernel's relative error in bf16."""
    half = (np.asarray(jnp.asarray(x, jnp.bfloat16)) for x in (query, key, value))
    found = attend_in_tiles(*half, scale=query.shape[-1] ** -0.5).astype(np.float64)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize(("size", "most"), [(1.0, 0.004), (8.0, 0.008), (30.0, 0.013)])
def test_bf16_rounds_little(size: float, most: float) -> None:
    """Against fp64 on the inputs as bf16 holds them. The kernel rounds queries once more, multiplied by the scale."""
    own = [draw(1, 1, length, 128, seed=seed) for seed, length in enumerate((128, 600, 600))]
    query, key, value = (np.asarray(jnp.asarray(x, jnp.bfloat16), np.float32) for x in (size * own[0], *own[1:]))
    assert measure_bf16(query, key, value, attend_exactly(query, key, value, scale=128**-0.5)) < most


def test_keys_that_have_much_in_common_are_rounded_less_when_centered() -> None:
    query, key, value = (draw(1, 1, length, 128, seed=seed) for seed, length in enumerate((128, 600, 600)))
    key += 20 * draw(1, 1, 1, 128, seed=3)
    expected = attend_exactly(query, key, value, scale=128**-0.5)
    centered = np.asarray(center_keys(jnp.asarray(key[0])))[None]
    before, after = (measure_bf16(query, one, value, expected) for one in (key, centered))
    assert after < 0.004 < 0.02 < before


@pytest.mark.parametrize(
    ("chip", "mebibytes"),
    [("TPU v3", 12), ("TPU v4", 12), ("TPU v5", 48), ("TPU v5 lite", 96), ("TPU v6 lite", 96), ("TPU v9", 12)],
)
def test_a_chip_that_is_not_known_is_taken_for_a_small_one(chip: str, mebibytes: int) -> None:
    assert find_vmem_bytes(chip) == mebibytes * 2**20


@pytest.mark.parametrize("length", [1024, 4096, 4608, 32_760, 75_600])
def test_tiles_fill_up_little(length: int) -> None:
    tiles = choose_tiles(length, length, group=1, width=128, itemsize=2, vmem_bytes=find_vmem_bytes("TPU v6 lite"))
    assert -length % tiles.queries <= 0.04 * length
    assert tiles.queries <= 2048
    assert tiles.keys <= 32768


def test_less_room_makes_tiles_of_keys_shorter_before_those_of_queries() -> None:
    sizes = {"group": 1, "width": 128, "itemsize": 2}
    tiles = choose_tiles(75_600, 75_600, vmem_bytes=find_vmem_bytes("TPU v4"), **sizes)
    assert tiles == Tiles(queries=2048, keys=4096, step=1024)


def test_what_is_done_beside_the_products_counts_as_keys() -> None:
    """A row of Wan's 720p takes 268 200 cycles, one of a text of 226 keys 1800: added up from the schedule's parts."""
    wan = choose_tiles(75_600, 75_600, group=1, width=128, itemsize=2, vmem_bytes=find_vmem_bytes("TPU v6 lite"))
    loop_cycles = 1827 / 512  # of a key, for 2048 queries
    beside = 3 * 170 + 2 * 170 + 1090
    assert count_keys(wan, 75_600) * loop_cycles == pytest.approx(73 * 3589 + 4291 + beside, rel=0.005)
    near = Tiles(queries=1280, keys=4096, step=512)
    assert count_keys(near, 75_600, 4096) < count_keys(near, 75_600) / 3
    text = Tiles(queries=1280, keys=256, step=256)
    assert count_keys(text, 226) * loop_cycles * text.queries / 2048 == pytest.approx(1800, rel=0.15)


@pytest.mark.parametrize("chip", ["TPU v4", "TPU v5", "TPU v5 lite", "TPU v6 lite"])
@pytest.mark.parametrize("length", [1024, 4608, 75_600])
@pytest.mark.parametrize(
    "heads",
    [
        {"group": 1, "width": 128, "itemsize": 2},
        {"group": 2, "width": 64, "itemsize": 2},
        {"group": 8, "width": 48, "itemsize": 2},
        {"group": 1, "width": 512, "itemsize": 4},  # SDXL's autoencoder
    ],
)
def test_tiles_fit_the_chip(chip: str, length: int, heads: dict[str, int]) -> None:
    room = find_vmem_bytes(chip)
    assert count_vmem_bytes(choose_tiles(length, length, vmem_bytes=room, **heads), **heads) <= room


@pytest.mark.parametrize("wrong", [{"step": 100}, {"keys": 300}, {"queries": 16}])
def test_tiles_that_do_not_fit_the_hardware_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="divides keys"):
        Tiles(**({"queries": 128, "keys": 256, "step": 128} | wrong))
