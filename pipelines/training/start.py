"""The LoRA that a training learns on from: which file a person means, and whether it may be.

Importable without jax. Not here: its values (engine/first_values.py).
"""

import hashlib
from pathlib import Path

from pipelines.errors import RecipeError
from pipelines.loras.files import LoraFile, find_lora_file, inspect_lora, name_given
from pipelines.loras.fit import find_misfit
from pipelines.messages import english
from pipelines.models.catalog import Model
from pipelines.training.settings import TrainingSettings


def find_start(settings: TrainingSettings, model: Model) -> LoraFile | None:
    """Returns the LoRA that a training starts from: one of the data directory's by its name, or a file; None for none.

    Raises RecipeError for one that is not there, or that cannot learn on so.
    """
    if settings.start_from is None:
        return None
    text, ref = settings.start_from[:200], name_given(settings.start_from)
    file = find_lora_file(ref, model.loras_dir)
    if file is None:
        raise RecipeError(
            {"start_from": english(f"there is no LoRA {text}: name a file, or one of the data directory's")}
        )
    lora = inspect_lora(file, ref=ref)
    problem = find_misfit(lora, model)
    if problem is None and lora.kind != "LoRA":
        problem = english(f"it is a {lora.kind}, and only pairs of matrices learn on")
    if problem is None and lora.expert and settings.expert not in (None, "both", lora.expert):
        problem = english(f"it is for the {lora.expert}-noise expert, and the {settings.expert}-noise one learns")
    if problem is not None:
        raise RecipeError({"start_from": english(f"{text} cannot be learnt on from: {problem}")})
    if settings.rank < lora.rank:
        raise RecipeError({"rank": english(f"that of {text} is {lora.rank}; choose as much, or more")})
    return lora


def take_rank(settings: TrainingSettings, model: Model) -> TrainingSettings:
    """Returns the settings with the rank of the LoRA that a training starts from, where none is asked.

    Of a file that cannot be learnt on from, `find_start` says why.
    """
    if settings.start_from is None or "rank" in settings.model_fields_set:
        return settings
    file = find_lora_file(name_given(settings.start_from), model.loras_dir)
    rank = 0 if file is None else inspect_lora(file).rank
    return settings.model_copy(update={"rank": rank}) if rank else settings


def hash_start(lora: LoraFile | None) -> str | None:
    """Returns a hash of the file's content, by which a state knows it; None without one."""
    if lora is None:
        return None
    with Path(lora.path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:20]
