"""Translates other programs' names for models, LoRAs and samplers into ours."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from pipelines.catalog import Catalog, Model
from pipelines.loras import LoraFile, resolve_lora

MAX_NAME_CHARS = 200
_SUFFIXES = frozenset((".safetensors", ".ckpt", ".gguf", ".sft", ".pt", ".pth", ".bin"))

_SAMPLERS = {
    "euler": "euler",
    "keuler": "euler",
    "eulera": "euler_ancestral",
    "keulera": "euler_ancestral",
    "eulerancestral": "euler_ancestral",
    "dpmpp2m": "dpmpp_2m",
    "kdpmpp2m": "dpmpp_2m",
    "ddim": "ddim",
    "flowmatcheuler": "flow_match_euler",
    "unipc": "unipc",
    "unipcbh2": "unipc",
    "unipcmultistep": "unipc",
}
_SCHEDULES = ("karras", "exponential", "sgmuniform", "polyexponential")
_ORDINARY_SCHEDULES = ("", "automatic", "normal", "simple", "default", "discrete")


def find_model(name: str, catalog: Catalog) -> Model | None:
    """Finds the catalogue's model with this file, id, title or repository; None when there is none."""
    path = PurePosixPath(name[-MAX_NAME_CHARS:].replace("\\", "/"))
    plain = _plain(path.name.removesuffix(path.suffix) if path.suffix.lower() in _SUFFIXES else path.name)
    for model in catalog.models:
        own = {model.id, model.title, *([model.repo.rpartition("/")[2]] if model.repo else [])}
        if plain in {_plain(one) for one in own}:
            return model
    if "refiner" in plain or "inpaint" in plain or "kleinbase" in plain:
        return None
    return next((model for model in catalog.models if model.file_names and re.search(model.file_names, plain)), None)


def find_lora(name: str, loras: Sequence[LoraFile], model: Model) -> LoraFile | None:
    """Finds the LoRA file of this name, with or without extension and folder; prefers one that fits the model."""
    path = PurePosixPath(name[-MAX_NAME_CHARS:].replace("\\", "/"))
    stem = path.name.removesuffix(path.suffix) if path.suffix.lower() in _SUFFIXES else path.name
    return resolve_lora(str(path.with_name(stem)) if stem else name, loras, family=model.family)


def split_sampler(name: str) -> tuple[str, str]:
    """Splits older names such as `DPM++ 2M Karras` into sampler and schedule, which may be empty."""
    for schedule in _SCHEDULES:
        if _plain(name).endswith(schedule) and _plain(name) != schedule:
            words = name.split()
            return " ".join(words[:-1]), words[-1]
    return name, ""


def find_scheduler(sampler: str, model: Model) -> str | None:
    """Finds the model's scheduler that does the same; None when it has none."""
    found = _SAMPLERS.get(_plain(sampler.replace("++", "pp")))
    if found == "euler" and "flow_match_euler" in model.schedulers:
        return "flow_match_euler"
    return found if found in model.schedulers else None


def is_ordinary_schedule(name: str) -> bool:
    """Tells whether the schedule's name means no more than the model's default timesteps."""
    return _plain(name) in _ORDINARY_SCHEDULES


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
