"""Finds the LoRA files of this machine, and the family of models that each was made for.

A LoRA is one `.safetensors` file in the data directory's `loras/`; its `ref` is the file's name without the suffix.
Only headers are read, and those are untrusted: people download these files from anywhere. Importable without jax, so
the page and REST check recipes with it.

Not here: a family's tensor names (its traits.py), what the tensors mean and how they change weights
(runtime/weights/lora.py).
"""

import functools
import json
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import ModelError
from pipelines.families import list_traits
from pipelines.families.traits import LORA_PREFIX
from pipelines.messages import say

SUFFIX = ".safetensors"
MAX_HEADER_BYTES = 2**24  # a LoRA of every layer of Wan 14B has some 200 KB
MAX_TITLE_CHARS = 80
TITLE_FIELDS = ("modelspec.title", "ss_output_name")
TITLE = say("This LoRA cannot be used")
ADVICE = say("Put the file into the loras folder of the data directory.")

# Low-rank pairs in all spellings, and related adapters (LoHa, LoKr), which are listed but refused with a reason on use.
_ADAPTER = re.compile(
    r"lora_[AB]\b|lora_(down|up)\b|lora\.(down|up)\b|_lora\.(down|up)\b|lora_linear_layer|hada_|lokr_"
)

# Unsupported models whose tensor names resemble a family's: Stable Diffusion 1 and 2, FLUX.1, Qwen, LTX.
_FOREIGN = re.compile(
    rf"^lora_te_|\.proj_mlp\.|_mod_lin\.|{LORA_PREFIX}transformer_blocks\.\d+\.(attn[12]|ff\.net|(img|txt)_(mlp|mod))\."
)


@dataclass(frozen=True)
class LoraFile:
    """A low-rank adapter: its ref in recipes, its title for people, its family, and its size in bytes."""

    ref: str
    title: str
    family: str
    path: Path
    size: int


def find_loras(folder: Path) -> tuple[LoraFile, ...]:
    """Lists a folder's LoRAs of the supported families by name, leaving out other and damaged files."""
    found = (read_lora(file) for file in sorted(folder.glob(f"*{SUFFIX}")))
    return tuple(lora for lora in found if lora is not None)


def read_lora(file: Path) -> LoraFile | None:
    """Reads a file's header; returns None if it is not a LoRA of a supported family, or not readable."""
    try:
        status = file.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for without end
        return None
    return _read(file, status.st_mtime_ns, status.st_size)


def get_lora(ref: str, folder: Path | None) -> LoraFile:
    """Returns the LoRA file of a resolved recipe's `ref`; raises ModelError if it no longer exists.

    Only on the command line may a ref be an absolute path without its suffix; `resolve` refuses it from anyone else.
    """
    file = (folder or Path()) / f"{ref}{SUFFIX}"
    lora = read_lora(file) if folder is not None or file.is_absolute() else None
    if lora is None:
        raise ModelError(say("The LoRA {ref} is not on this machine any more.", ref=ref), advice=ADVICE, title=TITLE)
    return lora


@functools.lru_cache(maxsize=4096)
def _read(file: Path, _mtime_ns: int, size: int) -> LoraFile | None:
    try:
        header = _read_header(file, size)
    except (OSError, ValueError, RecursionError):
        return None
    metadata = header.pop("__metadata__", {})
    family = find_family(header)
    if family is None:
        return None
    ref = file.name.removesuffix(SUFFIX)
    return LoraFile(ref=ref, title=_choose_title(metadata) or ref, family=family, path=file, size=size)


def _read_header(file: Path, size: int) -> dict[str, Any]:
    """Reads a safetensors header; raises ValueError for anything else."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError(say("{length} bytes of header in a file of {size}", length=length, size=size))
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError(say("the header is no object"))
    return header


def find_family(names: Iterable[str]) -> str | None:
    """Returns the family that these tensor names belong to; None for a checkpoint, or a LoRA of another model."""
    names = list(names)
    if not any(map(_ADAPTER.search, names)) or any(map(_FOREIGN.search, names)):
        return None
    families = reversed([*list_traits()])  # SDXL comes last, as its names are the least specific
    return next((family for family, traits in families if any(map(traits.lora_names.search, names))), None)


def _choose_title(metadata: Any) -> str:
    fields = metadata if isinstance(metadata, dict) else {}
    titles = (fields.get(name) for name in TITLE_FIELDS)
    title = next((title for title in titles if isinstance(title, str) and title.strip()), "")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in title).split())[:MAX_TITLE_CHARS]
