"""Tokens that fill up a device's tiles change nothing for the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import WanTransformer3DModel

from pipelines.families.wan.attention import RotaryAttention
from pipelines.families.wan.tokens import EvenTokens
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh

LAYERS, TEXT_LENGTH = 2, 5


def build() -> WanTransformer3DModel:
    torch.manual_seed(0)
    return WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=24,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=16,
        ffn_dim=32,
        num_layers=LAYERS,
        cross_attn_norm=True,
        rope_max_seq_len=32,
    )


@pytest.mark.parametrize("has_own_timesteps", [False, True], ids=["one timestep", "each its own"])
def test_tokens_that_fill_up_change_nothing(has_own_timesteps: bool) -> None:  # noqa: FBT001 - pytest's
    """3 x 3 x 5 tokens become 128 on eight devices."""
    rng = np.random.default_rng(0)
    latents, text = rng.standard_normal((1, 4, 3, 6, 10)), rng.standard_normal((1, TEXT_LENGTH, 16))
    timestep = rng.uniform(0, 1000, (1, 45)) if has_own_timesteps else np.array([500.0])
    inputs = [np.float32(one) for one in (latents, timestep, text)]
    plain = build()
    with torch.no_grad():
        (expected,) = plain(*map(torch.from_numpy, inputs), return_dict=False)
    stored = {name: jnp.asarray(value.numpy()) for name, value in plain.state_dict().items()}
    model = build()
    model.blocks = EvenTokens(model.blocks, mesh=build_mesh("sp=8"))
    model.set_attn_processor(RotaryAttention(text_length=TEXT_LENGTH))
    module = TracedModule(model)
    stacked = {
        name: jnp.stack([stored[name.replace("every_layer", str(layer))] for layer in range(LAYERS)])
        if "every_layer" in name
        else stored[name]
        for name in module.parameter_shapes()
    }
    run = jax.jit(lambda weights, *inputs: module.call(weights, *inputs, return_dict=False))
    (found,) = run(stacked | module.constant_buffers(), *map(jnp.asarray, inputs))
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-5)
