"""Says what a model reads of a prompt, while somebody still writes it: nothing is queued or stored.

Not here: the counting (pipelines/prompts/reading.py), prompts that stand for many (sweeps.py).
"""

import contextlib
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from pipelines.errors import ModelError, RecipeError
from pipelines.messages import add_codes
from pipelines.models.model import Model
from pipelines.prompts.reading import list_notes, name_unknown, read_prompt
from pipelines.prompts.words import find_unknown
from pipelines.recipes.recipe import MAX_PROMPT_CHARS, Recipe
from pipelines.recipes.resolving import take_lora_tags
from studio import asking
from studio.api.answers import jobs as jobs_answers
from studio.api.visitor import Visitor
from studio.jobs.many.sweep import SHOWN_PROMPTS, Sweep
from studio.visit import Visit

router = APIRouter(tags=["jobs"])


class Question(BaseModel):
    """Prompts for a model; with `has_choices` the longest of the first that `{a|b}` stands for is counted.

    `has_loras` says that LoRAs are applied, beside those of tags: what words they know is not known here.
    """

    model_config = ConfigDict(extra="forbid")
    model: str | None = Field(default=None, max_length=200)
    prompt: str = Field(max_length=MAX_PROMPT_CHARS)
    negative_prompt: str = Field(default="", max_length=MAX_PROMPT_CHARS)
    has_choices: bool = False
    has_loras: bool = False


@router.post("/prompts/read", response_model=jobs_answers.PromptReading)
def read_prompts(question: Question, visit: Visitor) -> dict[str, Any]:
    """Counts the word pieces of a prompt as the model's text encoder does, and names the words that it does not read.

    `count` pieces, of which `limit` are read at most; `room` is what they fill now: SDXL reads long prompts in chunks.
    `unread` are the words cut off. Null where the model's tokenizer is not on this machine. `notes` say the same as
    sentences, and what becomes of weights and LoRA tags. `unknown` are words that a small model never learnt, with
    examples of what it can draw, and the one of the notes that says so.
    """
    try:
        model = visit.studio.catalog.get(question.model) if question.model else visit.studio.default_model
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    recipe = Recipe(model=model.id, prompt=question.prompt, negative_prompt=question.negative_prompt)
    if question.has_choices:
        recipe = recipe.model_copy(update={"prompt": _choose_longest(visit, recipe)})
    recipe, notes = take_lora_tags(recipe, visit.studio.catalog)
    prompts = recipe.prompt, recipe.negative_prompt or ""
    has_loras = question.has_loras or bool(recipe.loras)
    readings = [read_prompt(model, text) for text in prompts]
    return {
        **{
            name: reading and reading.to_json()
            for name, reading in zip(("prompt", "negative_prompt"), readings, strict=True)
        },
        **add_codes({"notes": [*notes, *list_notes(model, *prompts, has_loras=has_loras)]}),
        "unknown": _describe_unknown(model, recipe.prompt, has_loras=has_loras),
    }


def _describe_unknown(model: Model, prompt: str, *, has_loras: bool) -> dict[str, Any] | None:
    unknown = find_unknown(model, prompt, has_loras=has_loras)
    if unknown is None:
        return None
    offers = [model.examples.index(example) for example in unknown.offers]
    return add_codes({"words": list(unknown.words), "offers": offers, "note": name_unknown(model, unknown)})


def _choose_longest(visit: Visit, recipe: Recipe) -> str:
    with contextlib.suppress(RecipeError):  # said where its jobs are counted
        template = asking.expand_sweep(visit, Sweep(recipe=recipe)).template
        return max(template.list_prompts(SHOWN_PROMPTS), key=len)
    return recipe.prompt
