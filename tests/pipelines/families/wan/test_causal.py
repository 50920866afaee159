"""The scan over latent frames gives what diffusers' own walk gives, for both kinds of autoencoders, to about 1e-5.

With the kernels that TPU takes, interpreted, on pictures split over a mesh, it is the same but for products in bf16.
"""

import copy
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLWan
from jax.sharding import PartitionSpec as P

from pipelines.families.wan.causal import decode_frames, encode_frames
from pipelines.families.wan.convolutions import split_convolutions
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.convolution import PictureAxes

# Three levels of which two see time, as the last two of the real ones do; 2.2's packs 2 x 2 pixels and has shortcuts.
WAN_2_1 = {
    "base_dim": 8,
    "dim_mult": [1, 2, 2],
    "num_res_blocks": 1,
    "temperal_downsample": [True, True],
    "scale_factor_spatial": 4,
}
WAN_2_2 = WAN_2_1 | {
    "decoder_base_dim": 12,
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 8,
}
# For kernels, which are slow where they are interpreted.
SHALLOW = {"dim_mult": [1, 1], "num_res_blocks": 0, "temperal_downsample": [True]}
KINDS = {
    "2.1": WAN_2_1,
    "2.2": WAN_2_2,
    "2.1, shallow": WAN_2_1 | SHALLOW | {"scale_factor_spatial": 2},
    "2.2, shallow": WAN_2_2 | SHALLOW | {"scale_factor_spatial": 4},
}
DEEP = ("2.1", "2.2")
LATENT_FRAMES = 5
MAX_RELATIVE_ERROR = 0.015  # of products in bf16: measured 0.009 for frames, 0.002 for latents


class Autoencoder:
    """One kind of autoencoder, as diffusers runs it and as we do; with the kernels where `pictures` are told of."""

    def __init__(self, kind: str, *, pictures: PictureAxes | None = None) -> None:
        torch.manual_seed(0)
        self.vae: Any = AutoencoderKLWan(**KINDS[kind], z_dim=4, latents_mean=[0.0] * 4, latents_std=[1.0] * 4).eval()
        ours = copy.deepcopy(self.vae)
        split_convolutions(ours)
        module = TracedModule(ours)
        weights = {name: jnp.asarray(value.numpy()) for name, value in self.vae.state_dict().items()}
        finish = lambda pixels: pixels.swapaxes(1, 2)  # noqa: E731
        self._decode = jax.jit(
            lambda latents: decode_frames(module, weights, latents, finish=finish, pictures=pictures)
        )
        self._encode = jax.jit(lambda pixels: encode_frames(module, weights, pixels, pictures=pictures))

    def decode(self, latents: torch.Tensor) -> np.ndarray:
        """Frames (B, F, 3, height, width)."""
        return np.asarray(self._decode(jnp.asarray(latents.numpy())))

    def encode(self, pixels: torch.Tensor) -> np.ndarray:
        return np.asarray(self._encode(jnp.asarray(pixels.numpy())))

    def describe_decoding(self, latents: torch.Tensor) -> str:
        """The traced program's text."""
        return str(self._decode.trace(jnp.asarray(latents.numpy())).jaxpr)

    def describe_encoding(self, pixels: torch.Tensor) -> str:
        return str(self._encode.trace(jnp.asarray(pixels.numpy())).jaxpr)

    @torch.no_grad
    def decode_in_diffusers(self, latents: torch.Tensor) -> np.ndarray:
        return self.vae.decode(latents, return_dict=False)[0].numpy().swapaxes(1, 2)

    @torch.no_grad
    def encode_in_diffusers(self, pixels: torch.Tensor) -> np.ndarray:
        return self.vae.encode(pixels).latent_dist.mode().numpy()


load = cache(Autoencoder)


def load_split(kind: str) -> Autoencoder:
    """With its pictures' columns over four devices."""
    spec = P(None, None, None, None, ("dp", "sp"))
    return load(kind, pictures=PictureAxes(mesh=build_mesh("dp=2,sp=2"), spec=spec, interprets=True))


def measure_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Of the whole, relative."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("frames", [1, 5, 9, 17])
@pytest.mark.parametrize("kind", DEEP)
def test_decoding_is_diffusers_own(kind: str, frames: int) -> None:
    """Diffusers decodes the first frames alone, the scan all of them: one program for every length."""
    autoencoder = load(kind)
    latents = draw(1, 4, LATENT_FRAMES, 2, 4)
    expected = autoencoder.decode_in_diffusers(latents[:, :, : (frames - 1) // 4 + 1])
    found = autoencoder.decode(latents)
    assert found.shape[1] == 4 * (LATENT_FRAMES - 1) + 1
    np.testing.assert_allclose(found[:, :frames], expected, atol=1e-5)


def test_a_scan_of_one_chunk_is_diffusers_own() -> None:
    latents = draw(2, 4, 2, 2, 2)
    expected = load("2.1").decode_in_diffusers(latents)
    np.testing.assert_allclose(load("2.1").decode(latents), expected, atol=1e-5)


@pytest.mark.parametrize("kind", DEEP)
def test_encoding_is_diffusers_own(kind: str) -> None:
    autoencoder = load(kind)
    scale = autoencoder.vae.config.scale_factor_spatial
    pixels = draw(1, 3, 13, 2 * scale, 4 * scale).clamp(-1, 1)
    np.testing.assert_allclose(autoencoder.encode(pixels), autoencoder.encode_in_diffusers(pixels), atol=1e-5)


def test_a_later_frame_leaves_the_earlier_ones_as_they_are() -> None:
    latents = draw(1, 4, LATENT_FRAMES, 2, 4)
    changed = latents.clone()
    changed[:, :, 3] += 1.0
    difference = np.abs(load("2.1").decode(changed) - load("2.1").decode(latents)).max(axis=(0, 2, 3, 4))
    assert not (difference[:9] > 1e-5).any()
    assert (difference[9:] > 1e-5).all()


@pytest.mark.parametrize("kind", ["2.2, shallow"])
def test_decoding_by_the_kernels_is_diffusers_own(kind: str) -> None:
    autoencoder, latents = load_split(kind), draw(1, 4, 3, 2, 4)
    text = autoencoder.describe_decoding(latents)
    assert "convolve_taps" in text
    assert "double_pixels" in text
    assert "convolve_taps" not in load(kind).describe_decoding(latents)
    expected = autoencoder.decode_in_diffusers(latents)
    assert measure_error(autoencoder.decode(latents), expected) < MAX_RELATIVE_ERROR


@pytest.mark.parametrize("kind", ["2.1, shallow"])
def test_encoding_by_the_kernels_is_diffusers_own(kind: str) -> None:
    autoencoder = load_split(kind)
    scale = autoencoder.vae.config.scale_factor_spatial
    pixels = draw(1, 3, 9, 2 * scale, 4 * scale).clamp(-1, 1)
    assert "convolve_taps" in autoencoder.describe_encoding(pixels)
    expected = autoencoder.encode_in_diffusers(pixels)
    assert measure_error(autoencoder.encode(pixels), expected) < MAX_RELATIVE_ERROR
