"""Whether a LoRA fits a model, as far as the header of its file and the model's configs tell.

Importable without jax, so that lists say it before a job fails. What they do not tell is left to the merging of the
weights (runtime/weights/lora.py).
"""

import functools
from pathlib import Path

from pipelines.errors import ModelError
from pipelines.families import find_traits
from pipelines.families.traits import Sizes
from pipelines.loras.files import HIGH, LOW, LoraFile
from pipelines.messages import Message, say
from pipelines.models.catalog import Model
from pipelines.models.fingerprints import find_configs


def find_misfit(lora: LoraFile, model: Model) -> Message | None:
    """Returns why the model cannot use this LoRA, as a clause about it; None if nothing speaks against it."""
    if lora.problem is not None:
        return lora.problem
    if lora.family != model.family:
        return say("it is for {family} models, not for {id}", family=lora.family, id=model.id)
    own = _measure(model)
    for name, size in lora.sizes.items():
        if own.get(name, size) != size:
            return say(
                "it is for a model with a {name} of {size}, and that of {id} is {own}",
                name=name,
                size=size,
                id=model.id,
                own=own[name],
            )
    return None


def list_experts(model: Model) -> tuple[str, ...]:
    """Returns the experts of a model that a LoRA may be for, by the noise that they take away; none with one."""
    return (HIGH, LOW) if model.guidance_scale_2 is not None else ()


def _measure(model: Model) -> Sizes:
    """Measures a model; empty where its configs are not here, or are not those of its family."""
    try:
        folder = find_configs(model)
        return _measure_folder(model.family, folder, (folder / "model_index.json").stat().st_mtime_ns)
    except (ModelError, OSError, ValueError, KeyError, TypeError):
        return {}


@functools.lru_cache(maxsize=256)
def _measure_folder(family: str, folder: Path, _mtime_ns: int) -> Sizes:
    return find_traits(family).loras.measure_model(folder)
