"""Turns what was found in a file into a recipe for this studio, and reports everything that could not be kept.

The recipe takes the file's model if it is known, else the chosen one, and the nearest of the model's shapes. Every
value passes the same check as a submitted recipe (`resolve`); a value that fails is replaced by the model's default.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pipelines.errors import RecipeError
from pipelines.loras.fit import find_misfit, list_experts
from pipelines.messages import Message, say
from pipelines.models.catalog import Catalog, Model, Shape
from pipelines.prompts.lora_names import find_lora
from pipelines.prompts.lora_tags import LoraTag, list_tags, list_unfollowed, remove_tags
from pipelines.prompts.reading import list_notes
from pipelines.recipes.recipe import MAX_LORA_SCALE, MAX_LORAS, MAX_PROMPT_CHARS, NEEDS_PICTURE, SCHEMA, Lora, Recipe
from pipelines.recipes.resolving import resolve
from studio.library.foreign.bounded import clean, shorten
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import MAX_LISTED, NO_COUNTERPART, Found, FoundLora, ReadRecipe, Unusable
from studio.library.foreign.names import find_model, find_scheduler, find_spaced, is_ordinary_schedule, split_sampler

IsInput = Callable[[str], bool]
OWN = "Lumesh"
MAX_IMAGES = 16  # input pictures that are looked up at most; no model takes as many
MAX_LOOKED_FOR = 100  # LoRAs of one file that are looked up, more than anybody uses
_LABELS = {
    "seed": say("Seed"),
    "steps": say("Steps"),
    "guidance_scale": say("Guidance"),
    "guidance_scale_2": say("Second guidance"),
    "scheduler": say("Scheduler"),
    "flow_shift": say("Flow shift"),
    "fps": say("Frames a second"),
    "batch_size": say("Images at once"),
    "strength": say("Strength"),
    "loras": say("LoRAs"),
    "images": say("Input pictures"),
}


@dataclass
class _Remarks:
    """Collects the remarks about a file while its recipe is read."""

    unusable: list[Unusable] = field(default_factory=list[Unusable])
    notes: list[Message] = field(default_factory=list[Message])

    def drop(self, what: Message, why: Message) -> None:
        self.unusable.append(Unusable(what, why))


def fit_found(found: Found, catalog: Catalog, chosen: Model) -> ReadRecipe:
    """Fits another program's recipe; `chosen` is the model to use when the file's is unknown here."""
    remarks = _Remarks()
    model = _choose_model(found.model, catalog, chosen, remarks)
    loras = _choose_loras(
        (*found.loras, *(_read_tag(tag) for tag in list_tags(found.prompt))),
        catalog,
        model,
        remarks,
    )
    recipe = Recipe(
        model=model.id,
        shape=_choose_shape(found, model, remarks),
        prompt=_write_prompt(found, remarks),
        negative_prompt=_cut(_take_tags(found.negative_prompt, remarks), say("negative prompt"), remarks),
        seed=found.seed,
        steps=found.steps,
        guidance_scale=_choose_guidance(found, model, remarks),
        guidance_scale_2=found.guidance_scale_2,
        scheduler=_choose_scheduler(found, model, remarks),
        flow_shift=found.flow_shift,
        strength=found.strength,
        fps=found.fps,
        batch_size=found.batch_size if found.batch_size is not None else 1,
        loras=loras,
    )
    remarks.unusable += found.unusable
    recipe = _keep_valid(recipe, catalog, model, remarks)
    if recipe.strength is not None:
        remarks.notes.append(say("The strength counts as soon as you choose the picture to start from."))
    if recipe.seed is not None and found.source != OWN:
        remarks.notes.append(
            say(
                "{source} draws its noise in another way: the same seed gives another picture here.",
                source=found.source,
            )
        )
    return _finish(recipe, found.source, model, remarks)


def fit_own(recipe: Recipe, catalog: Catalog, chosen: Model, is_input: IsInput) -> ReadRecipe:
    """Fits the recipe of one of our own files, which may come from a studio with other models and pictures."""
    if recipe.schema_ != SCHEMA:
        raise MetadataError(
            say("Its recipe has schema {found}; this studio reads schema {known}.", found=recipe.schema_, known=SCHEMA),
            advice=say("Update Lumesh, or set the controls by hand."),
        )
    remarks = _Remarks()
    model = next((one for one in catalog.models if one.id == recipe.model), None)
    if model is None:
        model = _choose_model(recipe.model, catalog, chosen, remarks)
    shape = recipe.shape
    if shape is not None and shape not in map(str, model.shapes):
        try:
            width, height, frames = _sides(Shape.parse(shape))
        except ValueError:
            remarks.drop(say("Size: {shape}", shape=shorten(shape)), say("is no size"))
            shape = None
        else:
            shape = _choose_shape(Found(source="", width=width, height=height, frames=frames), model, remarks)
    images = tuple(image for image in recipe.images[:MAX_IMAGES] if is_input(image))
    if len(images) < len(recipe.images):
        remarks.drop(
            say("Input pictures"),
            say(
                "{missing} of {count} not in this studio",
                missing=len(recipe.images) - len(images),
                count=len(recipe.images),
            ),
        )
    changes = {
        "model": model.id,
        "shape": shape,
        "images": images,
        "loras": _choose_loras(
            [FoundLora(one.ref, one.scale, expert=one.expert) for one in recipe.loras], catalog, model, remarks
        ),
        "prompt": _cut(recipe.prompt, say("prompt"), remarks),
        "negative_prompt": recipe.negative_prompt and _cut(recipe.negative_prompt, say("negative prompt"), remarks),
    }
    recipe = _keep_valid(recipe.model_copy(update=changes), catalog, model, remarks)
    return _finish(recipe, OWN, model, remarks)


def _finish(recipe: Recipe, source: str, model: Model, remarks: _Remarks) -> ReadRecipe:
    if not recipe.prompt.strip():
        remarks.drop(say("Prompt"), say("none can be read from the file"))
    remarks.notes += list_notes(model, recipe.prompt, recipe.negative_prompt, has_loras=bool(recipe.loras))
    unusable = list(dict.fromkeys(remarks.unusable))
    if len(unusable) > MAX_LISTED:
        unusable[MAX_LISTED:] = [
            Unusable(say("{count} more settings", count=len(unusable) - MAX_LISTED), NO_COUNTERPART)
        ]
    return ReadRecipe(
        recipe=recipe,
        source=source,
        unusable=tuple(unusable),
        notes=tuple(dict.fromkeys(remarks.notes)),
    )


def _choose_model(name: str | None, catalog: Catalog, chosen: Model, remarks: _Remarks) -> Model:
    if name is None:
        remarks.notes.append(say("The file names no model: {model} stays.", model=chosen.title))
        return chosen
    model = find_model(name, catalog)
    if model is None:
        remarks.drop(
            say("Model {name}", name=shorten(name)),
            say("is not among the models here; {model} stays", model=chosen.title),
        )
        return chosen
    return model


def _choose_shape(found: Found, model: Model, remarks: _Remarks) -> str | None:
    if found.width is None or found.height is None:
        return None
    if found.width <= 0 or found.height <= 0:
        remarks.drop(
            say("Size: {width} x {height}", width=shorten(found.width), height=shorten(found.height)), say("is no size")
        )
        return None
    width, height = min(found.width, 10**6), min(found.height, 10**6)
    frames = found.frames or (model.default_shape.frames if model.is_video else 1)
    shape = model.find_nearest_shape(width, height, frames)
    if (shape.width, shape.height) != (width, height):
        remarks.notes.append(
            say(
                "{width} × {height} is not a size of {model}: {nearWidth} × {nearHeight} is the nearest.",
                width=width,
                height=height,
                model=model.title,
                nearWidth=shape.width,
                nearHeight=shape.height,
            )
        )
    if found.frames and found.frames != shape.frames:
        if model.is_video:
            remarks.notes.append(
                say("{count} frames instead of {found}.", count=shape.frames, found=shorten(found.frames))
            )
        else:
            remarks.drop(
                say("Frames: {value}", value=shorten(found.frames)), say("{model} makes pictures", model=model.title)
            )
    return str(shape)


def _sides(shape: Shape) -> tuple[int, int, int | None]:
    return shape.width, shape.height, shape.frames if shape.frames > 1 else None


def _write_prompt(found: Found, remarks: _Remarks) -> str:
    return _cut(remove_tags(found.prompt), say("prompt"), remarks)


def _take_tags(negative_prompt: str, remarks: _Remarks) -> str:
    for tag in list_tags(negative_prompt):
        remarks.drop(say("LoRA {name}", name=shorten(tag.name)), say("stands in the negative prompt"))
    return remove_tags(negative_prompt)


def _read_tag(tag: LoraTag) -> FoundLora:
    return FoundLora(shorten(tag.name), tag.weight, tag.text_weight, rest=tag.rest)


def _choose_loras(wanted: Iterable[FoundLora], catalog: Catalog, model: Model, remarks: _Remarks) -> tuple[Lora, ...]:
    """Chooses the LoRAs that exist here and fit the model, each once, with the file's weight."""
    # A program may list a LoRA twice, as tag and as setting; ours may name it once for each expert.
    known: dict[tuple[str, str | None], FoundLora] = {}
    for lora in wanted:
        key = (lora.name, lora.expert)
        if key not in known or known[key].weight is None:
            known[key] = lora
    files, chosen = catalog.list_lora_files() if known else (), dict[tuple[str, str | None], Lora]()
    for lora in list(known.values())[:MAX_LOOKED_FOR]:
        file = find_lora(lora.name, files, model)
        scale = 1.0 if lora.weight is None else lora.weight
        expert = lora.expert if list_experts(model) else None
        what = say("LoRA {name}", name=shorten(lora.name))
        if file is None:
            remarks.drop(what, say("is not among the LoRAs here"))
        elif file.family and file.family != model.family:
            remarks.drop(what, say("is for another model than {model}", model=model.title))
        elif misfit := find_misfit(file, model):
            remarks.drop(what, misfit)
        elif not abs(scale) <= MAX_LORA_SCALE:  # also catches nan
            remarks.drop(
                what, say("has no weight from {low} to {high}", low=f"{-MAX_LORA_SCALE:g}", high=f"{MAX_LORA_SCALE:g}")
            )
        elif len(chosen) == MAX_LORAS and (file.ref, expert) not in chosen:
            remarks.drop(what, say("at most {count} are used at a time", count=MAX_LORAS))
        elif (file.ref, expert) not in chosen:
            chosen[file.ref, expert] = Lora(ref=file.ref, scale=scale, expert=expert)
            if lora.weight is None:
                remarks.notes.append(say("The file does not say how strongly {what} applies: 1 is used.", what=what))
            if lora.expert != expert:
                remarks.notes.append(
                    say("{what} is applied as a whole: {title} has no experts.", what=what, title=model.title)
                )
            remarks.notes += list_unfollowed(what, scale=scale, text_weight=lora.text_weight, rest=lora.rest)
    return tuple(chosen.values())


