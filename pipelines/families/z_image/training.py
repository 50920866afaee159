"""How Z-Image learns: its transformer on rows of latents and of the language model's embeddings.

Captions keep their own lengths, as diffusers gives them to the module: embeddings are zeros behind a prompt's words.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from diffusers.models.transformers.transformer_z_image import ZImageTransformerBlock
from jax.sharding import Mesh

from pipelines.families import autoencoder_kl
from pipelines.families.trainable import FlowLearner, Rows
from pipelines.families.z_image import loras, tokens
from pipelines.families.z_image.denoise import find_mu
from pipelines.families.z_image.load import build_transformer, scan_layers
from pipelines.families.z_image.parts import PATCH, Parts, count_pixels
from pipelines.loras.file_names import FileNames
from pipelines.models.catalog import Model, Shape
from pipelines.recipes.schedulers import read_shift
from pipelines.runtime.bridge.modules import TracedModule, repeat_for_gradient
from pipelines.runtime.programs.compiled import Program
from pipelines.runtime.weights.components import read_json
from pipelines.stages import Embeddings


class ZImageLearner(FlowLearner):
    """See `trainable.Learner`."""

    def build_denoiser(self, folder: Path, component: str) -> Any:
        return build_transformer(folder / component)

    def stack_layers(self, module: Any, mesh: Any) -> None:  # noqa: ARG002
        scan_layers(module)
        repeat_for_gradient(module, (ZImageTransformerBlock,))

    def name_for_all(self, learned: Collection[str], layers: Collection[str]) -> FileNames:  # noqa: ARG002
        return loras.name_for_all(learned)

    def name_for_kohya(self, learned: Collection[str], layers: Collection[str]) -> FileNames:  # noqa: ARG002
        return loras.name_for_kohya(learned)

    def describe_base(self, folder: Path, scheduler_config: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        return {"ss_base_model_version": "z_image", "modelspec.architecture": "Z-Image/lora"}

    def find_shift(self, model: Model, folder: Path, shape: Shape) -> float:  # noqa: ARG002
        config = read_json(folder / "scheduler" / "scheduler_config.json")
        if not config.get("use_dynamic_shifting"):
            return read_shift(config) or 1.0
        side = count_pixels(read_json(folder / "vae" / "config.json"))
        return float(np.exp(find_mu(config, (shape.height // side) * (shape.width // side))))

    def build_autoencoder(self, folder: Path) -> TracedModule:
        return autoencoder_kl.build_autoencoder(folder)

    def build_latents_program(self, autoencoder: TracedModule, weights: Rows, mesh: Mesh, shape: Shape) -> Program:
        return autoencoder_kl.describe_latents_program(autoencoder, weights, mesh, shape)

    def describe_rows(self, parts: Parts, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        latents = parts.latents_CHW(shape)
        return {"mean": latents, "deviation": latents, "prompt_embeds": (parts.text_length, parts.text_width)}

    def take_text(self, parts: Parts, embeddings: Embeddings, *, is_empty: bool) -> Rows:  # noqa: ARG002
        name = "negative_prompt_embeds" if is_empty else "prompt_embeds"
        return {"prompt_embeds": np.asarray(embeddings[name])[0]}

    def predict(
        self, call: Callable[..., Any], noisy: jax.Array, timesteps: jax.Array, rows: Rows, dtype: Any
    ) -> jax.Array:
        _, _, height, width = noisy.shape
        output = call(
            tokens.pack(noisy.astype(dtype)),
            1 - timesteps,
            tokens.fill_caption(rows["prompt_embeds"].astype(dtype)),
            height=height // PATCH,
            width=width // PATCH,
            method=tokens.predict_alone,
        )
        return -tokens.unpack(output.astype(jnp.float32), height, width)


LEARNER = ZImageLearner()
