"""FLUX.2, Z-Image and Wan: the loss and every gradient of diffusers' modules in PyTorch, on the same noise and sigmas.

The reference is diffusers: its modules, its packing and ids, and the noise and timesteps of its flow matching
scheduler, with the loss that its training scripts take without weighting.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Transformer2DModel,
    WanTransformer3DModel,
    ZImageTransformer2DModel,
)
from jax.sharding import PartitionSpec
from torch.nn import functional

from pipelines.families.flux2.training import LEARNER as FLUX2
from pipelines.families.wan.training import LEARNER as WAN
from pipelines.families.z_image.training import LEARNER as Z_IMAGE
from pipelines.runtime.bridge.modules import LayerPlacement, TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.sharding import STACK
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.weights.resolve import split_layers
from pipelines.training.engine.objective import Flow, sum_errors
from pipelines.training.results.export import split_stacks

SHIFT = 3.0
GUIDANCE = 1.0  # `--guidance_scale=1` of the command lines in diffusers' README_flux2.md
TEXT = 8
FLUX2_SIZES = {
    "in_channels": 16, "num_layers": 1, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 4,
    "joint_attention_dim": 32, "timestep_guidance_channels": 32, "axes_dims_rope": (4, 4, 4, 4),
}  # fmt: skip
WAN_SIZES = {
    "num_attention_heads": 2, "attention_head_dim": 24, "in_channels": 4, "out_channels": 4, "text_dim": 16,
    "freq_dim": 16, "ffn_dim": 32, "num_layers": 2, "cross_attn_norm": True, "rope_max_seq_len": 32,
}  # fmt: skip

Z_IMAGE_SIZES = {
    "in_channels": 4, "dim": 48, "n_layers": 5, "n_refiner_layers": 1, "n_heads": 3, "n_kv_heads": 3,
    "cap_feat_dim": 16, "axes_dims": [4, 6, 6], "axes_lens": [80, 16, 16],
}  # fmt: skip


def draw(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compute_here(
    learner: Any, torch_module: Any, folder: Path, rows: Mapping[str, np.ndarray], *, noise: np.ndarray, sigmas: Any
) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the loss and gradients, by checkpoints' names, as a training's step computes them."""
    (folder / "transformer").mkdir()
    (folder / "transformer" / "config.json").write_text(json.dumps(dict(torch_module.config)), "utf-8")
    (folder / "model_index.json").write_text("{}", "utf-8")
    mesh = build_mesh("dp=1")
    module = learner.build_denoiser(folder, "transformer")
    learner.stack_layers(module, mesh)
    traced = TracedModule(module)
    stored = {name: one.detach().numpy() for name, one in torch_module.named_parameters()}
    weights = {}
    for name, shape in traced.parameter_shapes().items():
        layers = [stored[one] for one in split_layers(name, shape)]
        weights[name] = jnp.asarray(np.stack(layers) if STACK in name else layers[0])
    flow = Flow(timestep_scale=learner.timestep_scale)
    noised = flow.mix(jnp.asarray(rows["latents"]), jnp.asarray(noise), jnp.asarray(sigmas))

    def lose(weights: Any) -> jax.Array:
        def call(*args: Any, **options: Any) -> Any:
            return traced.call(
                weights | traced.constant_buffers(),
                *args,
                attention=AttentionAxes(mesh=mesh, rows="dp", learns=True),
                running_layer=LayerPlacement(mesh=mesh, rules=((r"", PartitionSpec()),)),
                **options,
            )

        given = {name: jnp.asarray(value) for name, value in rows.items()}
        prediction = learner.predict(call, noised.noisy, noised.timesteps, given, jnp.float32)
        return sum_errors(prediction, noised, jnp.ones(len(sigmas)))[0] / len(sigmas)

    loss, gradients = jax.jit(jax.value_and_grad(lose))(weights)
    return float(loss), split_stacks({name: np.asarray(value) for name, value in gradients.items()})


def compare(module: Any, theirs: torch.Tensor, ours: float, gradients: Mapping[str, np.ndarray]) -> None:
    theirs.backward()
    expected = {name: one.grad.numpy() for name, one in module.named_parameters() if one.grad is not None}
    assert ours == pytest.approx(theirs.item(), rel=1e-5)
    assert expected.keys() <= gradients.keys()
    found, wanted = (np.concatenate([one[name].ravel() for name in sorted(expected)]) for one in (gradients, expected))
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 1e-4


