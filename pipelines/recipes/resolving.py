"""What a recipe leaves open is filled in from its model, and a recipe that cannot run is refused.

Every problem has one clear message at its field; LoRA tags of the prompt become the recipe's LoRAs.
"""

import math
import secrets
from collections.abc import Sequence

from pipelines.errors import ModelError, RecipeError
from pipelines.loras.files import ADVICE, LoraFile
from pipelines.loras.fit import find_misfit, list_experts
from pipelines.messages import NOTHING, Message, say, tell
from pipelines.models.catalog import Catalog, Model
from pipelines.models.catalog_entries import MAX_FLOW_SHIFT, MAX_FPS, MIN_STRENGTH
from pipelines.pictures.fitting import Fit
from pipelines.prompts.lora_names import find_lora
from pipelines.prompts.lora_tags import list_tags, list_unfollowed, remove_tags
from pipelines.recipes.cache_kinds import MAGCACHE, TAYLOR, find_kind
from pipelines.recipes.recipe import (
    MAX_DRAWN_SEED,
    MAX_LORA_SCALE,
    MAX_LORAS,
    MAX_NAMED,
    MAX_PROMPT_CHARS,
    MAX_SEED,
    NEEDS_PICTURE,
    SCHEMA,
    Lora,
    Recipe,
)
from pipelines.recipes.schedulers import MOST_STEPS, TWICE
from pipelines.recipes.sigmas import find_problem, fit_sigmas, list_idle_beside
from pipelines.recipes.step_cache import NAMES, OFF, describe_saving, share_steps
from pipelines.recipes.taylor import MANY_STEPS, Foresight


def take_lora_tags(recipe: Recipe, catalog: Catalog) -> tuple[Recipe, list[Message]]:
    """Moves LoRA tags such as `<lora:ink:0.8>` from the prompts to the recipe's LoRAs, where they can be applied.

    Returns the recipe, and a sentence for each tag that was applied or left out; raises RecipeError without a model.
    """
    tags = list(list_tags(recipe.prompt))
    negative_prompt = recipe.negative_prompt and remove_tags(recipe.negative_prompt)
    if not tags and negative_prompt == recipe.negative_prompt:
        return recipe, []
    model, files = _get_model(recipe, catalog), catalog.list_lora_files()
    loras = list(recipe.loras)
    given = {lora.ref: lora for lora in loras}
    notes: list[Message] = []
    for tag in tags:
        name, file = tag.name[:80], find_lora(tag.name, files, model)
        if file is None:
            notes.append(say("LoRA {name} is not here: its tag is left out.", name=name))
        elif file.family and file.family != model.family:
            notes.append(
                say("LoRA {name} is for another model than {title}: its tag is left out.", name=name, title=model.title)
            )
        elif misfit := find_misfit(file, model):
            notes.append(say("LoRA {name} is left out: {reason}.", name=name, reason=misfit))
        elif file.ref in given:
            notes.append(say("LoRA {name} is applied once, at {scale}.", name=name, scale=f"{given[file.ref].scale:g}"))
        elif not abs(tag.weight) <= MAX_LORA_SCALE:  # also catches nan
            notes.append(
                say(
                    "LoRA {name} has no weight from {low} to {high}: its tag is left out.",
                    name=name,
                    low=f"{-MAX_LORA_SCALE:g}",
                    high=f"{MAX_LORA_SCALE:g}",
                )
            )
        elif len(loras) == MAX_LORAS:
            notes.append(
                say(
                    "LoRA {name} is one too many, at most {count} are applied: its tag is left out.",
                    name=name,
                    count=MAX_LORAS,
                )
            )
        else:
            given[file.ref] = Lora(ref=file.ref, scale=tag.weight)
            loras.append(given[file.ref])
            notes.append(
                say(
                    "LoRA {ref} is applied at {weight}, as its tag in the prompt says.",
                    ref=file.ref,
                    weight=f"{tag.weight:g}",
                )
            )
            what = say("LoRA {name}", name=file.ref)
            notes += list_unfollowed(what, scale=tag.weight, text_weight=tag.text_weight, rest=tag.rest)
    notes += [
        say("LoRA {name} stands in the negative prompt: its tag is left out.", name=tag.name[:80])
        for tag in list_tags(recipe.negative_prompt or "")
    ]
    changes = {"prompt": remove_tags(recipe.prompt), "negative_prompt": negative_prompt, "loras": (*loras,)}
    return recipe.model_copy(update=changes), list(dict.fromkeys(notes))


