"""A linear map from latents to colours: fitted, stored, and drawn as a small uint8 picture."""

from pathlib import Path

import jax
import numpy as np
import pytest

from pipelines.runtime.sampling.preview import SDXL_LATENTS_TO_RGB, LatentsToRgb, fit_map, read_map, write_map

MAP = LatentsToRgb(
    matrix=np.array([[0.3, 0.0, 0.1], [0.0, 0.4, 0.0], [-0.1, 0.0, 0.2], [0.2, -0.3, 0.0]], np.float32),
    bias=np.array([0.1, -0.2, 0.0], np.float32),
)


@pytest.fixture
def latents() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, 4, 5, 7)).astype(np.float32)


def test_a_preview_is_small_and_in_bytes(latents: np.ndarray) -> None:
    picture = jax.jit(MAP.draw)(latents)
    assert (picture.shape, picture.dtype) == ((3, 5, 7, 3), np.uint8)


def test_colours_beyond_the_range_are_clipped() -> None:
    loud = np.full((1, 4, 2, 2), 50, np.float32) * np.sign(MAP.matrix[:, :1, None])
    assert jax.jit(MAP.draw)(loud)[0, 0, 0, 0] == 255
    assert jax.jit(MAP.draw)(-loud)[0, 0, 0, 0] == 0


def test_a_linear_autoencoder_is_fitted_exactly(latents: np.ndarray) -> None:
    """Pictures 8 times as large, made by the map itself plus detail that averages out in each square."""
    colours = np.einsum("bchw,cr->bhwr", latents * 0.5, MAP.matrix) + MAP.bias
    detail = np.tile(np.array([[1.0, -1.0], [-1.0, 1.0]]), (20, 28))[None, ..., None]
    pixels = (np.kron(colours, np.ones((1, 8, 8, 1))) + 1) * 127.5 + detail
    found = fit_map(latents * 0.5, pixels)
    np.testing.assert_allclose(found.matrix, MAP.matrix, atol=1e-5)
    np.testing.assert_allclose(found.bias, MAP.bias, atol=1e-5)


def test_a_latent_may_draw_a_square_of_pixels(latents: np.ndarray) -> None:
    """Every latent stands for 8 x 8 pixels, of which each quarter has a colour of its own."""
    rng = np.random.default_rng(1)
    matrix, bias = rng.normal(size=(4, 12)) * 0.1, rng.normal(size=12) * 0.1
    colours = (np.einsum("bchw,cr->bhwr", latents, matrix) + bias).reshape(3, 5, 7, 2, 2, 3)
    small = colours.transpose(0, 1, 3, 2, 4, 5).reshape(3, 10, 14, 3)
    found = fit_map(latents, (np.kron(small, np.ones((1, 4, 4, 1))) + 1) * 127.5, cells=2)
    drawn = np.asarray(jax.jit(found.draw)(latents))
    np.testing.assert_allclose(drawn, (np.clip(small / 2 + 0.5, 0, 1) * 255).round(), atol=1)


def test_a_stored_map_reads_back(tmp_path: Path) -> None:
    write_map(MAP, tmp_path)
    found = read_map(tmp_path)
    np.testing.assert_allclose(found.matrix, MAP.matrix, atol=1e-5)
    np.testing.assert_allclose(found.bias, MAP.bias, atol=1e-5)


def test_a_model_without_a_map_has_none(tmp_path: Path) -> None:
    assert read_map(tmp_path) is None


def test_sdxls_own_map_shows_zero_latents_as_a_grey() -> None:
    picture = np.asarray(jax.jit(SDXL_LATENTS_TO_RGB.draw)(np.zeros((1, 4, 1, 1), np.float32)))[0, 0, 0]
    assert picture.min() > 100
    assert picture.max() < 160
