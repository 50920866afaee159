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
from pipelines.training.results.own_parts import measure_own_parts
from pipelines.training.settings import SavePrecision


def check_room(origin: Origin, place: Place, learning: Sequence[Denoiser], precision: SavePrecision) -> None:
    """Raises RecipeError unless the result of these denoisers has room on its disk, where it replaces an earlier one.

    An earlier denoiser is there until the new one is whole; all other parts are removed before they are written anew.
    """
    names = {one.component for one in learning}
    parts = measure_own_parts(origin, names)
    parts += measure_parts(origin.folder, {*names, *origin.files}, origin.model.variant)
    others = [name for name in list_components(read_json(origin.folder / INDEX)) if name not in names]
    taken = parts - sum(_count_freed(place.output / name) for name in others)
    needed = 0
    for one in learning:
        taken += _count_weights(origin, one) * PRECISIONS[precision].itemsize
        needed = max(needed, taken)
        taken -= _count_freed(place.output / one.component)
    free = shutil.disk_usage(place.output).free
    if needed > free:
        text = english(
            f"what is learnt takes {needed / 1e9:.3g} GB more in {place.output}, and its disk has {free / 1e9:.3g} GB; "
            "make room, or choose another folder"
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


def _count_freed(component: Path) -> int:
    """Returns the bytes that a disk gets back with a component: none of files that lie in `models/`, too, as links."""
    found = [file.stat() for _, file in list_files(component, "")] if component.is_dir() else []
    return sum(one.st_size for one in found if one.st_nlink == 1)


def _count_weights(origin: Origin, denoiser: Denoiser) -> int:
    stored = origin.files.get(denoiser.component)
    if stored is not None:
        return sum(math.prod(weight.shape) for weight in stored.weights.values())
    files = find_weight_files(origin.folder / denoiser.component, variant=origin.model.variant)
    headers = [read_header(file)[0] for file in files]
    return sum(math.prod(one["shape"]) for header in headers for name, one in header.items() if name != "__metadata__")
