"""Builds a checkpoint's modules without weights, then places the weights on the mesh."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
from diffusers import AutoencoderKL, Transformer2DModel, UNet2DConditionModel
from jax.sharding import Mesh
from transformers import CLIPTextConfig, CLIPTokenizer

from pipelines.families.traits import Traits
from pipelines.families.unet import sharding
from pipelines.families.unet.parts import Parts
from pipelines.families.unet.single_file import convert_unet, convert_vae
from pipelines.models.catalog import Model
from pipelines.runtime.bridge.autoencoder import split_halvings
from pipelines.runtime.bridge.modules import TracedModule, parameters_on_meta, scan_if_long
from pipelines.runtime.kernels.convolution import has_kernels, list_plain_convolutions
from pipelines.runtime.sampling.preview import read_map
from pipelines.runtime.weights.components import (
    PlaceWeights,
    choose_dtype,
    read_json,
    told_as_incomplete,
)
from pipelines.runtime.weights.single_file import Convert

_SCAN_FROM = 2  # transformer blocks: compiles in a sixth less time than 10, and a step takes a hundredth more


@dataclass(frozen=True, kw_only=True)
class UNetLoader:
    """The `loading.BuildParts` of a family whose prompts are read by these `encoders`, component -> its class.

    `text_converters` know how single-file checkpoints hold these encoders. `read_index` returns the fields of the
    family's `parts_class` that model_index.json decides; `check` raises ModelError for a folder whose UNet has another
    kind of conditioning.
    """

    traits: Traits
    parts_class: type[Parts]
    encoders: Mapping[str, Callable[[CLIPTextConfig], Any]]
    check: Callable[[Path, Any], None]
    text_converters: Mapping[str, Convert] = field(default_factory=dict[str, Convert])
    read_index: Callable[[Path, Mapping[str, Any]], dict[str, Any]] = lambda _folder, _index: {}

    @property
    def converters(self) -> dict[str, Convert]:
        """Returns how single-file checkpoints hold its components."""
        return {"unet": convert_unet, "vae": convert_vae, **self.text_converters}

    @property
    def tokenizers(self) -> tuple[str, ...]:
        return tuple(name.replace("text_encoder", "tokenizer") for name in self.encoders)

    @property
    def components(self) -> tuple[str, ...]:
        return (*self.encoders, "unet", "vae", *self.tokenizers, "scheduler")

    @property
    def stages_of(self) -> dict[str, tuple[str, ...]]:
        """Returns the stages that need a component; the autoencoder also encodes what denoising starts from."""
        encode = dict.fromkeys(self.encoders, ("encode",))
        return {**encode, "unet": ("denoise",), "vae": ("denoise", "decode")}

    def read_tokenizers(self, folder: Path) -> tuple[CLIPTokenizer, ...]:
        return tuple(CLIPTokenizer.from_pretrained(folder / name) for name in self.tokenizers)

    def __call__(
        self,
        folder: Path,
        model: Model,
        /,
        *,
        mesh: Mesh,
        stages: Sequence[str],
        tokenizers: tuple[Any, ...],
        text_length: int,
        learnt_previews: Path,  # noqa: ARG002 - its autoencoder's preview is known
        place: PlaceWeights,
        dtype: Any = None,
    ) -> Parts:
        """See `loading.BuildParts`."""
        with told_as_incomplete(folder, title=self.traits.title, components=self.components):
            modules = self._build_modules(folder)
            scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
            decided = self.read_index(folder, read_json(folder / "model_index.json"))
        dtype = dtype or choose_dtype(mesh)
        takes_kernels = has_kernels(mesh) and dtype == jnp.bfloat16
        weights = {}
        for name, module in modules.items():
            if not {*self.stages_of[name]} & {*stages}:
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
        return self.parts_class(
            mesh=mesh,
            stages=tuple(stages),
            modules=modules,
            weights=weights,
            tokenizers=tokenizers,
            text_length=text_length,
            scheduler_config={**scheduler_config, **model.scheduler_changes},
            latents_to_rgb=read_map(folder) or self.parts_class.guess,
            dtype=dtype,
            **decided,
        )

    def _build_modules(self, folder: Path) -> dict[str, TracedModule]:
        configs = {name: read_json(folder / name / "config.json") for name in ("unet", "vae")}
        text_configs = {name: CLIPTextConfig.from_pretrained(folder / name) for name in self.encoders}
        with parameters_on_meta():
            modules: dict[str, Any] = {
                **{name: build(text_configs[name]) for name, build in self.encoders.items()},
                "unet": UNet2DConditionModel.from_config(configs["unet"]),
                "vae": AutoencoderKL.from_config(configs["vae"]),
            }
        self.check(folder, modules["unet"].config)
        split_halvings(modules["vae"])
        for name in self.encoders:
            encoder = getattr(modules[name], "text_model", modules[name]).encoder
            encoder.layers = scan_if_long(encoder.layers)
        for module in modules["unet"].modules():
            if isinstance(module, Transformer2DModel):
                transformer = cast(Any, module)
                transformer.transformer_blocks = scan_if_long(transformer.transformer_blocks, at_least=_SCAN_FROM)
        return {name: TracedModule(module) for name, module in modules.items()}
