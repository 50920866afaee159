"""The one way to ask for a training: checked against the catalogue, the names in use and the visitor's own pictures.

All problems are told at once, by field. A training is queued like any job (asking.py), within the same quota.
"""

import secrets
from dataclasses import dataclass
from typing import Any

from pipelines.errors import ModelError, RecipeError
from pipelines.families import can_learn
from pipelines.field_errors import tell_first
from pipelines.loras.files import find_namesake
from pipelines.messages import Message, say
from pipelines.models.model import Model
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.weights import hub
from pipelines.training import first_lora
from pipelines.training.data.prompts import AUTO
from studio.jobs import trainings
from studio.jobs.costs import lessons
from studio.jobs.costs.estimates import ALONE, TWINS, History, read_history
from studio.jobs.job import TRAIN, Job
from studio.jobs.queue import Wanted
from studio.jobs.training import STRENGTHS, AskedTraining, Numbers, count_rounds, find_numbers
from studio.jobs.workers import WorkerRow, read_worker
from studio.library.loras import LoraError, clean_name
from studio.services import planned_trainings
from studio.visit import Visit

SEEDS = 2**31  # the engine's, whose samples have the same seed


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A training that can be queued; `name` is that of its LoRA, and `asked` has the rank of one that learns on.

    `recipes` are those of its samples, `prior` those of the pictures that the model makes first.
    """

    asked: AskedTraining
    model: Model
    name: str
    recipes: tuple[Recipe, ...]
    prior: tuple[Recipe, ...]


def submit(visit: Visit, asked: AskedTraining) -> Job:
    """Queues a training; raises NotAllowedError, RecipeError, RateError, PromptRefusedError, QueueQuotaError."""
    visit.require_trainer()
    prepared = prepare(visit, asked)
    asked = prepared.asked
    visit.studio.door.admit(visit.person, (*prepared.recipes, *prepared.prior))
    model, name = prepared.model, prepared.name
    wanted = Wanted(
        recipe=prepared.recipes[0],
        programs=lessons.name_programs(has_twins=asked.has_twins),
        kind=TRAIN,
        steps=asked.choose_numbers(model).steps * count_rounds(model),
        title=name,
        notes=_note_name(asked, name),
    )
    quota = visit.studio.settings.queue_quota
    prior = lessons.describe_prior(asked, model)
    kept = asked.with_numbers(model)
    return trainings.submit(visit.database, wanted, kept, name=name, owner=visit.owner, quota=quota, prior=prior)


def prepare(visit: Visit, asked: AskedTraining) -> Prepared:
    """Checks a training; raises RecipeError with a message for every field at fault."""
    problems: dict[str, Message] = {}
    model = _find_model(visit, asked, problems)
    name = _choose_name(visit, asked, problems)
    if model is not None and asked.start_from is not None:
        asked = _take_start(visit, asked, model, problems)
    if not asked.pictures:
        problems["pictures"] = say("add at least one picture or clip")
    problems |= trainings.find_strangers(visit.database.read, asked, owner=visit.owner)
    if model is not None and not model.is_video:
        problems |= _refuse_clips(visit, asked, model)
    seen: set[str] = set()
    for place, picture in enumerate(asked.pictures):
        if picture.id in seen:
            problems[f"pictures.{place}.id"] = say("is there twice")
        seen.add(picture.id)
        if not asked.caption_of(picture):
            problems[f"pictures.{place}.caption"] = say("write what is to be seen, or give a trigger word")
    recipes = _make_recipes(visit, asked, model, problems) if model else ()
    prior = _make_prior(visit, asked, model, problems) if model else ()
    if problems or model is None:
        raise RecipeError(tell_first(problems))
    return Prepared(asked=asked, model=model, name=name, recipes=recipes, prior=prior)


def find_obstacle(model: Model) -> Message | None:
    """Returns why a model cannot learn here, as a clause about it; None if it can."""
    if not can_learn(model.family):
        return say("models of the family {family} cannot be trained here", family=model.family)
    if model.min_images:
        return say("{model} needs a picture to start from, and cannot be trained yet", model=model.id)
    return None


def describe_choices(visit: Visit) -> dict[str, Any]:
    """Returns what a training can be asked for: models with their strengths, and what each will take."""
    catalog, worker, history = visit.studio.catalog, read_worker(visit.database), read_history(visit.database)
    able = [model for model in catalog.models if find_obstacle(model) is None]
    is_fake = visit.studio.settings.fake
    ids = [model.id for model in able]
    opening = visit.studio.opening_model_id or visit.studio.default_model.id
    return {
        "may_train": visit.may_train,
        "default": opening if opening in ids else ids[0] if ids else None,
        "models": [
            {
                "id": model.id,
                "title": model.title,
                "is_here": is_fake or (hub.is_here(model) and hub.is_here(model.choose_start())),
                "clip_s": _find_clip_s(model),
                "starts_from": model.choose_start().repo if model.choose_start() != model else None,
                "strengths": {
                    strength: _describe_strength(find_numbers(model, strength), model, worker, history)
                    for strength in STRENGTHS
                },
                "prior": {
                    "prompts": len(model.examples),
                    "picture": lessons.describe_cost(lessons.estimate_picture_s(history, model), worker),
                },
            }
            for model in able
        ],
    }


def _find_clip_s(model: Model) -> float | None:
    """Returns how much of a clip's beginning a model learns at the most; None for a model of pictures."""
    return max(shape.frames for shape in model.shapes) / model.fps if model.fps else None


