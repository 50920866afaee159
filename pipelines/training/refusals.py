"""Refuses what a training is asked for and would fail later, harm its own data, or do nothing with that model.

All is found by names, configs and layers without weights, before anything is fetched.
Not here: settings by themselves (settings.py), the data (data/).
"""

from pathlib import Path

from pydantic import ValidationError

from pipelines.errors import RecipeError
from pipelines.families.trainable import Learner
from pipelines.loras.files import SUFFIX
from pipelines.messages import Message, english, say
from pipelines.models.catalog import Catalog, Model
from pipelines.models.own_models import INDEX
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.training.configs import find_known_configs
from pipelines.training.data.sources import Origin
from pipelines.training.data.trainings import find_trainings, is_training
from pipelines.training.engine.adapters import choose_layers
from pipelines.training.settings import TrainingSettings, refuse_asked

MOST_NAME_BYTES = 200
"""File systems take 255, of which samples and endings need some."""


def find_strange(settings: TrainingSettings, model: Model, learner: Learner) -> dict[str, Message]:
    """Refuses what is asked of another kind of model: it would do nothing."""
    problems: dict[str, Message] = {}
    if learner.process == "flow":
        reason = say("is of models with discrete timesteps, and {model} is a flow model", model=model.title)
        problems |= refuse_asked(settings, ("prediction_type", "snr_gamma", "noise_offset"), reason)
    else:
        reason = say("is of flow models, and {model} has discrete timesteps", model=model.title)
        problems |= refuse_asked(settings, ("sigmas", "shift"), reason)
    if not model.is_video:
        reason = say("is of videos, and {model} makes pictures", model=model.title)
        problems |= refuse_asked(settings, ("frames", "whole_clips"), reason)
    start = model.choose_start()
    if not start.repo or start.path is not None or start.file is not None:
        reason = english(f"is of a hub repository, and {model.title} is none")
        problems |= refuse_asked(settings, ("revision", "non_ema_revision"), reason)
    if start.file is not None:
        reason = english(f"is of models with a file for each part, and {model.title} is a single one; leave it out")
        problems |= refuse_asked(settings, ("variant",), reason)
    folder = find_known_configs(start)
    if folder is None:
        return problems  # what is not here yet is looked at when it has been fetched
    learner.check(folder)
    denoisers = learner.list_denoisers(folder, {})
    if len(denoisers) == 1:
        reason = say("is of models with two experts, and {model} has one denoiser", model=model.title)
        problems |= refuse_asked(settings, ("expert",), reason)
    if settings.targets is not None and settings.lora:
        try:
            for denoiser in denoisers:
                choose_layers(learner.build_denoiser(folder, denoiser.component), settings)
        except RecipeError as error:
            problems |= error.fields
    return problems


def check_samples(settings: TrainingSettings, model: Model) -> dict[str, Message]:
    """Refuses prompts of which no picture could be made, which would be found after the first steps."""
    for prompt in settings.sample:
        try:
            resolve(Recipe(model=model.id, prompt=prompt, seed=settings.seed), Catalog(models=(model,)))
        except ValidationError:
            return {"sample": english("a prompt is no UTF-8, or too long; write it anew")}
        except RecipeError as error:
            return {"sample": say("{prompt} cannot be made: {reason}", prompt=repr(prompt[:80]), reason=error.whole)}
    return {}


def check_folders(settings: TrainingSettings) -> dict[str, Message]:
    """Refuses a training's folder among the data: its samples and prior pictures would be learnt."""
    held = settings.validate_with
    places = [(place, "data") for place in settings.data]
    if held is not None and Path(held).is_dir():
        places.append((held, "validate"))
    for text, name in places:
        path = Origin.parse(text).path
        if path is None or not path.is_dir():
            continue
        place = path.resolve()
        if settings.output is not None and settings.output.resolve().is_relative_to(place):
            return {"output": say("{output} lies in {place}, whose pictures are data, and so would its own be; "
                                  "choose another folder", output=settings.output, place=place)}  # fmt: skip
        for folder in find_trainings(place):
            return {name: say("{folder} is the folder of a training, whose samples would be learnt; move it "
                              "elsewhere, and name that place as output to go on with it", folder=folder)}  # fmt: skip
    return {}


def check_output(settings: TrainingSettings, model: Model) -> dict[str, Message]:
    """Refuses a folder for the result of all weights that holds a model of somebody's, which would be lost."""
    output = settings.output
    if output is None or not settings.full or not (output / INDEX).is_file():
        return {}
    if model.path is not None and output.resolve() == model.path.resolve():
        return {"output": english(f"{output} is the model that it learns from; choose another folder")}
    if is_training(output):
        return {}
    return {"output": english(f"{output} holds a model that no training here has made; choose another folder")}


def check_name(name: str) -> dict[str, Message]:
    """Refuses a name that is no file's: with folders in it, hidden, or too long."""
    if name and not name.startswith(".") and name.isprintable() and not {*name} & {*"/\\"}:
        if name.endswith(SUFFIX):
            return {"name": say("{name} is a file's; leave out {ending}", name=name[:40], ending=SUFFIX)}
        if len(name.encode()) <= MOST_NAME_BYTES:
            return {}
        return {"name": say("{name}... is too long for a file's; choose a shorter one", name=name[:40])}
    return {"name": say("{name} is no file's name: leave out / and \\, and begin it with another sign than a dot",
                        name=repr(name))}  # fmt: skip
