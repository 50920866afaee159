"""Whether a disk has room for what a training of all weights leaves: found before anything is learnt.

Not here: states, for which there may be room later (engine/loop.py).
"""

import math
import shutil
from collections.abc import Sequence

from pipelines.errors import RecipeError
from pipelines.families.trainable import Denoiser
from pipelines.messages import english
from pipelines.models.own_models import INDEX
from pipelines.models.weight_files import find_weight_files, read_header
from pipelines.runtime.weights.components import read_json
from pipelines.training.engine.denoiser import Origin
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
            f"what is learnt takes {needed / 1e9:.1f} GB in {place.output}, and its disk has {free / 1e9:.1f} GB; make "
            "room, or choose another folder"
        )
        raise RecipeError({"output": text})


def _count_weights(origin: Origin, denoiser: Denoiser) -> int:
    stored = origin.files.get(denoiser.component)
    if stored is not None:
        return sum(math.prod(weight.shape) for weight in stored.weights.values())
    files = find_weight_files(origin.folder / denoiser.component, variant=origin.model.variant)
    headers = [read_header(file)[0] for file in files]
    return sum(math.prod(one["shape"]) for header in headers for name, one in header.items() if name != "__metadata__")
