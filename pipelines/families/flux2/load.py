"""Builds a checkpoint's modules without weights, then places the weights on the mesh."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
from jax.sharding import Mesh
from transformers import AutoConfig, AutoModel

from pipelines.errors import ModelError
from pipelines.families.flux2 import sharding
from pipelines.families.flux2.attention import set_processors
from pipelines.families.flux2.parts import COMPONENTS, STAGES_OF, Parts
from pipelines.families.flux2.preview import guess_map
from pipelines.families.flux2.traits import TRAITS
from pipelines.families.flux2.variants import VARIANT_OF_PIPELINE, Variant, find_guidance
from pipelines.families.language_model import TEXT_PREFIXES, cut_layers, make_text_rules
from pipelines.messages import say
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta
from pipelines.runtime.sampling.preview import PreviewMap
from pipelines.runtime.weights.components import (
    PlaceWeights,
    choose_dtype,
    read_json,
    told_as_incomplete,
)


def build_parts(
    folder: Path,
    _model: Model,
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
        is_distilled = bool(read_json(folder / "model_index.json").get("is_distilled", False))
        variant = read_variant(folder)
        modules, out_layers = _build_modules(folder, variant)
        scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
    sharding.check_heads(modules["transformer"].module, mesh)
    sharding.sum_over_devices(modules["transformer"], mesh)
    rules = {
        "text_encoder": make_text_rules(modules["text_encoder"].module.config, mesh),
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
            prefixes=TEXT_PREFIXES if name == "text_encoder" else (),
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
        tokenizers=tokenizers,
        text_length=text_length,
        out_layers=out_layers,
        scheduler_config=scheduler_config,
        dtype=dtype,
        preview=PreviewMap(folder, learnt_previews, guess=guess_map(modules["transformer"].module.config.in_channels)),
    )


def read_variant(folder: Path) -> Variant:
    """Returns klein or dev, as model_index.json says."""
    return VARIANT_OF_PIPELINE[read_json(folder / "model_index.json")["_class_name"]]


def _build_modules(folder: Path, variant: Variant) -> tuple[dict[str, TracedModule], tuple[int, ...]]:
    """Returns the modules, and the indices of the text encoder's hidden states that make the embeddings."""
    configs = {name: read_json(folder / name / "config.json") for name in ("transformer", "vae")}
    text_config = AutoConfig.from_pretrained(folder / "text_encoder").get_text_config()
    # A text encoder with fewer layers names its own in config.json as `text_encoder_out_layers`, which is also the
    # name of the argument in diffusers' pipelines.
    out_layers = tuple(getattr(text_config, "text_encoder_out_layers", variant.out_layers))
    text_width = len(out_layers) * text_config.hidden_size
    if max(out_layers) > text_config.num_hidden_layers or text_width != configs["transformer"]["joint_attention_dim"]:
        raise ModelError(
            say(
                "{folder} reads hidden states {states} of a text encoder with {layers} layers of {width}; its "
                "transformer takes {wanted}.",
                folder=folder,
                states=out_layers,
                layers=text_config.num_hidden_layers,
                width=text_config.hidden_size,
                wanted=configs["transformer"]["joint_attention_dim"],
            ),
            advice=say('Set "text_encoder_out_layers" in text_encoder/config.json to the layers it was trained with.'),
        )
    with parameters_on_meta():
        text_encoder = AutoModel.from_config(text_config)
        transformer: Any = Flux2Transformer2DModel.from_config(configs["transformer"])
        vae: Any = AutoencoderKLFlux2.from_config(configs["vae"])
    cut_layers(text_encoder, out_layers)
    split_halvings(vae)
    set_processors(transformer)
    sharding.scan_layers(transformer)
    modules = {"text_encoder": text_encoder, "transformer": transformer, "vae": vae}
    return {name: TracedModule(module) for name, module in modules.items()}, out_layers