def resolve(recipe: Recipe, catalog: Catalog) -> Recipe:
    """Returns the recipe with all fields set and checked against its model; raises RecipeError, a message per field.

    LoRA tags in the prompt are applied as `take_lora_tags` does, which also says so.
    """
    model = _get_model(recipe, catalog)
    recipe, _ = take_lora_tags(recipe, catalog)
    shape = (recipe.shape or str(model.default_shape)).strip().lower()
    scheduler = recipe.scheduler or model.scheduler
    sigmas = fit_sigmas(recipe.sigmas, scheduler)
    filled = recipe.model_copy(
        update={
            "model": model.id,
            "shape": shape,
            "prompt": recipe.prompt.strip(),
            "negative_prompt": model.negative_prompt if recipe.negative_prompt is None else recipe.negative_prompt,
            "seed": secrets.randbelow(MAX_DRAWN_SEED - model.max_batch_size) if recipe.seed is None else recipe.seed,
            "steps": len(sigmas) if sigmas else model.steps if recipe.steps is None else recipe.steps,
            "guidance_scale": model.guidance_scale if recipe.guidance_scale is None else recipe.guidance_scale,
            "guidance_scale_2": _choose_second_scale(recipe, model),
            "scheduler": scheduler,
            "sigmas": sigmas,
            "flow_shift": model.choose_flow_shift(shape) if recipe.flow_shift is None else recipe.flow_shift,
            "fps": model.fps if recipe.fps is None else recipe.fps,
            "strength": model.strength if recipe.strength is None and recipe.images else recipe.strength,
            "fit": recipe.fit or Fit.CROP if recipe.images else recipe.fit,
            "loras": tuple(lora for lora in recipe.loras if lora.scale != 0),
            "revision": None,
            "step_cache": None,
            "reused_steps": (),
        }
    )
    problems = _find_problems(filled, model)
    if sigmas and "scheduler" not in problems and (problem := find_problem(sigmas, scheduler, model)):
        problems.pop("steps", None)  # they are the sigmas' number
        problems["sigmas"] = problem
    asked = (recipe.step_cache or OFF).strip().lower()
    if asked != OFF and (problem := find_cache_problem(asked, scheduler, model)):
        problems["step_cache"] = problem
    if filled.loras and (problem := _find_lora_problem(filled.loras, model, catalog.list_lora_files())):
        problems["loras"] = problem
    if problems:
        raise RecipeError(problems)
    return reuse_steps(filled, asked, model)


def find_cache_problem(asked: str, scheduler: str, model: Model) -> Message:
    """Returns why a model cannot have the step cache `asked` for beside this scheduler, "" if it can."""
    if find_kind(asked) == TAYLOR:
        return _find_taylor_problem(asked, scheduler, model)
    if model.step_cache is None:
        if MAGCACHE not in model.traits.cache_kinds:
            return say(
                "{model} has no step cache of this kind: only Wan and FLUX.2 do; take taylor, or leave it out",
                model=model.id,
            )
        return say(
            "nothing is known of {model}'s steps yet; run python -m pipelines calibrate {model} once", model=model.id
        )
    try:
        model.step_cache.choose(asked)
    except ValueError as error:
        return tell(error)
    return NOTHING


def _find_taylor_problem(asked: str, scheduler: str, model: Model) -> Message:
    if TAYLOR not in model.traits.cache_kinds:
        return say("{model} has no TaylorSeer; leave it out", model=model.id)
    if scheduler in TWICE:
        return say(
            "TaylorSeer foresees steps that follow one another, and {scheduler} goes back in each; take another "
            "scheduler, or leave it out",
            scheduler=scheduler,
        )
    try:
        Foresight.parse(asked)
    except ValueError as error:
        return tell(error)
    return NOTHING


