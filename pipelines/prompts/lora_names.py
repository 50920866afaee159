"""Finds the LoRA file that a name in a prompt, or in another program's file, stands for.

Not here: which LoRAs there are (loras.py).
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from pipelines.catalog import Model
from pipelines.loras import LoraFile

MAX_NAME_CHARS = 200
SUFFIXES = frozenset((".safetensors", ".ckpt", ".gguf", ".sft", ".pt", ".pth", ".bin"))


def read_stem(name: str) -> str:
    """Returns a file's name without folders and without the suffix of a file of weights."""
    path = PurePosixPath(name[-MAX_NAME_CHARS:].replace("\\", "/"))
    return path.name.removesuffix(path.suffix) if path.suffix.lower() in SUFFIXES else path.name


def find_lora(name: str, loras: Sequence[LoraFile], model: Model) -> LoraFile | None:
    """Finds the LoRA file of this name, with or without extension and folder; prefers one that fits the model."""
    stem = read_stem(name)
    alike = [lora for lora in loras if _join(lora.ref) == _join(stem)]
    alike.sort(key=lambda lora: (lora.family != model.family, lora.ref != stem))
    return alike[0] if alike else None


def _join(name: str) -> str:
    """Normalizes a name: programs write a space as - or _; dots stay, because v1.0 is not v10."""
    return re.sub(r"[\s_-]+", "_", name.casefold())
