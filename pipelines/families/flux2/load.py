"""A checkpoint in diffusers layout to a loaded family: modules without weights, then weights onto the mesh."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
from jax.sharding import Mesh
from transformers import AutoConfig, AutoModel, AutoTokenizer

from pipelines.catalog import Model
from pipelines.errors import ModelError
from pipelines.families.flux2 import sharding
from pipelines.families.flux2.attention import set_processors
from pipelines.families.flux2.encode import cut_layers
from pipelines.families.flux2.family import Flux2Family
from pipelines.families.flux2.loras import rename
from pipelines.families.flux2.parts import COMPONENTS, STAGES_OF, Parts
from pipelines.families.flux2.preview import guess_map
from pipelines.families.flux2.variants import MAX_TEXT_LENGTH, VARIANT_OF_PIPELINE, Variant, find_guidance
from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta
from pipelines.runtime.devices.offload import Offloader
from pipelines.runtime.sampling.preview import PreviewMap, read_map
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

# Where a language model's weights stand in what transformers has saved over time: klein's, dev's now, dev's before.
_TEXT_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "language_model.")


def find(
    model: Model, *, on_progress: OnProgress, stages: Sequence[str] = STAGES, verify_weights: bool = False
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
) -> Flux2Family:
    """Downloads if need be, builds, reads and shards; raises ModelError with what to do when it cannot.

    With fewer `stages` only their weights are read, and only their methods may be called. In `layouts` weights are kept
    as they lie on the mesh. `dtype` is what the large modules compute in, in place of what suits the devices,
    `offloader` what they have room for.
    """
    started = time.perf_counter()
    folder = find(model, on_progress=on_progress, stages=stages, verify_weights=verify_weights)
    with told_as_incomplete(folder, title="FLUX.2", components=COMPONENTS):
        tokenizer, text_length = _load_tokenizer(folder, _read_variant(folder))
    loader = ComponentLoader(
        variant=model.variant, offloader=offloader or Offloader.of_mesh(mesh), on_progress=on_progress, layouts=layouts
    )
    parts = build_parts(
        folder,
        mesh=mesh,
        stages=stages,
        tokenizer=tokenizer,
        text_length=text_length,
        place=loader,
        dtype=dtype,
    )
    guess = guess_map(parts.config_of("transformer").in_channels)
    preview = PreviewMap(folder, cache_dir.parent / "previews" / model.id, guess=guess)
    family = Flux2Family(model, parts, preview, cache_dir=cache_dir, load_s=time.perf_counter() - started)
    family.use_loader(loader, modules={"transformer": parts.modules["transformer"]}, rename=rename)
    family.revision = hub.find_revision(folder)
    return family


def build_parts(
    folder: Path,
    *,
    mesh: Mesh,
    stages: Sequence[str],
    tokenizer: Any,
    text_length: int,
    place: PlaceWeights,
    dtype: Any = None,
) -> Parts:
    """Modules of the folder's configs, and of every component that `stages` need the weights that `place` gives."""
    with told_as_incomplete(folder, title="FLUX.2", components=COMPONENTS):
        is_distilled = bool(read_json(folder / "model_index.json").get("is_distilled", False))
        variant = _read_variant(folder)
        modules, out_layers = _build_modules(folder, variant)
        scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
    sharding.check_heads(modules["transformer"].module, mesh)
    sharding.sum_over_devices(modules["transformer"], mesh)
    rules = {
        "text_encoder": sharding.make_text_rules(modules["text_encoder"].module.config, mesh),
        "transformer": sharding.TRANSFORMER_RULES,
        "vae": sharding.REPLICATED,
    }
    dtype = dtype or choose_dtype(mesh)
    weights = {
        name: place(
            folder / name,
            module,
            mesh=mesh,
            rules=rules[name],
            dtype=dtype,
            prefixes=_TEXT_PREFIXES if name == "text_encoder" else (),
            arrange=sharding.deal_out(module.module, mesh) if name == "transformer" else dict,
        )
        for name, module in modules.items()
        if {*STAGES_OF[name]} & {*stages}
    }
    return Parts(
        mesh=mesh,
        stages=tuple(stages),
        variant=variant,
        guidance=find_guidance(variant, is_distilled=is_distilled),
        modules=modules,
        weights=weights,
        tokenizer=tokenizer,
        text_length=text_length,
        out_layers=out_layers,
        scheduler_config=scheduler_config,
        dtype=dtype,
        preview_cells=(read_map(folder) or guess_map(modules["transformer"].module.config.in_channels)).cells,
    )


def _read_variant(folder: Path) -> Variant:
    return VARIANT_OF_PIPELINE[read_json(folder / "model_index.json")["_class_name"]]


def _build_modules(folder: Path, variant: Variant) -> tuple[dict[str, TracedModule], tuple[int, ...]]:
    """The modules, and which hidden states of the text encoder are read."""
    configs = {name: read_json(folder / name / "config.json") for name in ("transformer", "vae")}
    text_config = AutoConfig.from_pretrained(folder / "text_encoder").get_text_config()
    # A text encoder of fewer layers names its own: `text_encoder_out_layers` in its config.json, as the argument of
    # diffusers' pipelines is called.
    out_layers = tuple(getattr(text_config, "text_encoder_out_layers", variant.out_layers))
    text_width = len(out_layers) * text_config.hidden_size
    if max(out_layers) > text_config.num_hidden_layers or text_width != configs["transformer"]["joint_attention_dim"]:
        raise ModelError(
            f"{folder} reads hidden states {out_layers} of a text encoder with {text_config.num_hidden_layers} layers "
            f"of {text_config.hidden_size}; its transformer takes {configs['transformer']['joint_attention_dim']}.",
            advice='Set "text_encoder_out_layers" in text_encoder/config.json to the layers it was trained with.',
        )
    with parameters_on_meta():
        text_encoder = AutoModel.from_config(text_config)
        transformer = Flux2Transformer2DModel.from_config(configs["transformer"])
        vae: Any = AutoencoderKLFlux2.from_config(configs["vae"])
    cut_layers(text_encoder, out_layers)
    split_halvings(vae)
    set_processors(transformer)
    sharding.scan_layers(transformer)
    modules = {"text_encoder": text_encoder, "transformer": transformer, "vae": vae}
    return {name: TracedModule(module) for name, module in modules.items()}, out_layers


def _load_tokenizer(folder: Path, variant: Variant) -> tuple[Any, int]:
    """The tokenizer, and how many tokens every prompt gets: 512, or fewer where its own `model_max_length` says so."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    length = min(MAX_TEXT_LENGTH, tokenizer.model_max_length)
    variant.tokenize(tokenizer, "", length)  # a missing chat template shows here
    return tokenizer, length
