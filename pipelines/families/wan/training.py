"""How Wan learns: one transformer, or both experts, on rows of a clip's latents and of UMT5's embeddings.

Only text to video is trained; models that take a first picture as further channels are refused. Wan 2.2 TI2V takes it
in place of the first latent frame, and learns as it makes videos without one.
"""

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanTransformerBlock
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.errors import ModelError
from pipelines.families.trainable import Denoiser, FlowLearner, Rows
from pipelines.families.wan import loras
from pipelines.families.wan.attention import RotaryAttention
from pipelines.families.wan.causal import encode_frames
from pipelines.families.wan.convolutions import split_convolutions
from pipelines.families.wan.decode import read_statistics
from pipelines.families.wan.parts import EXPERTS, Parts
from pipelines.families.wan.tokens import EvenTokens
from pipelines.loras.file_names import FileNames
from pipelines.messages import say
from pipelines.models.catalog import Model, Shape
from pipelines.runtime.bridge.modules import SCAN_FROM, TracedModule, parameters_on_meta, repeat_for_gradient
from pipelines.runtime.devices.sharding import split_pictures
from pipelines.runtime.kernels.convolution import PictureAxes
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.weights.components import abstract_input, abstract_weights, read_json
from pipelines.stages import Embeddings

TEXT_LENGTH = 512
"""Only image tokens before the text's would need the model's own length, and those models are refused."""


class WanLearner(FlowLearner):
    """See `trainable.Learner`."""

    spread = "shifted"
    timestep_scale = 1000.0
    size_multiple = 16
    vmem_share = 0.5  # 14B's step takes an eighth less than with the usual one (plan/TRIED.md)
    vmem_share_of_all = 0.5
    exchanged_apart = ("lora",)  # whose small products a kernel makes

    def list_denoisers(self, folder: Path, scheduler_config: Mapping[str, Any]) -> tuple[Denoiser, ...]:  # noqa: ARG002
        boundary = read_json(folder / "model_index.json").get("boundary_ratio")
        if boundary is None:
            return (Denoiser(component=EXPERTS[0]),)
        return (
            Denoiser(component=EXPERTS[0], low=boundary, ending="_high_noise"),
            Denoiser(component=EXPERTS[1], high=boundary, ending="_low_noise"),
        )

    def check(self, folder: Path) -> None:
        config = read_json(folder / EXPERTS[0] / "config.json")
        if config["in_channels"] != config["out_channels"]:
            raise ModelError(
                say("{folder} starts from a picture, and such models are not trained here.", folder=folder.name),
                advice=say("Train the text-to-video model of its size; its LoRA mostly works for both."),
            )

    def find_size_multiple(self, folder: Path) -> int:
        scale = read_json(folder / "vae" / "config.json").get("scale_factor_spatial", 8)
        _, *patch = read_json(folder / EXPERTS[0] / "config.json").get("patch_size", (1, 2, 2))
        return math.lcm(self.size_multiple, *(scale * side for side in patch))

    def build_denoiser(self, folder: Path, component: str) -> Any:
        self.check(folder)
        config = read_json(folder / component / "config.json")
        with parameters_on_meta():
            transformer = cast(Any, WanTransformer3DModel.from_config(config))
        transformer.set_attn_processor(RotaryAttention(text_length=TEXT_LENGTH))
        return transformer

    def stack_layers(self, module: Any, mesh: Mesh) -> None:
        if len(module.blocks) >= SCAN_FROM:
            module.blocks = EvenTokens(module.blocks, mesh=mesh)
        repeat_for_gradient(module, (WanTransformerBlock,))

    def name_for_all(self, learned: Collection[str], layers: Collection[str]) -> FileNames:  # noqa: ARG002
        return loras.name_for_all(learned)

    def name_for_kohya(self, learned: Collection[str], layers: Collection[str]) -> FileNames:  # noqa: ARG002
        return loras.name_for_kohya(learned)

    def describe_base(self, folder: Path, scheduler_config: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        return {"ss_base_model_version": "wan", "modelspec.architecture": "wan2.1/lora"}

    def find_shift(self, model: Model, folder: Path, shape: Shape) -> float:
        config = read_json(folder / "scheduler" / "scheduler_config.json")
        return float(model.choose_flow_shift(str(shape)) or config.get("flow_shift", 1.0))

    def build_autoencoder(self, folder: Path) -> TracedModule:
        with parameters_on_meta():
            vae = cast(Any, AutoencoderKLWan.from_config(read_json(folder / "vae" / "config.json")))
        split_convolutions(vae)
        return TracedModule(vae)

    def choose_autoencoder_dtype(self, autoencoder: TracedModule, dtype: Any) -> Any:  # noqa: ARG002
        return jnp.float32

    def build_latents_program(self, autoencoder: TracedModule, weights: Rows, mesh: Mesh, shape: Shape) -> Program:
        scale = autoencoder.module.config.scale_factor_spatial
        sides = split_pictures(mesh, None, height=shape.height // scale, width=shape.width // scale)
        sharding = NamedSharding(mesh, PartitionSpec(None, None, None, *sides))
        mean, deviation = read_statistics(autoencoder)

        def encode(weights: Mapping[str, jax.Array], pixels_BCFHW: jax.Array) -> dict[str, jax.Array]:
            pixels = jax.lax.with_sharding_constraint(pixels_BCFHW, sharding)
            latents = encode_frames(autoencoder, weights, pixels, pictures=PictureAxes.of_videos(sharding))
            return {"latents": (latents.astype(jnp.float32) - mean) / deviation}

        size = (1, 3, shape.frames, shape.height, shape.width)
        return Program(
            key=("latents", shape),
            function=encode,
            arguments=(abstract_weights(weights), abstract_input(mesh, size, jnp.float32)),
            out_shardings={"latents": NamedSharding(mesh, PartitionSpec())},
        )

    def describe_rows(self, parts: Parts, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"latents": parts.latents_CTHW(shape), "prompt_embeds": (parts.text_length, parts.text_width)}

    def take_text(self, parts: Parts, embeddings: Embeddings, *, is_empty: bool) -> Rows:  # noqa: ARG002
        return {"prompt_embeds": np.asarray(embeddings["prompt_embeds"])[0]}

    def predict(
        self, call: Callable[..., Any], noisy: jax.Array, timesteps: jax.Array, rows: Rows, dtype: Any
    ) -> jax.Array:
        (output,) = call(
            noisy.astype(dtype),
            timesteps,
            encoder_hidden_states=rows["prompt_embeds"].astype(dtype),
            return_dict=False,
        )
        return output


LEARNER = WanLearner()
