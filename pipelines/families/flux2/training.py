"""How FLUX.2 learns: its transformer on rows of patchified latents and of the language model's embeddings.

Training does not split heads over `tp`: the module is diffusers' own, whole on every device, its batch split.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
from diffusers.models.transformers.transformer_flux2 import (
    Flux2FeedForward,
    Flux2ParallelSelfAttention,
    Flux2SingleTransformerBlock,
    Flux2TransformerBlock,
)
from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.families.flux2 import loras
from pipelines.families.flux2.attention import set_processors
from pipelines.families.flux2.denoise import make_image_ids, make_text_ids, pack, unpack
from pipelines.families.flux2.parts import PATCH, Parts
from pipelines.families.flux2.references import build_reference_program
from pipelines.families.flux2.sharding import scan_layers
from pipelines.families.flux2.written import write_once
from pipelines.families.trainable import Cut, FlowLearner, Rows
from pipelines.loras.file_names import FileNames
from pipelines.models.catalog import Model, Shape
from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta, repeat_for_gradient
from pipelines.runtime.devices.sharding import split_pictures
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.weights.components import abstract_input, abstract_weights, read_json
from pipelines.stages import Embeddings

GUIDANCE = 1.0
"""What dev's guidance embedding is told while training: that of the command lines in diffusers' README.

Their script, train_dreambooth_lora_flux2.py, takes 3.5 where `--guidance_scale` is left out.
"""
# A size's heads -> what musubi-tuner and ModelSpec call it.
_BASES = {
    24: ("flux_2_klein_4b", "Flux.2-klein-4b"),
    32: ("flux_2_klein_9b", "Flux.2-klein-9b"),
    48: ("flux_2_dev", "Flux.2-dev"),
}


class Flux2Learner(FlowLearner):
    """See `trainable.Learner`."""

    vmem_share_of_all = 0.375
    remat_of_all = "attention"

    def build_denoiser(self, folder: Path, component: str) -> Any:
        with parameters_on_meta():
            transformer = Flux2Transformer2DModel.from_config(read_json(folder / component / "config.json"))
        set_processors(transformer)
        write_once(transformer)
        return transformer

    def stack_layers(self, module: Any, mesh: Any) -> None:  # noqa: ARG002
        scan_layers(module)
        repeat_for_gradient(module, (Flux2TransformerBlock, Flux2SingleTransformerBlock))

    def name_for_all(self, learned: Collection[str], layers: Collection[str]) -> FileNames:  # noqa: ARG002
        return loras.name_for_all(learned)

    def name_for_kohya(self, learned: Collection[str], layers: Collection[str]) -> FileNames:  # noqa: ARG002
        return loras.name_for_kohya(learned)

    def describe_base(self, folder: Path, scheduler_config: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        heads = read_json(folder / "transformer" / "config.json")["num_attention_heads"]
        version, architecture = _BASES.get(heads, ("flux_2", "Flux.2"))
        return {"ss_base_model_version": version, "modelspec.architecture": f"{architecture}/lora"}

    def list_cuts(self, module: Any) -> Mapping[str, Cut]:
        cuts: dict[str, Cut] = {}
        for name, one in module.named_modules():
            if isinstance(one, Flux2ParallelSelfAttention):
                halves = (one.mlp_hidden_dim,) * one.mlp_mult_factor
                cuts[f"{name}.to_qkv_mlp_proj"] = Cut(outputs=(one.inner_dim,) * 3 + halves)
                cuts[f"{name}.to_out"] = Cut(inputs=(one.inner_dim, one.mlp_hidden_dim))
            elif isinstance(one, Flux2FeedForward):
                cuts[f"{name}.linear_in"] = Cut(outputs=(one.linear_in.out_features // 2,) * 2)
        return cuts

    def find_shift(self, model: Model, folder: Path, shape: Shape) -> float:
        scale = 2 ** (len(read_json(folder / "vae" / "config.json")["block_out_channels"]) - 1) * PATCH
        tokens = (shape.height // scale) * (shape.width // scale)
        return float(np.exp(compute_empirical_mu(image_seq_len=tokens, num_steps=model.steps)))

    def build_autoencoder(self, folder: Path) -> TracedModule:
        with parameters_on_meta():
            vae: Any = AutoencoderKLFlux2.from_config(read_json(folder / "vae" / "config.json"))
        split_halvings(vae)
        return TracedModule(vae)

    def build_latents_program(self, autoencoder: TracedModule, weights: Rows, mesh: Mesh, shape: Shape) -> Program:
        scale = 2 ** (len(autoencoder.module.config.block_out_channels) - 1)
        sides = split_pictures(mesh, None, height=shape.height // scale, width=shape.width // scale)
        encode = build_reference_program(
            autoencoder,
            dtype=next(iter(weights.values())).dtype,
            sharding=NamedSharding(mesh, PartitionSpec(None, None, *sides)),
        )
        return Program(
            key=("latents", shape),
            function=lambda weights, pixels: {"latents": encode(weights, pixels)},
            arguments=(abstract_weights(weights), abstract_input(mesh, (1, 3, shape.height, shape.width), jnp.float32)),
            out_shardings={"latents": NamedSharding(mesh, PartitionSpec())},
        )

    def describe_rows(self, parts: Parts, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"latents": parts.latents_CHW(shape), "prompt_embeds": (parts.text_length, parts.text_width)}

    def take_text(self, parts: Parts, embeddings: Embeddings, *, is_empty: bool) -> Rows:  # noqa: ARG002
        return {"prompt_embeds": np.asarray(embeddings["prompt_embeds"])[0]}

    def predict(
        self, call: Callable[..., Any], noisy: jax.Array, timesteps: jax.Array, rows: Rows, dtype: Any
    ) -> jax.Array:
        _, _, height, width = noisy.shape
        text = rows["prompt_embeds"].astype(dtype)
        (output,) = call(
            hidden_states=pack(noisy).astype(dtype),
            encoder_hidden_states=text,
            timestep=timesteps,
            img_ids=jnp.asarray(make_image_ids(height, width)),
            txt_ids=jnp.asarray(make_text_ids(text.shape[1])),
            guidance=jnp.full(len(noisy), GUIDANCE),
            return_dict=False,
        )
        return unpack(output.astype(jnp.float32), height, width)


LEARNER = Flux2Learner()