def noise_like_diffusers(latents: np.ndarray, noise: np.ndarray, steps: list[int]) -> tuple[Any, torch.Tensor, Any]:
    """Returns noisy latents, timesteps of 1000, and sigmas, of diffusers' scheduler at these steps of its training."""
    scheduler: Any = FlowMatchEulerDiscreteScheduler(shift=SHIFT)
    timesteps = scheduler.timesteps[steps]
    noisy = scheduler.scale_noise(torch.from_numpy(latents), timesteps, torch.from_numpy(noise))
    return noisy, timesteps, scheduler.sigmas[steps].numpy()


@pytest.mark.parametrize("has_guidance", [False, True], ids=["klein", "dev"])
def test_flux2_loses_what_diffusers_module_does(tmp_path: Path, *, has_guidance: bool) -> None:
    torch.manual_seed(0)
    module: Any = Flux2Transformer2DModel(**FLUX2_SIZES, guidance_embeds=has_guidance)
    latents, noise, text = draw(2, 16, 4, 6, seed=1), draw(2, 16, 4, 6, seed=2), draw(2, TEXT, 32, seed=3)
    noisy, timesteps, sigmas = noise_like_diffusers(latents, noise, [120, 810])
    pipeline: Any = Flux2KleinPipeline
    ids = pipeline._prepare_latent_ids(torch.from_numpy(latents))
    (prediction,) = module(
        hidden_states=pipeline._pack_latents(noisy),
        timestep=timesteps / 1000,
        guidance=torch.full((2,), GUIDANCE) if has_guidance else None,
        encoder_hidden_states=torch.from_numpy(text),
        txt_ids=pipeline._prepare_text_ids(torch.from_numpy(text)),
        img_ids=ids,
        return_dict=False,
    )
    prediction = pipeline._unpack_latents_with_ids(prediction, ids)
    theirs = functional.mse_loss(prediction, torch.from_numpy(noise - latents))

    ours, gradients = compute_here(
        FLUX2, module, tmp_path, {"latents": latents, "prompt_embeds": text}, noise=noise, sigmas=sigmas
    )

    compare(module, theirs, ours, gradients)


def test_z_image_loses_what_diffusers_module_does(tmp_path: Path) -> None:
    """Captions have lengths of their own: 40 words and 8 learnt tokens more, and 7 and 25."""
    torch.manual_seed(0)
    module: Any = ZImageTransformer2DModel(**Z_IMAGE_SIZES)
    torch.nn.init.normal_(module.x_pad_token)
    torch.nn.init.normal_(module.cap_pad_token)
    latents, noise, text = draw(2, 4, 8, 12, seed=1), draw(2, 4, 8, 12, seed=2), draw(2, 64, 16, seed=3)
    lengths = (40, 7)
    for row, length in enumerate(lengths):
        text[row, length:] = 0
    noisy, timesteps, sigmas = noise_like_diffusers(latents, noise, [120, 810])
    (predictions,) = module(
        list(noisy.unsqueeze(2)),
        (1000 - timesteps) / 1000,
        [torch.from_numpy(one[:length]) for one, length in zip(text, lengths, strict=True)],
        return_dict=False,
    )
    prediction = -torch.stack(predictions).squeeze(2)
    theirs = functional.mse_loss(prediction, torch.from_numpy(noise - latents))

    rows = {"latents": latents, "prompt_embeds": text}
    ours, gradients = compute_here(Z_IMAGE, module, tmp_path, rows, noise=noise, sigmas=sigmas)

    compare(module, theirs, ours, gradients)


@pytest.mark.parametrize("has_timestep_of_each_token", [False, True])
def test_wan_loses_what_diffusers_module_does(tmp_path: Path, *, has_timestep_of_each_token: bool) -> None:
    """As WanPipeline asks Wan 2.2 TI2V without a picture, where every token has the timestep of its clip."""
    torch.manual_seed(0)
    module: Any = WanTransformer3DModel(**WAN_SIZES)
    latents, noise, text = draw(2, 4, 3, 4, 6, seed=1), draw(2, 4, 3, 4, 6, seed=2), draw(2, 512, 16, seed=3)
    noisy, timesteps, sigmas = noise_like_diffusers(latents, noise, [120, 810])
    asked = timesteps[:, None].expand(-1, 3 * 2 * 3) if has_timestep_of_each_token else timesteps
    (prediction,) = module(noisy, asked, encoder_hidden_states=torch.from_numpy(text), return_dict=False)
    theirs = functional.mse_loss(prediction, torch.from_numpy(noise - latents))

    ours, gradients = compute_here(
        WAN, module, tmp_path, {"latents": latents, "prompt_embeds": text}, noise=noise, sigmas=sigmas
    )

    compare(module, theirs, ours, gradients)
