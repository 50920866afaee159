"""Builds a checkpoint's modules without weights, then places the weights on the mesh."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from jax.sharding import Mesh
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    CLIPVisionModel,
    UMT5Config,
    UMT5EncoderModel,
)

from pipelines.errors import ModelError
from pipelines.families.wan import sharding
from pipelines.families.wan.attention import RotaryAttention
from pipelines.families.wan.convolutions import split_convolutions
from pipelines.families.wan.parts import COMPONENTS, EXPERTS, STAGES_OF, Parts
from pipelines.families.wan.preview import guess_map
from pipelines.families.wan.tokens import EvenTokens
from pipelines.families.wan.traits import TRAITS
from pipelines.messages import say
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.modules import SCAN_FROM, TracedModule, parameters_on_meta, scan_if_long
from pipelines.runtime.devices.sharding import Rules
from pipelines.runtime.sampling.preview import PreviewMap
from pipelines.runtime.weights.components import (
    PlaceWeights,
    choose_dtype,
    read_json,
    told_as_incomplete,
)


def build_parts(
    folder: Path,
    model: Model,
    *,
    mesh: Mesh,
    stages: Sequence[str],
    tokenizers: tuple[Any, ...],
    text_length: int,
    learnt_previews: Path,
    place: PlaceWeights,
    dtype: Any = None,
) -> Parts:
    """See `loading.BuildParts`."""
    with told_as_incomplete(folder, title=TRAITS.title, components=COMPONENTS):
        index = read_json(folder / "model_index.json")
        modules = _build_modules(folder, index, mesh)
        scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
        image_processor = None
        if "image_encoder" in modules:
            image_processor = CLIPImageProcessorPil.from_pretrained(folder / "image_processor")
    for name in EXPERTS:
        if name in modules:
            modules[name].module.set_attn_processor(RotaryAttention(text_length=text_length))
    boundary_ratio = index.get("boundary_ratio")
    dtype = dtype or choose_dtype(mesh)
    parts = Parts(
        mesh=mesh,
        modules=modules,
        weights={},
        stages=tuple(stages),
        tokenizers=tokenizers,
        image_processor=image_processor,
        scheduler_config=scheduler_config,
        text_length=text_length,
        boundary_timestep=boundary_ratio and boundary_ratio * scheduler_config.get("num_train_timesteps", 1000),
        expands_timesteps=bool(index.get("expand_timesteps")),
        preview=PreviewMap(folder, learnt_previews, guess=guess_map(modules["vae"].module.config.z_dim)),
        dtype=dtype,
        attention=model.attention,
    )
    _check_shapes(model, parts)
    for name, module in modules.items():
        if not _needed_by(name, takes_pictures=parts.takes_pictures) & {*stages}:
            continue
        place_own = functools.partial(place, folder / name, module, mesh=mesh, rules=_choose_rules(name, module, mesh))
        parts.weights[name] = place_own(
            # Wan's authors advise fp32 for the autoencoder, whatever the rest computes in.
            dtype=jnp.float32 if name == "vae" else dtype,
            prefixes=("vision_model.",),
        )
        if name in EXPERTS and dtype != jnp.float32:
            parts.weights[name] |= place_own(dtype=jnp.float32, names=list_precise(module))
    return parts


def list_precise(module: TracedModule) -> set[str]:
    """Lists the small weights that diffusers always keeps in fp32: timesteps, modulation, norms."""
    kept = type(module.module)._keep_in_fp32_modules  # noqa: SLF001 - diffusers' own list for its own loading
    return {name for name in module.parameter_shapes() if any(part in kept for part in name.split("."))}


def _build_modules(folder: Path, index: Mapping[str, Any], mesh: Mesh) -> dict[str, TracedModule]:
    experts = EXPERTS if index.get("boundary_ratio") is not None else EXPERTS[:1]
    configs = {name: read_json(folder / name / "config.json") for name in (*experts, "vae")}
    if len(experts) > 1 and not _are_alike(*(configs[name] for name in experts)):
        raise ModelError(
            say("The two experts in {folder} differ in size.", folder=folder),
            advice=say("Use a checkpoint whose transformer and transformer_2 are of one kind, as Wan 2.2's are."),
        )
    modules: dict[str, Any] = {}
    with parameters_on_meta():
        modules["text_encoder"] = _build_text_encoder(folder / "text_encoder")
        if configs["transformer"].get("image_dim") is not None:
            modules["image_encoder"] = _build_image_encoder(folder / "image_encoder")
        for name in experts:
            modules[name] = expert = cast(Any, WanTransformer3DModel.from_config(configs[name]))
            if len(expert.blocks) >= SCAN_FROM:
                expert.blocks = EvenTokens(expert.blocks, mesh=mesh)
        modules["vae"] = vae = cast(Any, AutoencoderKLWan.from_config(configs["vae"]))
    split_convolutions(vae)
    if not index.get("expand_timesteps") and modules["transformer"].config.in_channels == vae.config.z_dim:
        vae.encoder = vae.quant_conv = None  # a text-to-video model encodes no picture
    return {name: TracedModule(module) for name, module in modules.items()}


def _build_text_encoder(folder: Path) -> UMT5EncoderModel:
    encoder: Any = UMT5EncoderModel(UMT5Config.from_pretrained(folder))
    encoder.encoder.block = scan_if_long(encoder.encoder.block)
    encoder.encoder.embed_tokens = None  # the same table as `shared`, and checkpoints hold it once
    return encoder


def _build_image_encoder(folder: Path) -> CLIPVisionModel:
    """Builds the image encoder without its last layer: Wan was trained on the penultimate hidden states."""
    encoder: Any = CLIPVisionModel(CLIPVisionConfig.from_pretrained(folder))
    encoder.encoder.layers = scan_if_long(encoder.encoder.layers[:-1])
    return encoder


def _are_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[name] == other.get(name) for name in one if not name.startswith("_"))


def _needed_by(component: str, *, takes_pictures: bool) -> set[str]:
    """Returns the stages that use a component."""
    return {"decode"} if component == "vae" and not takes_pictures else {*STAGES_OF[component]}


def _choose_rules(component: str, module: TracedModule, mesh: Mesh) -> Rules:
    if component == "text_encoder":
        return sharding.keep_encoder(module.module.config, mesh)
    if component in EXPERTS:
        return sharding.keep_transformer(module.module.config, mesh)
    return sharding.REPLICATED


def _check_shapes(model: Model, parts: Parts) -> None:
    """Raises ModelError for a shape that is not a multiple of the autoencoder's scale times the patch size."""
    scale = parts.config_of("vae").scale_factor_spatial
    _, tall, wide = (scale * size for size in parts.config_of("transformer").patch_size)
    for shape in model.shapes:
        if shape.height % tall or shape.width % wide:
            raise ModelError(
                say(
                    "{model} cannot make {shape}: its widths are multiples of {wide}, its heights of {tall}.",
                    model=model.id,
                    shape=shape,
                    wide=wide,
                    tall=tall,
                ),
                advice=say("Correct the model's shapes in presets/models.toml."),
            )