def reuse_steps(recipe: Recipe, asked: str, model: Model) -> Recipe:
    """Returns a resolved recipe with the steps that a step cache reuses, `asked` for by name or in numbers."""
    if find_kind(asked) == TAYLOR:
        foresight = Foresight.parse(asked)
        foreseen = foresight.list_foreseen(
            share_steps(
                model.step_cache.boundary if model.step_cache else None,
                steps=recipe.denoising_steps,
                flow_shift=recipe.flow_shift,
                levels=recipe.sigmas or (),
            )
        )
        return recipe.model_copy(update={"step_cache": str(foresight), "reused_steps": foreseen})
    strength = model.step_cache.choose(asked) if model.step_cache else None
    if not strength or model.step_cache is None:
        return recipe
    reused = model.step_cache.list_reused(
        strength, steps=recipe.denoising_steps, flow_shift=recipe.flow_shift, levels=recipe.sigmas or ()
    )
    text = asked if asked in NAMES else str(strength)
    return recipe.model_copy(update={"step_cache": text, "reused_steps": reused})


def list_idle(asked: Recipe, resolved: Recipe, model: Model) -> list[Message]:
    """Lists in sentences what was asked for and changes nothing, or what changes by itself.

    At a scale of 1 or less there is no guidance; few steps leave a step cache nothing to reuse.
    """
    notes: list[Message] = []
    if resolved.step_cache is not None:
        notes.append(describe_saving(resolved.denoising_steps, resolved.reused_steps))
    if resolved.cache_kind == TAYLOR and resolved.denoising_steps < MANY_STEPS:
        notes.append(
            say(
                "TaylorSeer wants {many} steps or more: of {steps} it makes another picture.",
                many=MANY_STEPS,
                steps=resolved.denoising_steps,
            )
        )
    if resolved.sigmas:
        notes += list_idle_beside(asked.steps, asked.flow_shift, resolved.sigmas)
    scale = resolved.guidance_scale or 0.0
    if scale > 1:
        return notes
    if (asked.guidance_scale_2 or 0.0) > 1:
        notes.append(
            say("A guidance_scale of {scale} turns guidance off: guidance_scale_2 has no effect.", scale=f"{scale:g}")
        )
    if (asked.negative_prompt or "").strip() and asked.negative_prompt != model.negative_prompt:
        notes.append(
            say(
                "A guidance_scale of {scale} turns guidance off: the negative prompt has no effect.", scale=f"{scale:g}"
            )
        )
    return notes


def _get_model(recipe: Recipe, catalog: Catalog) -> Model:
    try:
        return catalog.get(recipe.model)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error


def _choose_second_scale(recipe: Recipe, model: Model) -> float | None:
    """Returns the second expert's scale: the recipe's, or the first one's if only that is given (diffusers' rule)."""
    if recipe.guidance_scale_2 is not None or model.guidance_scale_2 is None:
        return recipe.guidance_scale_2
    return model.guidance_scale_2 if recipe.guidance_scale is None else recipe.guidance_scale


def _find_problems(recipe: Recipe, model: Model) -> dict[str, Message]:
    problems: dict[str, Message] = {}
    if recipe.schema_ != SCHEMA:
        problems["schema"] = say(
            "{schema} is not known here; this server reads schema {known}", schema=recipe.schema_, known=SCHEMA
        )
    if not recipe.prompt:
        problems["prompt"] = say("write what the picture should show")
    for name in ("prompt", "negative_prompt"):
        if len(getattr(recipe, name)) > MAX_PROMPT_CHARS:
            problems[name] = say(
                "has {count} characters; at most {limit} are allowed",
                count=len(getattr(recipe, name)),
                limit=MAX_PROMPT_CHARS,
            )
    if recipe.shape not in [str(shape) for shape in model.shapes]:
        problems["shape"] = say(
            "{shape} is not a shape of {model}; allowed: {shapes}",
            shape=recipe.shape,
            model=model.id,
            shapes=model.shape_list(),
        )
    for name, low, high in (
        ("steps", 1, model.max_steps),
        ("guidance_scale", 0.0, model.max_guidance_scale),
        ("batch_size", 1, model.max_batch_size),
        ("seed", 0, MAX_SEED),
    ):
        value = getattr(recipe, name)
        if not low <= value <= high:  # also catches nan
            problems[name] = say("{value} is out of range; allowed: {low} to {high}", value=value, low=low, high=high)
    if not problems.keys() & {"seed", "batch_size"} and (recipe.seed or 0) + recipe.batch_size - 1 > MAX_SEED:
        problems["seed"] = say(
            "{seed} leaves no seed for picture {place}; the last is {last}",
            seed=recipe.seed,
            place=recipe.batch_size,
            last=MAX_SEED,
        )
    if recipe.scheduler not in model.schedulers:
        problems["scheduler"] = say(
            "{scheduler} is not known; allowed: {schedulers}",
            scheduler=recipe.scheduler,
            schedulers=", ".join(model.schedulers),
        )
    most = MOST_STEPS.get(recipe.scheduler or "", math.inf)
    if "steps" not in problems and (recipe.steps or 0) > most:
        problems["steps"] = say(
            "{steps} are too many for {scheduler}; it takes at most {most}",
            steps=recipe.steps,
            scheduler=recipe.scheduler,
            most=most,
        )
    if len(recipe.images) > model.max_images:
        given, takes = len(recipe.images), model.max_images
        problems["images"] = (
            say("{given} given; {model} takes at most {count} images", given=given, model=model.id, count=takes)
            if takes
            else say("{given} given; {model} takes no images", given=given, model=model.id)
        )
    if len(recipe.images) < model.min_images:
        problems["images"] = (
            say("{model} starts from a picture; give it one", model=model.id)
            if model.min_images == 1
            else say("{model} goes from a first picture to a last one; give it both", model=model.id)
        )
    problems |= _find_optional_problems(recipe, model)
    for name in ("strength", "fit"):
        if getattr(recipe, name) is not None and not recipe.images and not problems.keys() & {name, "images"}:
            problems[name] = NEEDS_PICTURE
    return problems


