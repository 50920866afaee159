"""Builds a checkpoint's modules without weights, then places the weights on the mesh."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffusers import AutoencoderKL, ZImageTransformer2DModel
from jax.sharding import Mesh
from transformers import AutoConfig, AutoModel

from pipelines.errors import ModelError
from pipelines.families.language_model import TEXT_PREFIXES, cut_layers, make_text_rules
from pipelines.families.z_image import sharding
from pipelines.families.z_image.attention import set_processors
from pipelines.families.z_image.parts import COMPONENTS, FILLED, PATCH, STAGES_OF, Parts, count_pixels
from pipelines.families.z_image.preview import guess_map
from pipelines.families.z_image.traits import TRAITS
from pipelines.messages import say
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta, scan_if_long
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
        modules, out_layer = _build_modules(folder, mesh)
        scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
    _check_shapes(model, modules, text_length)
    rules = {
        "text_encoder": make_text_rules(modules["text_encoder"].module.config, mesh, sharding.ALL_AXES),
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
        )
        for name, module in modules.items()
        if {*STAGES_OF[name]} & {*stages}
    }
    return Parts(
        mesh=mesh,
        stages=tuple(stages),
        modules=modules,
        weights=weights,
        tokenizers=tokenizers,
        text_length=text_length,
        out_layer=out_layer,
        scheduler_config=scheduler_config,
        dtype=dtype,
        preview=PreviewMap(folder, learnt_previews, guess=guess_map(modules["vae"].module.config.latent_channels)),
    )


def build_transformer(folder: Path) -> Any:
    """Builds diffusers' transformer from its config, with parameters on the meta device and our attention."""
    with parameters_on_meta():
        transformer: Any = ZImageTransformer2DModel.from_config(read_json(folder / "config.json"))
    if PATCH not in transformer.config.all_patch_size:
        raise ModelError(
            say("{folder} has no patches of {count} x {count} latents.", folder=folder, count=PATCH),
            advice=say("Use a checkpoint of Z-Image or Z-Image Turbo, or one made from them."),
        )
    set_processors(transformer)
    return transformer


def scan_layers(transformer: Any) -> None:
    """Runs the long list of blocks as a scan."""
    transformer.layers = scan_if_long(transformer.layers, carried=("x",))


def _build_modules(folder: Path, mesh: Mesh) -> tuple[dict[str, TracedModule], int]:
    """Returns the modules, and the index of the text encoder's hidden states that are read: the last but one."""
    text_config = AutoConfig.from_pretrained(folder / "text_encoder").get_text_config()
    out_layer = text_config.num_hidden_layers - 1
    transformer = build_transformer(folder / "transformer")
    sharding.check_heads(transformer, mesh)
    if text_config.hidden_size != transformer.config.cap_feat_dim:
        raise ModelError(
            say(
                "{folder} has a text encoder of {found} features; its transformer takes {wanted}.",
                folder=folder,
                found=text_config.hidden_size,
                wanted=transformer.config.cap_feat_dim,
            ),
            advice=say("Use a checkpoint whose parts belong together."),
        )
    scan_layers(transformer)
    with parameters_on_meta():
        text_encoder = AutoModel.from_config(text_config)
        vae: Any = AutoencoderKL.from_config(read_json(folder / "vae" / "config.json"))
    cut_layers(text_encoder, (out_layer,))
    split_halvings(vae)
    modules = {"text_encoder": text_encoder, "transformer": transformer, "vae": vae}
    return {name: TracedModule(module) for name, module in modules.items()}, out_layer


def _check_shapes(model: Model, modules: dict[str, TracedModule], text_length: int) -> None:
    """Raises ModelError for sizes that are no whole tokens, or for which the rotary embedding has too few places."""
    side = count_pixels(modules["vae"].module.config)
    times, rows, columns = modules["transformer"].module.config.axes_lens
    for shape in model.shapes:
        if shape.height % side or shape.width % side:
            problem = say(
                "{model} cannot make {shape}: its sides are multiples of {count}.",
                model=model.id,
                shape=shape,
                count=side,
            )
        elif shape.height > rows * side or shape.width > columns * side:
            problem = say(
                "{model} cannot make {shape}: it has places for {width}x{height} pixels.",
                model=model.id,
                shape=shape,
                width=columns * side,
                height=rows * side,
            )
        else:
            continue
        raise ModelError(problem, advice=say("Correct the size in models.toml."))
    most = (times - 2) // FILLED * FILLED  # places from 1 on, and one more for the picture
    if text_length > most:
        raise ModelError(
            say("{model} reads at most {count} tokens of a prompt.", model=model.id, count=most),
            advice=say("Correct the model's text_length in models.toml."),
        )
