"""The LoRA that a training learns on from: which file a person means, and whether it may be.

Importable without jax. Not here: its values (engine/first_values.py).
"""

import hashlib

from pipelines.errors import RecipeError
from pipelines.loras.files import LoraFile, find_lora_file, inspect_lora, name_given
from pipelines.loras.fit import find_misfit
from pipelines.loras.settings import find_adapter_config
from pipelines.messages import Message, english, say
from pipelines.models.catalog import Model
from pipelines.training.settings import TrainingSettings


def find_first_lora(settings: TrainingSettings, model: Model) -> LoraFile | None:
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
    problem = find_obstacle(lora, model, expert=settings.expert)
    if problem is not None:
        raise RecipeError({"start_from": english(f"{text} cannot be learnt on from: {problem}")})
    if (problem := find_small_rank(lora, settings.rank)) is not None:
        raise RecipeError({"rank": problem})
    return lora


def find_obstacle(lora: LoraFile, model: Model, *, expert: str | None = None) -> Message | None:
    """Returns why a LoRA cannot learn on with the `expert` (None: all), as a clause about it; None if it can."""
    problem = find_misfit(lora, model)
    if problem is None and lora.kind != "LoRA":
        return say("it is a {kind}, and only pairs of matrices learn on", kind=lora.kind)
    if problem is None and not lora.rank:
        return say("it has no pairs of matrices, and only such learn on")
    if problem is None and lora.expert and expert not in (None, "both", lora.expert):
        return english(f"it is for the {lora.expert}-noise expert, and the {expert}-noise one learns")
    return problem


def find_small_rank(lora: LoraFile, rank: int) -> Message | None:
    """Returns what to say of a rank with which a LoRA cannot learn on; None where it can."""
    if rank >= lora.rank:
        return None
    return say("that of {name} is {found}; choose as much, or more", name=lora.ref[:200], found=lora.rank)


def take_rank(settings: TrainingSettings, model: Model) -> TrainingSettings:
    """Returns the settings with the rank of the LoRA that a training starts from, where none is asked.

    Of a file that cannot be learnt on from, `find_first_lora` says why.
    """
    if settings.start_from is None or "rank" in settings.model_fields_set:
        return settings
    file = find_lora_file(name_given(settings.start_from), model.loras_dir)
    rank = 0 if file is None else inspect_lora(file).rank
    return settings.model_copy(update={"rank": rank}) if rank else settings


def hash_lora(lora: LoraFile | None) -> str | None:
    """Returns a hash of a file's content, and of the alpha that peft keeps beside it, by which a state knows it.

    None without a LoRA.
    """
    if lora is None:
        return None
    with lora.path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256")
    config = find_adapter_config(lora.path)
    if config is not None:
        found.update(config.read_bytes())
    return found.hexdigest()[:20]
