"""Whether a disk has room for what a training leaves, and for its states: told before anything is learnt.

Not here: what is done when there is none for a state later (engine/loop.py).
"""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import jax

from pipelines.errors import RecipeError
from pipelines.families.trainable import Denoiser
from pipelines.messages import Message, english, say
from pipelines.models.own_models import INDEX
from pipelines.models.weight_files import find_weight_files, read_header
from pipelines.runtime.weights.components import read_json
from pipelines.training.engine.denoiser import Origin
from pipelines.training.engine.step import TrainState
from pipelines.training.place import Place
from pipelines.training.results.export import PRECISIONS
from pipelines.training.results.model_folder import list_components, list_files, measure_parts
from pipelines.training.settings import SavePrecision


def check_room(origin: Origin, place: Place, learning: Sequence[Denoiser], precision: SavePrecision) -> None:
    """Raises RecipeError unless the result of these denoisers, beside what is there of it, has room on its disk."""
    variant = origin.model.variant
    needed = sum(_count_weights(origin, one) for one in learning) * PRECISIONS[precision].itemsize
    needed += measure_parts(origin.folder, {one.component for one in learning}, variant)
    parts = [place.output / name for name in list_components(read_json(origin.folder / INDEX))]
    there = sum(file.stat().st_size for part in parts if part.is_dir() for _, file in list_files(part, ""))
    free = shutil.disk_usage(place.output).free
    if needed > free + there:
        text = english(
            f"what is learnt takes {needed / 1e9:.3g} GB in {place.output}, and its disk has {free / 1e9:.3g} GB; make "
            "room, or choose another folder"
        )
        raise RecipeError({"output": text})


def tell_room(state: TrainState, folder: Path) -> Message | None:
    """Says where a state has no room in a folder, for which room may be made while it learns; None where it has."""
    needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return None
    return say(
        "A state takes {needed} GB, and the disk has {free} GB: a stop would lose what is learnt. Make room meanwhile.",
        needed=f"{needed / 1e9:.3g}",
        free=f"{free / 1e9:.3g}",
    )


def _count_weights(origin: Origin, denoiser: Denoiser) -> int:
    stored = origin.files.get(denoiser.component)
    if stored is not None:
        return sum(math.prod(weight.shape) for weight in stored.weights.values())
    files = find_weight_files(origin.folder / denoiser.component, variant=origin.model.variant)
    headers = [read_header(file)[0] for file in files]
    return sum(math.prod(one["shape"]) for header in headers for name, one in header.items() if name != "__metadata__")