def _cut(text: str, name: Message, remarks: _Remarks) -> str:
    text = clean(text).strip()
    if len(text) > MAX_PROMPT_CHARS:
        remarks.notes.append(
            say(
                "The {name} has {count} characters: its first {limit} are used.",
                name=name,
                count=len(text),
                limit=MAX_PROMPT_CHARS,
            )
        )
    return text[:MAX_PROMPT_CHARS]


def _choose_guidance(found: Found, model: Model, remarks: _Remarks) -> float | None:
    """Chooses the guidance scale. Distilled guidance is used only for families that take guidance as an input."""
    if found.distilled_guidance is None:
        return found.guidance_scale
    if model.traits.takes_distilled_guidance:
        return found.distilled_guidance
    remarks.drop(
        say("Distilled guidance: {value}", value=f"{found.distilled_guidance:g}"),
        say("{model} takes none", model=model.title),
    )
    return found.guidance_scale


def _choose_scheduler(found: Found, model: Model, remarks: _Remarks) -> str | None:
    sampler, schedule = split_sampler(found.sampler or "")
    if sampler.lower() in ("undefined", "unknown"):  # some sites write this for an unknown sampler
        sampler = ""
    schedule = found.schedule or schedule
    scheduler = find_scheduler(sampler, model) if sampler else None
    if not is_ordinary_schedule(schedule):
        if scheduler is not None and (spaced := find_spaced(scheduler, schedule, model)):
            return spaced
        remarks.drop(
            say("Schedule {name}", name=shorten(schedule)),
            say("no scheduler of {model} spaces its steps so", model=model.title),
        )
    if not sampler:
        return None
    if scheduler is None:
        remarks.drop(
            say("Sampler {name}", name=shorten(sampler)),
            say("{model} has no such scheduler; its default is used", model=model.title),
        )
    return scheduler


def _keep_valid(recipe: Recipe, catalog: Catalog, model: Model, remarks: _Remarks) -> Recipe:
    """Resets every field that our own check refuses to the model's default; a strength may wait for its picture."""
    try:
        resolve(recipe, catalog)
    except RecipeError as error:
        dropped: dict[str, object] = {}
        for name, why in error.fields.items():
            if name not in _LABELS or (name == "images" and len(recipe.images) < model.min_images):
                continue  # a missing prompt or first picture, which cannot be reset
            if why == NEEDS_PICTURE:
                continue
            value = getattr(recipe, name)
            label = _LABELS[name]
            what = label if isinstance(value, tuple) else say("{name}: {value}", name=label, value=shorten(value))
            if why.code == "{model} has no {name}; leave it out":  # nobody can leave it out of a file
                why = say("{model} has no {name}", **why.values)
            remarks.drop(what, why)
            dropped[name] = Recipe.model_fields[name].default
        return recipe.model_copy(update=dropped)
    return recipe
