"""Finds the LoRA file that a name in a prompt, or in another program's file, stands for.

Not here: which LoRAs there are (loras.py).
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from pipelines.loras.files import LoraFile
from pipelines.models.catalog import Model
from pipelines.models.weight_files import ARCHIVES, GGUF, OTHER_WEIGHTS, SUFFIX, UNFINISHED

MAX_NAME_CHARS = 200
SUFFIXES = frozenset((SUFFIX, GGUF, *OTHER_WEIGHTS, *UNFINISHED, *ARCHIVES))


def read_stem(name: str) -> str:
    """Returns a file's name without folders and without the suffixes of a file of weights, or of its download."""
    path = PurePosixPath(name[-MAX_NAME_CHARS:].replace("\\", "/"))
    while path.suffix.lower() in SUFFIXES:
        path = path.with_suffix("")
    return path.name


def find_lora(name: str, loras: Sequence[LoraFile], model: Model) -> LoraFile | None:
    """Finds the LoRA file of this name, with or without extension and folder.

    Prefers one that fits the model, then one in the folder that is named, then one that is spelled just so.
    """
    stem = read_stem(name)
    folder = name[-MAX_NAME_CHARS:].replace("\\", "/").rpartition("/")[0]

    def rank(lora: LoraFile) -> tuple[bool, bool, bool, str]:
        own_folder, _, own = lora.ref.rpartition("/")
        is_unfit = lora.family != model.family or lora.problem is not None
        return is_unfit, _join(own_folder) != _join(folder), own != stem, lora.ref

    alike = [lora for lora in loras if _join(read_stem(lora.ref)) == _join(stem)]
    return min(alike, key=rank, default=None)


def _join(name: str) -> str:
    """Normalizes a name: programs write a space as - or _; dots stay, because v1.0 is not v10."""
    return re.sub(r"[\s_-]+", "_", name.casefold())
