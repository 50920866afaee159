"""Transformers as TPUs train them, their kernels interpreted: outputs and gradients are those of diffusers."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import Flux2Transformer2DModel, WanTransformer3DModel

from pipelines.families.flux2.attention import set_processors
from pipelines.families.flux2.written import write_once
from pipelines.families.wan.attention import RotaryAttention
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.attention_axes import AttentionAxes

TEXT = 5


def build_flux2() -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """Returns a model as diffusers has it, the same as it is traced, and what both are called with: two pictures."""

    def build() -> Any:
        torch.manual_seed(0)
        return Flux2Transformer2DModel(
            in_channels=8, num_layers=1, num_single_layers=1, attention_head_dim=128, num_attention_heads=2,
            joint_attention_dim=16, axes_dims_rope=(32, 32, 32, 32), guidance_embeds=False,
        )  # fmt: skip

    ours = build()
    set_processors(ours)
    write_once(ours)
    places = torch.arange(12)
    call = {
        "hidden_states": torch.randn(2, 12, 8),
        "encoder_hidden_states": torch.randn(2, TEXT, 16),
        "timestep": torch.tensor([0.25, 0.75]),
        "img_ids": torch.stack([0 * places, places // 4, places % 4, 0 * places], -1).float(),
        "txt_ids": torch.nn.functional.pad(torch.arange(TEXT)[:, None], (3, 0)).float(),
    }
    return build(), ours, call


def build_wan() -> tuple[Any, Any, dict[str, torch.Tensor]]:
    def build() -> Any:
        torch.manual_seed(0)
        return WanTransformer3DModel(
            patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=128, in_channels=4, out_channels=4,
            text_dim=16, freq_dim=32, ffn_dim=64, num_layers=1,
        )  # fmt: skip

    ours = build()
    ours.set_attn_processor(RotaryAttention(text_length=TEXT))
    call = {
        "hidden_states": torch.randn(2, 4, 3, 4, 6),
        "timestep": torch.tensor([100.0, 600.0]),
        "encoder_hidden_states": torch.randn(2, TEXT, 16),
    }
    return build(), ours, call


@pytest.mark.parametrize(
    ("build", "kernel", "calls"), [(build_flux2, "head_norm_gradient", 6), (build_wan, "heads_norm_gradient", 2)]
)
def test_outputs_and_gradients_are_those_of_diffusers(build: Any, kernel: str, calls: int) -> None:
    """Queries and keys of FLUX.2's text and picture, and of its second kind of layer; those of Wan's self-attention."""
    reference, ours, call = build()
    for name, weight in reference.named_parameters():
        if "norm_" in name and name.endswith("weight"):  # all ones from the start
            with torch.no_grad():
                weight.uniform_(-1, 2)
    expected = reference(**call, return_dict=False)[0]
    counted = torch.randn(expected.shape)
    (expected * counted).sum().backward()
    normed = {name: weight for name, weight in reference.named_parameters() if "attn" in name and "norm_" in name}
    assert len(normed) >= 2

    traced = TracedModule(ours)
    weights = {name: jnp.asarray(value.detach().numpy()) for name, value in reference.named_parameters()}
    axes = AttentionAxes(mesh=build_mesh("dp=2", devices=jax.devices()[:2]), rows="dp", learns=True, interprets=True)
    constants, wanted = traced.constant_buffers(), counted.numpy()
    inputs = {name: jnp.asarray(value.numpy()) for name, value in call.items()}

    def total(weights: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        out = traced.call(weights | constants, **inputs, return_dict=False, attention=axes)[0]
        return (out * wanted).sum(), out

    differentiate = jax.grad(total, has_aux=True)
    kernels = re.findall(r"name=(heads?_norm_gradient)\b", str(jax.make_jaxpr(differentiate)(weights)))
    assert kernels == [kernel] * calls
    gradients, found = jax.jit(differentiate)(weights)
    np.testing.assert_allclose(found, expected.detach(), atol=2e-5)
    for name, weight in reference.named_parameters():
        if weight.grad is not None:
            largest = float(weight.grad.abs().max())
            np.testing.assert_allclose(gradients[name], weight.grad, atol=1e-5 + 1e-4 * largest, err_msg=name)


@pytest.mark.parametrize(("learns", "count"), [(True, 8), (False, 0)])
def test_what_several_products_take_is_written_once_where_a_gradient_is_wanted(*, learns: bool, count: int) -> None:
    """What goes into attention and feed-forward of text and picture, and into the second kind of layer; gates."""
    reference, ours, call = build_flux2()
    traced = TracedModule(ours)
    weights = {name: jnp.asarray(value.detach().numpy()) for name, value in reference.named_parameters()}
    axes = AttentionAxes(mesh=build_mesh("dp=1", devices=jax.devices()[:1]), rows="dp", learns=learns, interprets=True)
    inputs = {name: jnp.asarray(value.numpy()) for name, value in call.items()}
    constants = traced.constant_buffers()
    run = lambda: traced.call(weights | constants, **inputs, return_dict=False, attention=axes)[0]  # noqa: E731
    assert str(jax.make_jaxpr(run)()).count("optimization_barrier") == count
