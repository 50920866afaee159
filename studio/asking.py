"""The one way to ask for work: REST, the page's endpoints, OpenAI's API, MCP, grids and sweeps all come through here.

A recipe is checked against the catalogue and the visitor's own pictures (`prepare`), admitted (the visitor's rate
limit, the operator's prompt hook), and queued within the visitor's quota (`submit`). Only those who may see a job can
edit, cancel and retry it. Protocols differ in their syntax, never in what they allow.
Not here: who asks (visit.py), rows (jobs/queue.py), routes (api/routes), expanding grids and sweeps (jobs/many).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipelines.errors import ModelError, RecipeError
from pipelines.loras.files import find_lora_file
from pipelines.messages import Message, say
from pipelines.models.model import Model
from pipelines.program_sets import ProgramSet
from pipelines.prompts.reading import count_chunks, list_notes
from pipelines.recipes.recipe import Recipe, carry_over, read_recipe
from pipelines.recipes.resolving import list_idle, resolve, take_lora_tags
from studio.further import tell_all
from studio.jobs import queue
from studio.jobs.job import TRAIN, Job
from studio.jobs.many import grid_spec, grid_store, sweep
from studio.jobs.queue import JobStateError, Wanted
from studio.jobs.trainings import Training
from studio.library import inputs, training_starts
from studio.library.wildcards import read_wildcard
from studio.visit import Visit


def prepare(visit: Visit, recipe: Recipe, *, preset: str | None = None, owner: str | None = None) -> Wanted:
    """Checks and fills a recipe, and names the programs it needs; raises RecipeError.

    `preset` is the id of the preset that the settings came from; raises NotFoundError when it does not exist. With
    another model or prompt than the preset's the job is not filed under it, which its notes say. `owner` is the owner
    of the input pictures, if that is not the visitor.
    """
    asked = recipe.prompt
    recipe, notes = take_lora_tags(recipe, visit.studio.catalog)
    resolved = resolve(recipe, visit.studio.catalog)
    model = visit.studio.catalog.get(resolved.model)
    references = inputs.find_references(visit.database, model, resolved, owner=owner or visit.owner)
    prompts = resolved.prompt, resolved.negative_prompt
    preset, doubts = _find_preset(visit, preset, model=model, prompt=asked)
    return Wanted(
        recipe=resolved,
        programs=ProgramSet.of(resolved, references=references, text_chunks=count_chunks(model, *prompts)).name_for(
            model
        ),
        preset=preset,
        notes=[
            *doubts,
            *notes,
            *list_idle(recipe, resolved, model),
            *list_notes(model, *prompts, has_loras=bool(resolved.loras)),
        ],
    )


def prepare_fields(visit: Visit, fields: dict[str, Any], *, owner: str | None = None) -> Wanted:
    """Reads a recipe from untrusted JSON and prepares it; raises RecipeError that names all that is wrong with it."""
    try:
        recipe = read_recipe(fields)
    except RecipeError as error:
        told = tell_all(error.fields, fields, lambda others: prepare(visit, read_recipe(others), owner=owner))
        raise RecipeError(told) from error
    return prepare(visit, recipe, owner=owner)


def _find_preset(visit: Visit, preset_id: str | None, *, model: Model, prompt: str) -> tuple[str | None, list[Message]]:
    """Returns the preset's id if model and prompt, as they were asked for, are its own; else None, and why."""
    if preset_id is None:
        return None, []
    preset = visit.get_preset(preset_id).preset
    if preset.recipe.model in (model.id, model.repo) and preset.recipe.prompt.split() == prompt.split():
        return preset_id, []
    note = say(
        "Not filed under the preset {title}: the model or the prompt is no longer the preset's.",
        title=repr(preset.title),
    )
    return None, [note]


def submit(visit: Visit, wanted: Sequence[Wanted]) -> list[Job]:
    """Queues all jobs in this order, or none.

    Raises RateError, PromptRefusedError, QueueQuotaError, DiskFullError, or RecipeError for unknown pictures.
    """
    _admit(visit, [job.recipe for job in wanted])
    return queue.submit_all(visit.database, wanted, owner=visit.owner, quota=_quota(visit))


def edit(visit: Visit, job_id: str, changes: dict[str, Any]) -> Job:
    """Changes fields of a waiting job's recipe; raises JobStateError when it is no longer waiting.

    With another model, fields not given take that model's defaults. The job stays filed under its preset as long as
    model and prompt stay.
    """
    job = _require_recipe(visit.get_job(job_id))
    is_other_model = changes.get("model", job.recipe.model) != job.recipe.model
    fields = carry_over(job.recipe) if is_other_model else job.recipe.to_json()
    wanted = prepare_fields(visit, {**fields, **changes}, owner=job.owner)
    _admit(visit, [wanted.recipe])
    queue.edit(visit.database, job_id, wanted)
    return visit.get_job(job_id)


def cancel(visit: Visit, job_id: str) -> Job:
    """Cancels a waiting job at once, a running one at its next chunk; returns the job in its current state."""
    visit.get_job(job_id)
    queue.cancel(visit.database, job_id)
    return visit.get_job(job_id)


def withdraw(visit: Visit, job_ids: Sequence[str]) -> None:
    """Cancels jobs whose result the visitor no longer waits for; ended jobs stay as they are."""
    for job_id in job_ids:
        queue.cancel(visit.database, job_id)


