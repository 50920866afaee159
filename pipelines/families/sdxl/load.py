"""Builds a checkpoint's modules without weights, then places the weights on the mesh."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
from diffusers import AutoencoderKL, Transformer2DModel, UNet2DConditionModel
from jax.sharding import Mesh
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from pipelines.catalog import Model
from pipelines.errors import ModelError
from pipelines.families.sdxl import sharding
from pipelines.families.sdxl.parts import COMPONENTS, STAGES_OF, Parts
from pipelines.families.sdxl.traits import TRAITS
from pipelines.messages import say
from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta, scan_if_long
from pipelines.runtime.kernels.convolution import has_kernels, list_plain_convolutions
from pipelines.runtime.sampling.preview import SDXL_LATENTS_TO_RGB, read_map
from pipelines.runtime.weights.components import (
    PlaceWeights,
    choose_dtype,
    read_json,
    told_as_incomplete,
)

_SCAN_FROM = 2  # transformer blocks: compiles in a sixth less time than 10, and a step takes a hundredth more


def build_parts(
    folder: Path,
    _model: Model,
    *,
    mesh: Mesh,
    stages: Sequence[str],
    tokenizers: tuple[CLIPTokenizer, ...],
    text_length: int,
    learnt_previews: Path,  # noqa: ARG001 - its autoencoder's preview is known
    place: PlaceWeights,
    dtype: Any = None,
) -> Parts:
    """See `loading.BuildParts`."""
    with told_as_incomplete(folder, title=TRAITS.title, components=COMPONENTS):
        modules = _build_modules(folder)
        scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
        zeroes_empty = bool(read_json(folder / "model_index.json").get("force_zeros_for_empty_prompt", True))
    dtype = dtype or choose_dtype(mesh)
    takes_kernels = has_kernels(mesh) and dtype == jnp.bfloat16
    weights = {}
    for name, module in modules.items():
        if not {*STAGES_OF[name]} & {*stages}:
            continue
        needs_fp32 = name == "vae" and module.module.config.force_upcast
        weights[name] = place(
            folder / name,
            module,
            mesh=mesh,
            rules=sharding.UNET_RULES if name == "unet" else sharding.REPLICATED,
            dtype=jnp.float32 if needs_fp32 else dtype,
            prefixes=("text_model.",),
            taps=list_plain_convolutions(module.module) if name == "unet" and takes_kernels else (),
        )
    return Parts(
        mesh=mesh,
        stages=tuple(stages),
        modules=modules,
        weights=weights,
        tokenizers=tokenizers,
        text_length=text_length,
        scheduler_config=scheduler_config,
        zeroes_empty=zeroes_empty,
        latents_to_rgb=read_map(folder) or SDXL_LATENTS_TO_RGB,
        dtype=dtype,
    )


def _build_modules(folder: Path) -> dict[str, TracedModule]:
    configs = {name: read_json(folder / name / "config.json") for name in ("unet", "vae")}
    text_configs = {name: CLIPTextConfig.from_pretrained(folder / name) for name in ("text_encoder", "text_encoder_2")}
    with parameters_on_meta():
        modules = {
            "text_encoder": CLIPTextModel(text_configs["text_encoder"]),
            "text_encoder_2": CLIPTextModelWithProjection(text_configs["text_encoder_2"]),
            "unet": UNet2DConditionModel.from_config(configs["unet"]),
            "vae": AutoencoderKL.from_config(configs["vae"]),
        }
    if modules["unet"].config.addition_embed_type != "text_time":
        raise ModelError(
            say("{folder} holds a UNet without SDXL's size conditioning.", folder=folder),
            advice=say("Stable Diffusion 1.x and 2.x are other architectures and cannot run here."),
        )
    split_halvings(modules["vae"])
    for name in ("text_encoder", "text_encoder_2"):
        encoder = cast(Any, getattr(modules[name], "text_model", modules[name])).encoder
        encoder.layers = scan_if_long(encoder.layers)
    for module in modules["unet"].modules():
        if isinstance(module, Transformer2DModel):
            transformer = cast(Any, module)
            transformer.transformer_blocks = scan_if_long(transformer.transformer_blocks, at_least=_SCAN_FROM)
    return {name: TracedModule(module) for name, module in modules.items()}
