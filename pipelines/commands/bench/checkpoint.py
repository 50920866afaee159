"""Writes a checkpoint of random weights from a model's configs, to measure speed without the model's own weights.

It runs in a process of its own. Modules are initialised as for training, so values keep their scale. Sizes are the
model's, or for `mid` a quarter of its layers at full width; a UNet with one transformer in each place, as Stable
Diffusion's of 0.9 billion parameters, stays whole. The vocabulary is that of the family's demo model,
or of one with its tokenizer; prompts are as long as the model's.
"""

import importlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from pipelines.commands.bench.process import answer
from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.models.catalog import Model, load_catalog, read_data_dir
from pipelines.models.fingerprints import find_configs

LAYERS = (
    "num_layers",
    "n_layers",  # Z-Image
    "num_single_layers",
    "num_hidden_layers",
    "transformer_layers_per_block",
    "text_encoder_out_layers",
)
QUARTER = 4
SPARE = 1.1  # factor on the weights' memory, for what is computed with them
STORED_BYTES = 2  # bf16
SEED = 0
# FLUX.2 dev's messages are lists of parts, which the demo's template cannot read.
DEV_CHAT = "{% for message in messages %}{{ message.content[0].text }}{% endfor %}"


def write_random(model: Model, folder: Path, *, is_cut: bool, on_gpu: bool) -> dict[str, int]:
    """Writes the checkpoint into `folder` and returns component -> number of parameters.

    Raises LumeshError before writing if there is too little space.
    """
    import torch

    source = find_configs(model)
    index = _read_json(source / "model_index.json")
    demo = _find_demo(model, index["tokenizer"])
    configs = _read_configs(source, index, is_cut=is_cut)
    counts = count_parameters(model, is_cut=is_cut)
    _check_room(sum(counts.values()), folder, on_gpu=on_gpu)
    device = "cuda" if on_gpu and torch.cuda.is_available() else "cpu"
    for name, config in configs.items():
        torch.manual_seed(SEED)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device(device):
                built = _build(index[name], config)
            built.save_pretrained(folder / name)
        finally:
            torch.set_default_dtype(before)
    shutil.copytree(source / "scheduler", folder / "scheduler")
    if (preview := source / "preview.json").exists():
        shutil.copy(preview, folder)
    for name in (name for name in index if name.startswith("tokenizer")):
        _copy_tokenizer(source / name, demo / name, folder / name, is_dev=index["_class_name"] == "Flux2Pipeline")
        index[name] = _read_json(demo / "model_index.json")[name]
    (folder / "model_index.json").write_text(json.dumps(index), "utf-8")
    return counts


def _find_demo(model: Model, tokenizer: Sequence[str]) -> Path:
    """Returns the folder of the family's demo model, or else of one with this tokenizer (of model_index.json)."""
    demos = {one.family: one.path for one in load_catalog().models if one.is_demo and one.path is not None}
    if model.family in demos:
        return demos[model.family]
    return next(demo for demo in demos.values() if _read_json(demo / "model_index.json")["tokenizer"] == [*tokenizer])


def count_parameters(model: Model, *, is_cut: bool) -> dict[str, int]:
    """Returns component -> number of parameters of the checkpoint that would be written."""
    import torch

    source = find_configs(model)
    index = _read_json(source / "model_index.json")
    with torch.device("meta"):
        return {
            name: sum(math.prod(parameter.shape) for parameter in _build(index[name], config).parameters())
            for name, config in _read_configs(source, index, is_cut=is_cut).items()
        }


def _read_configs(source: Path, index: Mapping[str, Any], *, is_cut: bool) -> dict[str, dict[str, Any]]:
    """Reads component -> config, for components with weights."""
    configs = {
        name: _read_json(file)
        for name, entry in index.items()
        if isinstance(entry, list) and entry[0] and (file := source / name / "config.json").exists()
    }
    if not is_cut:
        return configs
    if index["_class_name"].startswith("Flux2"):
        text = configs["text_encoder"].get("text_config", configs["text_encoder"])
        text.setdefault("text_encoder_out_layers", _list_read_layers(index["_class_name"]))
    return {name: config if name == "vae" else cut_layers(config) for name, config in configs.items()}


def _list_read_layers(pipeline_class: str) -> list[int]:
    from pipelines.families.flux2.variants import VARIANT_OF_PIPELINE

    return list(VARIANT_OF_PIPELINE[pipeline_class].out_layers)


def cut_layers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps a quarter of the layers, at least one of each kind, and every width."""

    def cut(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return cut_layers(value)
        if name == "layer_types":
            return value[: _divide(len(value))]
        if name not in LAYERS:
            return value
        return [_divide(one) for one in value] if isinstance(value, list) else _divide(value)

    return {name: cut(name, value) for name, value in config.items()}


def _divide(count: int) -> int:
    return max(1, count // QUARTER)


def _read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


def _build(entry: tuple[str, str], config: Mapping[str, Any]) -> Any:
    """Builds a module of diffusers or transformers with random weights."""
    library, name = entry
    built: Any = getattr(importlib.import_module(library), name)
    return built.from_config(config) if library == "diffusers" else built(built.config_class.from_dict(config))


def _copy_tokenizer(source: Path, demo: Path, folder: Path, *, is_dev: bool) -> None:
    """Copies the model's own tokenizer if its files are there, else the demo's with the model's prompt length."""
    own = [file for file in source.iterdir() if file.name != "tokenizer_config.json"]
    shutil.copytree(source if own else demo, folder)
    if own:
        return
    length = _read_json(source / "tokenizer_config.json")["model_max_length"]
    settings = _read_json(demo / "tokenizer_config.json") | {"model_max_length": length}
    if is_dev:
        settings["padding_side"] = "left"
        (folder / "chat_template.jinja").write_text(DEV_CHAT, "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")


def _check_room(parameters: int, folder: Path, *, on_gpu: bool) -> None:
    """Raises LumeshError if disk or memory is too small.

    On a CPU weights are computed in fp32, and on one GPU diffusers holds all of them at once.
    """
    import torch

    stored = STORED_BYTES * parameters
    rooms: list[tuple[str, float, float]] = [
        (f"the disk of {folder.parent}", stored, shutil.disk_usage(folder.parent).free),
        ("memory", SPARE * stored * (1 if on_gpu else 2), psutil.virtual_memory().available),
    ]
    if on_gpu and torch.cuda.is_available():
        rooms.append(("the GPU's memory", SPARE * stored, torch.cuda.mem_get_info()[0]))
    check_room(parameters, rooms)


def check_room(parameters: int, rooms: list[tuple[str, float, float]]) -> None:
    """Checks `rooms` (place, bytes needed, bytes free); raises LumeshError for the first that is too small."""
    for place, needed, free in rooms:
        if needed > free:
            raise LumeshError(
                english(
                    f"{parameters / 1e9:.1f} billion parameters need {needed / 1e9:.1f} GB of {place}; "
                    f"{free / 1e9:.1f} GB are free."
                ),
                advice=english("Use --size mid or a smaller model; TMPDIR names another disk."),
            )


def place_in(model: Model, folder: str) -> Model:
    """Returns the model with the checkpoint in `folder` in place of its own files."""
    return replace(model, path=Path(folder), repo="", revision="", variant="")


def run(task: dict[str, Any]) -> dict[str, int]:
    model = read_data_dir(Path(task["models_dir"]).parent).get(task["model"])
    return write_random(model, Path(task["folder"]), is_cut=task["is_cut"], on_gpu=task["on_gpu"])


if __name__ == "__main__":
    answer(run)
