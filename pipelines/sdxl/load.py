"""A checkpoint in diffusers layout to a loaded family: modules without weights, then weights onto the mesh."""

import time
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
from diffusers import AutoencoderKL, UNet2DConditionModel
from jax.sharding import Mesh
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from pipelines.catalog import Model
from pipelines.errors import ModelError
from pipelines.runtime import hub
from pipelines.runtime.components import choose_dtype, load_component, read_json, told_as_incomplete
from pipelines.runtime.preview import SDXL_LATENTS_TO_RGB, read_map
from pipelines.runtime.torch_bridge import TracedModule, parameters_on_meta
from pipelines.sdxl import sharding
from pipelines.sdxl.family import SdxlFamily
from pipelines.sdxl.parts import COMPONENTS, STAGE_OF, Parts
from pipelines.stages import STAGES, OnProgress, Progress


def load(
    model: Model,
    *,
    mesh: Mesh,
    cache_dir: Path,
    on_progress: OnProgress,
    stages: Sequence[str] = STAGES,
) -> SdxlFamily:
    """Downloads if need be, builds, reads and shards; raises ModelError with what to do when it cannot.

    With fewer `stages` only their weights are read, and only their methods may be called.
    """
    started = time.perf_counter()
    folder = hub.locate(
        model,
        components=COMPONENTS,
        on_bytes=lambda done, total: on_progress(Progress(phase="downloading", done=done, total=total)),
    )
    on_progress(Progress(phase="loading"))
    with told_as_incomplete(folder, title="SDXL", components=COMPONENTS):
        modules = _build_modules(folder)
        tokenizers = tuple(CLIPTokenizer.from_pretrained(folder / name) for name in ("tokenizer", "tokenizer_2"))
        scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
        zeroes_empty = bool(read_json(folder / "model_index.json").get("force_zeros_for_empty_prompt", True))
    dtype = choose_dtype(mesh)
    weights = {}
    for name, module in modules.items():
        if STAGE_OF[name] not in stages:
            continue
        needs_fp32 = name == "vae" and module.module.config.force_upcast
        weights[name] = load_component(
            folder / name,
            module,
            mesh=mesh,
            rules=sharding.UNET_RULES if name == "unet" else sharding.REPLICATED,
            dtype=jnp.float32 if needs_fp32 else dtype,
            variant=model.variant,
            on_progress=on_progress,
            optional_prefix="text_model.",
        )
    parts = Parts(
        mesh=mesh,
        modules=modules,
        weights=weights,
        tokenizers=tokenizers,
        scheduler_config=scheduler_config,
        zeroes_empty=zeroes_empty,
        latents_to_rgb=read_map(folder) or SDXL_LATENTS_TO_RGB,
        dtype=dtype,
    )
    return SdxlFamily(model, parts, cache_dir=cache_dir, load_s=time.perf_counter() - started)


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
    return {name: TracedModule(module) for name, module in modules.items()}