def _find_optional_problems(recipe: Recipe, model: Model) -> dict[str, Message]:
    """Finds problems of the fields that only some models have."""
    problems: dict[str, Message] = {}
    for name, low, high in (
        ("flow_shift", 1, MAX_FLOW_SHIFT),
        ("fps", 1, MAX_FPS),
        ("guidance_scale_2", 0, model.max_guidance_scale),
        ("strength", MIN_STRENGTH, 1),
    ):
        value = getattr(recipe, name)
        if value is None:
            continue
        if getattr(model, name) is None:
            problems[name] = say("{model} has no {name}; leave it out", model=model.id, name=name)
        elif not low <= value <= high:
            problems[name] = say("{value} is out of range; allowed: {low} to {high}", value=value, low=low, high=high)
    return problems


def _find_lora_problem(loras: Sequence[Lora], model: Model, known: Sequence[LoraFile]) -> Message:
    """Returns the first reason why the model cannot use these LoRAs, "" if there is none."""
    if len(loras) > MAX_LORAS:
        return say("{given} given; at most {count} are allowed", given=len(loras), count=MAX_LORAS)
    files = {file.ref: file for file in known}
    fitting = [ref for ref, file in files.items() if not find_misfit(file, model)]
    named = ", ".join(fitting[:MAX_NAMED] + ["..."] * (len(fitting) > MAX_NAMED)) or say("none yet")
    seen: set[tuple[str, str]] = set()
    for lora in loras:
        ref, scale = lora.ref, lora.scale
        if lora.expert is not None and not list_experts(model):
            return say(
                "{ref} is for the {expert} expert, and {id} has only one; leave the expert out",
                ref=ref,
                expert=lora.expert,
                id=model.id,
            )
        given = {(ref, expert) for expert in lora.experts}
        if seen & given:
            return say("{ref} is given twice; give it once, with the scales added", ref=ref)
        seen |= given
        if not (math.isfinite(scale) and abs(scale) <= MAX_LORA_SCALE):
            return say(
                "{ref} has a scale of {scale}; allowed: {low} to {high}",
                ref=ref,
                scale=scale,
                low=-MAX_LORA_SCALE,
                high=MAX_LORA_SCALE,
            )
        file = files.get(ref) or find_lora(ref, [one for one in known if one.problem], model)
        if file is None:
            return say(
                "there is no LoRA {ref} here. {advice} Those that fit {model}: {names}",
                ref=repr(ref[:80]),
                advice=ADVICE,
                model=model.id,
                names=named,
            )
        if file.family and file.family != model.family:
            return say(
                "{ref} is for {family} models, not for {model}. Those that fit: {names}",
                ref=ref,
                family=file.family,
                model=model.id,
                names=named,
            )
        if misfit := find_misfit(file, model):
            return say("{ref} cannot be used: {reason}. Those that fit: {names}", ref=ref, reason=misfit, names=named)
    return NOTHING
