"""The files between stages: embeddings, latents, and the settings that go with them.

File names, tensor names and JSON fields are stable, so that stages may run in other processes or on other machines, and
other tools may write the files. Everything is checked when it is read: a file of another model or shape is refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pipelines.errors import StageFileError
from pipelines.files.whole import write_whole
from pipelines.messages import english

EMBEDDINGS_FILE = "stage1_embeddings.safetensors"
LATENTS_FILE = "stage2_latents.safetensors"
CONFIG_FILE = "generation_config.json"

EMBEDDING_NAMES = (
    "prompt_embeds",
    "negative_prompt_embeds",
    "pooled_prompt_embeds",
    "negative_pooled_prompt_embeds",
)


def write_config(folder: Path, fields: Mapping[str, Any]) -> None:
    write_whole(folder / CONFIG_FILE, f"{json.dumps(dict(fields), indent=2, ensure_ascii=False)}\n".encode())


def read_config(folder: Path) -> dict[str, Any]:
    """Reads the settings; raises StageFileError if the file is missing, not JSON, or names no model."""
    file = folder / CONFIG_FILE
    try:
        fields = json.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise StageFileError(
            english(f"{file} is missing."), advice=english("Run `python -m pipelines encode` first.")
        ) from error
    except ValueError as error:
        raise StageFileError(
            english(f"{file} is not JSON: {error}."), advice=english("Run the stage before it again.")
        ) from error
    if not isinstance(fields, dict) or not isinstance(fields.get("model_id"), str):
        raise StageFileError(english(f"{file} names no model_id."), advice=english("Run the stage before it again."))
    return fields


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray], *, model_id: str) -> None:
    """Writes tensors in their own dtypes (bf16 too), and records the model."""
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    dtypes = {name: str(value.dtype) for name, value in contiguous.items()}
    metadata = {"model_id": model_id, "dtypes": json.dumps(dtypes)}
    write_whole(file, save(contiguous, metadata))  # safetensors' own files are for the account alone


def measure_text(file: Path) -> int | None:
    """Returns how many tokens, padding included, the embeddings in a file have; None if that cannot be told."""
    try:
        with safe_open(file, "numpy") as stored:
            shape = stored.get_slice("prompt_embeds").get_shape()
    except (SafetensorError, OSError):  # `read_tensors` says what is wrong with it
        return None
    return int(shape[1]) if len(shape) == 3 and shape[1] else None


def read_tensors(
    file: Path,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    model_id: str,
    repo: str = "",
    stage: str,
) -> dict[str, np.ndarray]:
    """Reads the tensors named in `shapes` as fp32; 0 in a shape stands for any size.

    The file is of `model_id`, which older scripts wrote as the hub's `repo`.
    Raises StageFileError for a missing or damaged file, another model, a missing tensor, another shape, or values that
    are not finite. `stage` is the command that writes such a file.
    """
    again = english(f"Run `python -m pipelines {stage}` for {model_id} again.")
    try:
        with safe_open(file, "numpy") as stored:
            written_for = (stored.metadata() or {}).get("model_id", model_id)
            names = set(stored.keys())
            missing = sorted(set(shapes) - names)
            if written_for not in (model_id, repo or model_id):
                raise StageFileError(english(f"{file} is of {written_for}, not of {model_id}."), advice=again)
            if missing:
                raise StageFileError(english(f"{file} lacks {', '.join(missing)}."), advice=again)
            tensors = {name: np.asarray(stored.get_tensor(name), np.float32) for name in shapes}
    except FileNotFoundError as error:
        raise StageFileError(
            english(f"{file} is missing."), advice=english(f"Run `python -m pipelines {stage}` first.")
        ) from error
    except (SafetensorError, OSError) as error:
        raise StageFileError(english(f"{file} is damaged: {error}."), advice=again) from error
    for name, value in tensors.items():
        wanted = shapes[name]
        if len(wanted) != value.ndim or any(
            want not in (0, size) for want, size in zip(wanted, value.shape, strict=True)
        ):
            readable = tuple("any" if size == 0 else size for size in wanted)
            raise StageFileError(
                english(f"{name} in {file} has shape {value.shape}; {model_id} needs {readable}."), advice=again
            )
        if not np.isfinite(value).all():
            raise StageFileError(english(f"{name} in {file} holds values that are not finite."), advice=again)
    return tensors
