"""An autoencoder of pictures through the kernels that TPU takes, interpreted, gives what diffusers' own gives.

But for products in bf16, with the pictures split over a mesh.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import PartitionSpec as P

from pipelines.runtime.bridge.autoencoder import HalvingConv2d, prepare_pictures, split_halvings
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.convolution import PictureAxes
from tests.pipelines.families.flux2.conftest import make_vae

MAX_RELATIVE_ERROR = 0.015
KERNEL = "name=convolve_taps"


def encode(vae: Any, pixels: Any) -> Any:
    return vae.encode(pixels, return_dict=False)[0].mode()


def decode(vae: Any, latents: Any) -> Any:
    return vae.decode(latents, return_dict=False)[0]


@pytest.mark.parametrize(
    ("run", "part", "shape"),
    [(encode, "encoder", (1, 3, 32, 64)), (decode, "decoder", (1, 4, 8, 16))],
    ids=["encode", "decode"],
)
def test_pictures_over_a_mesh_are_diffusers_own(run: Any, part: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    vae = make_vae().eval()
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = run(vae, inputs).numpy()
    weights = {name: jnp.asarray(value.numpy()) for name, value in vae.state_dict().items()}
    split_halvings(vae)
    assert sum(isinstance(one, HalvingConv2d) for one in vae.modules()) == 2
    axes = PictureAxes(mesh=build_mesh("dp=2,sp=2"), spec=P(None, None, None, ("dp", "sp")), interprets=True)

    @jax.jit
    def call(weights: Any, inputs: jax.Array) -> jax.Array:
        call, prepared = prepare_pictures(TracedModule(vae), weights, axes)
        return call(prepared, inputs, method=run)

    traced = call.trace(weights, jnp.asarray(inputs.numpy()))
    convolutions = [one for one in vae.get_submodule(part).modules() if getattr(one, "kernel_size", None) == (3, 3)]
    assert str(traced.jaxpr).count(KERNEL) == len(convolutions)
    found = np.asarray(traced.lower().compile()(weights, jnp.asarray(inputs.numpy())))
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < MAX_RELATIVE_ERROR
