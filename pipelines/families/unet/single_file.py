"""The converters of single-file checkpoints with a UNet: diffusers' own, each given only its component's tensors."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from diffusers.loaders import single_file_utils as diffusers_files

from pipelines.runtime.weights.single_file import Convert

UNET = diffusers_files.LDM_UNET_KEY


def convert_unet(tensors: dict[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    chosen = _choose(tensors, UNET) or {UNET + name: tensor for name, tensor in tensors.items()}
    return diffusers_files.convert_ldm_unet_checkpoint(chosen, config)


def convert_vae(tensors: dict[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    chosen = _choose(tensors, *diffusers_files.LDM_VAE_KEYS)
    return diffusers_files.convert_ldm_vae_checkpoint(chosen, config) if chosen else {}


def make_text_converter(*, clip: str = "", open_clip: str = "") -> Convert:
    """Returns the converter of a text encoder: transformers' CLIP below `clip`, or OpenCLIP's below `open_clip`."""

    def convert(tensors: dict[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
        if of_clip := (_choose(tensors, clip) if clip else None):
            return diffusers_files.convert_ldm_clip_checkpoint(of_clip)
        if not (of_open_clip := (_choose(tensors, open_clip) if open_clip else None)):
            return {}
        model = SimpleNamespace(config=SimpleNamespace(hidden_size=config["hidden_size"]))
        return diffusers_files.convert_open_clip_checkpoint(model, of_open_clip, prefix=open_clip)

    return convert


def _choose(tensors: dict[str, Any], *prefixes: str) -> dict[str, Any]:
    return {name: value for name, value in tensors.items() if name.startswith(prefixes)}
