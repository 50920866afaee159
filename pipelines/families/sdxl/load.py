"""A checkpoint in diffusers layout to a loaded family: modules without weights, then weights onto the mesh."""

import functools
import time
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
from pipelines.families.sdxl.family import SdxlFamily
from pipelines.families.sdxl.loras import TEXT_ENCODERS, rename
from pipelines.families.sdxl.parts import COMPONENTS, STAGES_OF, Parts
from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta, scan_if_long
from pipelines.runtime.devices.offload import Offloader
from pipelines.runtime.kernels.convolution import has_kernels, list_plain_convolutions
from pipelines.runtime.sampling.preview import SDXL_LATENTS_TO_RGB, read_map
from pipelines.runtime.weights import hub
from pipelines.runtime.weights.components import (
    ComponentLoader,
    PlaceWeights,
    choose_dtype,
    find_checkpoint,
    read_json,
    told_as_incomplete,
)
from pipelines.stages import STAGES, OnProgress

_SCAN_FROM = 2  # transformer blocks: a sixth of compiling less than from ten on, a hundredth of a step more


def find(
    model: Model,
    *,
    on_progress: OnProgress,
    stages: Sequence[str] = STAGES,
    verify_weights: bool = False,
) -> Path:
    """The checkpoint's folder, downloaded if need be; raises ModelError with what to do when it cannot."""
    return find_checkpoint(
        model,
        components=COMPONENTS,
        stages_of=STAGES_OF,
        stages=stages,
        is_verified=verify_weights,
        on_progress=on_progress,
    )


def load(
    model: Model,
    *,
    mesh: Mesh,
    cache_dir: Path,
    on_progress: OnProgress,
    stages: Sequence[str] = STAGES,
    verify_weights: bool = False,
    layouts: Path | None = None,
    dtype: Any = None,
    offloader: Offloader | None = None,
) -> SdxlFamily:
    """Downloads if need be, builds, reads and shards; raises ModelError with what to do when it cannot.

    With fewer `stages` only their weights are read, and only their methods may be called. In `layouts` weights are kept
    as they lie on the mesh. `dtype` is what the large modules compute in, in place of what suits the devices,
    `offloader` what they have room for.
    """
    started = time.perf_counter()
    folder = find(model, on_progress=on_progress, stages=stages, verify_weights=verify_weights)
    with told_as_incomplete(folder, title="SDXL", components=COMPONENTS):
        tokenizers = tuple(CLIPTokenizer.from_pretrained(folder / name) for name in ("tokenizer", "tokenizer_2"))
    loader = ComponentLoader(
        variant=model.variant, offloader=offloader or Offloader.of_mesh(mesh), on_progress=on_progress, layouts=layouts
    )
    parts = build_parts(
        folder,
        mesh=mesh,
        stages=stages,
        tokenizers=tokenizers,
        text_length=tokenizers[0].model_max_length,
        place=loader,
        dtype=dtype,
    )
    family = SdxlFamily(model, parts, cache_dir=cache_dir, load_s=time.perf_counter() - started)
    adaptable = {name: parts.modules[name] for name in ("unet", *TEXT_ENCODERS)}
    family.use_loader(loader, modules=adaptable, rename=functools.partial(rename, modules=adaptable))
    family.revision = hub.find_revision(folder)
    return family


def build_parts(
    folder: Path,
    *,
    mesh: Mesh,
    stages: Sequence[str],
    tokenizers: tuple[CLIPTokenizer, ...],
    text_length: int,
    place: PlaceWeights,
    dtype: Any = None,
) -> Parts:
    """Modules of the folder's configs, and of every component that `stages` need the weights that `place` gives."""
    with told_as_incomplete(folder, title="SDXL", components=COMPONENTS):
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
            f"{folder} holds a UNet without SDXL's size conditioning.",
            advice="Stable Diffusion 1.x and 2.x are other architectures and cannot run here.",
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
