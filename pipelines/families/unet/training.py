"""How models with a UNet learn: on rows of latents and of their text encoders' embeddings."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from diffusers import Transformer2DModel, UNet2DConditionModel
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.resnet import ResnetBlock2D
from jax.sharding import Mesh

from pipelines.families import autoencoder_kl
from pipelines.families.trainable import Cut, Denoiser, Rows
from pipelines.families.unet.loras import name_for_kohya
from pipelines.families.unet.parts import Parts
from pipelines.loras.file_names import FileNames
from pipelines.models.catalog import Model, Shape
from pipelines.prompts.emphasis import escape
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta, repeat_for_gradient, scan_if_long
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.weights.components import read_json
from pipelines.stages import Embeddings

_SCAN_FROM = 2
_REPEATED = (ResnetBlock2D, BasicTransformerBlock)


class UNetLearner:
    """See `trainable.Learner`."""

    process = "diffusion"
    spread = "uniform"
    snr_gamma = 5.0
    timestep_scale = 1.0
    size_multiple = 64
    prefix = "unet"
    vmem_share = 0.0
    vmem_share_of_all = 0.0
    remat_of_all = "layers"
    compact_vmem_bytes = 12 * 2**20
    gathers_adapters = True
    exchanged_apart = ("full",)
    gathered_apart: Collection[str] = ("lora", "full")
    sums_apart = True

    def list_denoisers(self, folder: Path, scheduler_config: Mapping[str, Any]) -> tuple[Denoiser, ...]:  # noqa: ARG002
        return (Denoiser(component="unet"),)

    def check(self, folder: Path) -> None:
        """See `Learner`."""

    def find_size_multiple(self, folder: Path) -> int:  # noqa: ARG002
        return self.size_multiple

    def build_denoiser(self, folder: Path, component: str) -> Any:
        with parameters_on_meta():
            return UNet2DConditionModel.from_config(read_json(folder / component / "config.json"))

    def stack_layers(self, module: Any, mesh: Any) -> None:  # noqa: ARG002
        for one in module.modules():
            if isinstance(one, Transformer2DModel):
                transformer = cast(Any, one)
                transformer.transformer_blocks = scan_if_long(transformer.transformer_blocks, at_least=_SCAN_FROM)
        repeat_for_gradient(module, _REPEATED)

    def name_for_all(self, learned: Collection[str], layers: Collection[str]) -> FileNames:
        """See `Learner`; of diffusers' names ComfyUI knows no projections of attention."""
        return self.name_for_kohya(learned, layers)

    def name_for_kohya(self, learned: Collection[str], layers: Collection[str]) -> FileNames:
        return name_for_kohya(learned, layers, is_original=False)

    def list_cuts(self, module: Any) -> Mapping[str, Cut]:  # noqa: ARG002 - gates in halves are slower (plan/TRIED.md)
        return {}

    def find_shift(self, model: Model, folder: Path, shape: Shape) -> float:  # noqa: ARG002 - only flow models have one
        return 1.0

    def build_autoencoder(self, folder: Path) -> TracedModule:
        return autoencoder_kl.build_autoencoder(folder)

    def choose_autoencoder_dtype(self, autoencoder: TracedModule, dtype: Any) -> Any:
        return jnp.float32 if autoencoder.module.config.force_upcast else dtype

    def build_latents_program(self, autoencoder: TracedModule, weights: Rows, mesh: Mesh, shape: Shape) -> Program:
        return autoencoder_kl.describe_latents_program(autoencoder, weights, mesh, shape)

    def describe_rows(self, parts: Parts, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        latents = parts.latents_CHW(shape)
        told = {name: value.shape[1:] for name, value in parts.describe_shape(shape).items()}
        return {"mean": latents, "deviation": latents, **parts.embedding_sizes(1), **told}

    def take_text(self, parts: Parts, embeddings: Embeddings, *, is_empty: bool) -> Rows:
        start = "negative_" if is_empty else ""
        rows = {name: np.asarray(embeddings[start + name])[0] for name in parts.embedding_sizes(1)}
        return rows | {"prompt_embeds": rows["prompt_embeds"][: parts.text_length]}

    def write_prompt(self, caption: str) -> str:
        return escape(caption)

    def describe_cut(self, sizes: tuple[int, int, int, int, int, int]) -> Rows:  # noqa: ARG002 - SDXL is told
        return {}

    def read_conditions(self, rows: Rows, dtype: Any) -> dict[str, Any]:  # noqa: ARG002 - SDXL has some
        """Returns the UNet's further arguments, as `Parts` does."""
        return {}

    def predict(
        self, call: Callable[..., Any], noisy: jax.Array, timesteps: jax.Array, rows: Rows, dtype: Any
    ) -> jax.Array:
        (output,) = call(
            noisy.astype(dtype),
            timesteps,
            encoder_hidden_states=rows["prompt_embeds"].astype(dtype),
            **self.read_conditions(rows, dtype),
            return_dict=False,
        )
        return output