def retry(visit: Visit, job_id: str) -> Job:
    """Queues a failed, cancelled, interrupted or paused job again under its own id; raises JobStateError for others.

    A training goes on from its last state, with the model and the LoRA that it learns from, and pictures are made with
    the model and LoRAs of their recipe: JobStateError where they are gone.
    """
    job = visit.get_job(job_id)
    if job.kind == TRAIN:
        visit.require_trainer()
        _, training = visit.get_training(job_id)  # it may have been deleted
        _require_base(visit, job)
        _require_start(visit, training)
    else:
        _require_parts(visit, [job.recipe])
    _admit(visit, [job.recipe])
    queue.retry(visit.database, job_id, quota=_quota(visit))
    return visit.get_job(job_id)


def duplicate(visit: Visit, job_id: str, *, keeps_seed: bool) -> Job:
    """Queues a job's recipe once more as a new job, with a new seed unless `keeps_seed`."""
    recipe = _require_recipe(visit.get_job(job_id)).recipe
    if not keeps_seed:
        recipe = recipe.model_copy(update={"seed": None})
    return submit(visit, [prepare(visit, recipe)])[0]


def expand_sweep(visit: Visit, asked: sweep.Sweep) -> sweep.Expanded:
    """Parses a sweep's prompt with the studio's wildcards; raises RecipeError."""
    folder = visit.studio.settings.wildcards_dir
    return sweep.expand(asked, lambda name: read_wildcard(folder, name))


def submit_sweep(visit: Visit, asked: sweep.Sweep, *, preset: str | None = None) -> list[Job]:
    """Queues a job for every prompt and seed, in order, or none of them."""
    wanted = [prepare(visit, recipe) for recipe in expand_sweep(visit, asked).list_recipes()]
    # A preset's prompt may have choices too, so the whole prompt counts.
    model = visit.studio.catalog.get(wanted[0].recipe.model)
    preset, doubts = _find_preset(visit, preset, model=model, prompt=asked.recipe.prompt)
    return submit(visit, [replace(job, preset=preset, notes=[*doubts, *job.notes]) for job in wanted])


def expand_grid(visit: Visit, asked: grid_spec.Grid) -> grid_spec.Expanded:
    """Parses a grid's axes and recipe; raises RecipeError."""
    return grid_spec.expand(asked, lambda recipe: prepare(visit, recipe))


def submit_grid(visit: Visit, asked: grid_spec.Grid) -> tuple[str, list[str]]:
    """Queues a job for each cell, or none; returns the grid's id, and its jobs' ids row by row."""
    expanded = expand_grid(visit, asked)
    if not expanded.is_too_many:  # a grid that is too large is refused below, before its cells are expanded
        _admit(visit, [cell.recipe for cell in expanded.cells])
    return grid_store.submit(visit.database, expanded, owner=visit.owner, quota=_quota(visit))


def retry_grid(visit: Visit, grid_id: str) -> list[str]:
    """Queues a grid's failed, cancelled and interrupted cells again; returns the ids of their jobs."""
    grid = visit.get_grid(grid_id)
    recipes = [job.recipe for job in queue.read_jobs(visit.database, [cell.job_id for cell in grid.cells])]
    _require_parts(visit, recipes)
    _admit(visit, recipes)
    return grid_store.retry(visit.database, grid, quota=_quota(visit))


def _require_recipe(job: Job) -> Job:
    """Returns the job; raises JobStateError for a training, whose recipe is only that of its samples."""
    if job.kind == TRAIN:
        raise JobStateError(
            say("Job {id} is a training, which is not made from a recipe.", id=job.id),
            advice=say("Ask for another training; POST /api/v1/trainings says how."),
        )
    return job


def _require_base(visit: Visit, job: Job) -> None:
    """Raises JobStateError for a training whose model is not here any more."""
    try:
        visit.studio.catalog.get(job.recipe.model)
    except ModelError as error:
        raise JobStateError(
            say("The model {model}, which {name} learns from, is not here any more, or cannot be used.",
                model=repr(job.recipe.model), name=job.title),
            advice=say("Put it back under this name to go on, or use its pictures to train another model."),
        ) from error  # fmt: skip


def _require_parts(visit: Visit, recipes: Sequence[Recipe]) -> None:
    """Raises JobStateError where a model or a LoRA of the recipes is not here any more: they would fail again."""
    catalog = visit.studio.catalog
    models = {model.id for model in catalog.models}
    loras = {file.ref for file in catalog.list_lora_files()} if any(recipe.loras for recipe in recipes) else set[str]()
    advice = say("Put it back under this name to try again, or use the settings with another one.")
    for recipe in recipes:
        if recipe.model not in models:
            raise JobStateError(
                say("The model {model} is not here any more, or cannot be used.", model=repr(recipe.model)),
                advice=advice,
            )
        for lora in recipe.loras:
            if lora.ref not in loras:
                raise JobStateError(say("The LoRA {ref} is not here any more.", ref=repr(lora.ref)), advice=advice)


def _require_start(visit: Visit, training: Training) -> None:
    """Raises JobStateError for a training that begins from a LoRA that is gone, and has no copy of it."""
    ref, settings = training.asked.start_from, visit.studio.settings
    if ref is None or training_starts.has_start(settings.training_dir / training.job_id, ref):
        return
    if find_lora_file(ref, settings.loras_dir) is None:
        raise JobStateError(training_starts.tell_gone(ref), advice=training_starts.PUT_BACK)


def _admit(visit: Visit, recipes: Sequence[Recipe]) -> None:
    visit.studio.door.admit(visit.person, recipes)


def _quota(visit: Visit) -> int:
    return visit.studio.settings.queue_quota