def _describe_strength(numbers: Numbers, model: Model, worker: WorkerRow, history: History) -> dict[str, Any]:
    def describe(programs: str) -> dict[str, Any]:
        steps = numbers.steps * count_rounds(model)
        seconds = lessons.estimate_training_s(history, model.id, steps=steps, programs=programs)
        measured = lessons.make_measure(model.id)
        is_about = seconds is not None and not history.is_measured(measured, programs)
        step_s = history.step_s(measured, programs)
        planned = None
        if seconds is None:
            planned = planned_trainings.find_step(model, worker.devices, hosts=worker.hosts, rank=numbers.rank)
        if planned is not None:
            step_s = planned.step_s * lessons.count_shown(programs)
            seconds, is_about = steps * step_s, programs == TWINS or planned.is_about
        return {
            **lessons.describe_cost(seconds, worker),
            "step_s": step_s,
            "is_about": is_about,
            "is_planned": planned is not None,
        }

    return {**vars(numbers), **describe(TWINS), "alone": describe(ALONE)}


def _find_model(visit: Visit, asked: AskedTraining, problems: dict[str, Message]) -> Model | None:
    try:
        model = visit.studio.catalog.get(asked.model)
    except ModelError as error:
        problems["model"] = error.whole
        return None
    if obstacle := find_obstacle(model):
        problems["model"] = obstacle
        return None
    return model


def _take_start(visit: Visit, asked: AskedTraining, model: Model, problems: dict[str, Message]) -> AskedTraining:
    """Returns what is asked with the rank of the LoRA that learns on, where none is asked."""
    lora = next((one for one in visit.studio.catalog.list_lora_files() if one.ref == asked.start_from), None)
    if lora is None:
        problems["start_from"] = say("there is no LoRA {name} here; choose another one", name=repr(asked.start_from))
        return asked
    if (problem := first_lora.find_obstacle(lora, model)) is not None:
        problems["start_from"] = say("{name} cannot learn on: {problem}", name=lora.title, problem=problem)
        return asked
    if asked.rank is None:
        return asked.model_copy(update={"rank": lora.rank})
    if (problem := first_lora.find_small_rank(lora, asked.rank)) is not None:
        problems["rank"] = problem
    return asked


def _choose_name(visit: Visit, asked: AskedTraining, problems: dict[str, Message]) -> str:
    if not asked.name.strip():
        problems["name"] = say("give it a name")
        return ""
    try:
        name = clean_name(asked.name)
    except LoraError:
        problems["name"] = say("needs a letter or a digit")
        return ""
    taken = find_namesake(name, visit.studio.settings.loras_dir)
    if taken is not None and taken in trainings.list_loras_of(visit.database, owner=visit.owner):
        problems["name"] = say(
            "your LoRA {name} has this name: delete it first, or choose another name", name=repr(taken)
        )
    elif taken is not None:
        problems["name"] = say("there is a LoRA {name} already; choose another name", name=repr(taken))
    elif trainings.is_name_wanted(visit.database, name):
        problems["name"] = say(
            "a training that has not ended makes a LoRA {name}; choose another name, or cancel it", name=repr(name)
        )
    return name


def _note_name(asked: AskedTraining, name: str) -> tuple[Message, ...]:
    """Returns what there is to say where the LoRA's name is not the one that was asked for."""
    if name == asked.name.strip():
        return ()
    return (say("The LoRA is called {name}: a file's name cannot have all that was asked for.", name=repr(name)),)


def _make_recipes(visit: Visit, asked: AskedTraining, model: Model, problems: dict[str, Message]) -> tuple[Recipe, ...]:
    """Returns the recipes of the samples, all with one seed; without prompts, that of the first caption.

    Where that is missing, it is told as missing, and nothing is said of a prompt.
    """
    prompts = asked.sample_prompts
    if not prompts and asked.pictures and asked.caption_of(asked.pictures[0]):
        prompts = (_write_prompt(asked),)
    seed = secrets.randbelow(SEEDS)
    recipes: list[Recipe] = []
    for place, prompt in enumerate(prompts):
        try:
            recipes.append(resolve(Recipe(model=model.id, prompt=prompt, seed=seed), visit.studio.catalog))
        except RecipeError as error:
            problems[f"sample_prompts.{place}"] = error.fields.get("prompt", error.detail)
    return tuple(recipes)


def _make_prior(visit: Visit, asked: AskedTraining, model: Model, problems: dict[str, Message]) -> tuple[Recipe, ...]:
    """Returns the recipes of the pictures that the model makes first."""
    if asked.prior_prompts and not asked.list_prior_prompts(model):
        problems["prior_prompts"] = say("{model} has no example prompts; write some, one a line", model=model.title)
    recipes: list[Recipe] = []
    for place, prompt in enumerate(asked.prior_prompts):
        for one in asked.list_prior_prompts(model) if prompt == AUTO else [prompt]:
            try:
                recipes.append(resolve(Recipe(model=model.id, prompt=one), visit.studio.catalog))
            except RecipeError as error:
                problems[f"prior_prompts.{place}"] = error.fields.get("prompt", error.detail)
    return tuple(recipes)


def _refuse_clips(visit: Visit, asked: AskedTraining, model: Model) -> dict[str, Message]:
    """Returns a message for each video, which a model of pictures cannot learn."""
    is_video = trainings.find_lessons(visit.database.read, asked, owner=visit.owner)
    reason = say("is a video, and {model} learns pictures; remove it, or train a Wan model", model=model.title)
    return {f"pictures.{place}.id": reason for place, picture in enumerate(asked.pictures) if is_video.get(picture.id)}


def _write_prompt(asked: AskedTraining) -> str:
    """Returns the first caption as it is learnt, with the trigger in front."""
    caption, trigger = asked.caption_of(asked.pictures[0]), asked.trigger.strip()
    return caption if trigger.lower() in caption.lower() else f"{trigger}, {caption}"
