"""The LoRA that a training learns on from, as a copy in the training's folder.

The first attempt copies it, and every attempt learns from the copy, here or on another machine, which has it with the
training's work: whoever deletes or replaces the LoRA afterwards changes nothing of the training. The engine finds the
copy under the LoRA's own ref, in a folder that stands for the model's folder of LoRAs.
Not here: whether a LoRA can learn on (pipelines/training/start.py).
"""

import shutil
from dataclasses import replace
from pathlib import Path, PurePath

from pipelines.errors import LumeshError
from pipelines.files.whole import put_whole
from pipelines.loras.files import find_lora_file
from pipelines.loras.settings import find_adapter_config
from pipelines.messages import Message, say
from pipelines.models.model import Model

START = PurePath("start", "lora")
"""Two deep: the names right below a folder of a training's work are steps of its states (training_packs.py)."""
PUT_BACK = say("Put the LoRA back and let the training go on, or use its pictures and begin from another one.")


class StartGoneError(LumeshError):
    """The LoRA was deleted before the training's first attempt copied it."""

    title = say("The LoRA to go on from is gone")


def keep_start(folder: Path, ref: str, loras_dir: Path) -> None:
    """Copies a LoRA into the folder of a training, unless its copy is there; raises StartGoneError where neither is."""
    if has_start(folder, ref):
        return
    file = find_lora_file(ref, loras_dir)
    if file is None:
        raise StartGoneError(tell_gone(ref), advice=PUT_BACK)
    config = find_adapter_config(file)
    shutil.rmtree(folder / START, ignore_errors=True)  # what a kill left of a copy: it would be sent with each state
    try:
        for source in (config, file) if config is not None else (file,):  # the weights last: they mark a whole copy
            target = folder / START / source.relative_to(loras_dir)
            put_whole(target, lambda part, source=source: shutil.copyfile(source, part))
    except FileNotFoundError as error:  # deleted just now
        raise StartGoneError(tell_gone(ref), advice=PUT_BACK) from error


def has_start(folder: Path, ref: str) -> bool:
    """Tells whether the folder of a training has its own copy of a LoRA."""
    return find_lora_file(ref, folder / START) is not None


def tell_gone(ref: str) -> Message:
    """Returns what to say of a LoRA that is neither here nor in the training's folder."""
    return say("This training begins from the LoRA {ref}, which is not here any more.", ref=repr(ref))


def with_start(model: Model, folder: Path) -> Model:
    """Returns the model with the copy as its LoRAs, if the folder of a training has one."""
    place = folder / START
    return replace(model, loras_dir=place) if place.is_dir() else model
