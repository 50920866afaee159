"""Saves training state to disk atomically.

A checkpoint is written beside its final name, synced, then renamed: `kill -9` at any moment leaves a complete one.
Two are kept, so that a disk that lies about syncing costs one interval and not the whole training.
"""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from pipelines.messages import english

KEPT = 2


def save_checkpoint(folder: Path, state: Any, *, step: int, facts: dict[str, str]) -> Path:
    """Writes a pytree of arrays as `step-NNNNNNNN.safetensors` and drops all but the newest `KEPT`."""
    folder.mkdir(parents=True, exist_ok=True)
    leaves = jax.tree.leaves(state)
    tensors = {f"{index:05d}": np.asarray(jax.device_get(leaf), order="C") for index, leaf in enumerate(leaves)}
    final = folder / f"step-{step:08d}.safetensors"
    partial = final.with_suffix(".partial")
    save_file(tensors, partial, metadata={"step": str(step), "facts": json.dumps(facts)})
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.rename(final)
    for old in _find(folder)[:-KEPT]:
        old.unlink()
    return final


def load_checkpoint(folder: Path, template: Any) -> tuple[Any, int] | None:
    """Loads the newest readable state in the template's structure, with its step; returns None if there is none.

    A checkpoint of other shapes (another model or optimizer) raises ValueError and is never partly used.
    """
    for file in reversed(_find(folder)):
        try:
            return _read(file, template)
        except (SafetensorError, OSError):  # damaged by a crash of the machine itself: the one before is complete
            continue
    return None


def _read(file: Path, template: Any) -> tuple[Any, int]:
    leaves, structure = jax.tree.flatten(template)
    with safe_open(file, "numpy") as tensors:
        step = int(tensors.metadata()["step"])
        loaded = [tensors.get_tensor(name) for name in sorted(tensors.keys())]
    shapes = [np.shape(leaf) for leaf in leaves]
    if shapes != [value.shape for value in loaded]:
        raise ValueError(
            english(f"{file} is of another model or optimizer; give another folder, or remove it to start anew")
        )
    return jax.tree.unflatten(structure, loaded), step


def _find(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))
