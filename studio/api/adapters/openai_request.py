"""What OpenAI's clients ask for, as recipes: their names of models and sizes become ours, and what is ignored is said.

Clients for several servers send each of them the fields of all, so that a field unknown here is no error but a note.
Not here: waiting and answering (openai.py).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.errors import ModelError, RecipeError
from pipelines.field_errors import name_field, word_problem
from pipelines.messages import english
from pipelines.models.catalog import Catalog, Model, Shape
from pipelines.pictures.fitting import Fit
from pipelines.recipes.recipe import MAX_TEXT_CHARS, Lora, Recipe, Seed, read_recipe

MAX_PICTURES = 10
MAX_NAMED = 10
MAX_NAME_CHARS = 40
# Programs with a fixed list of models send these to every server.
THEIR_MODELS = re.compile(r"(gpt-image|chatgpt-image|dall-e)(-.*)?")
# About who asks, not about the picture: nobody misses them.
UNTOLD = frozenset({"user", "safety_identifier", "moderation"})
OWN_FIELDS = ("negative_prompt", "steps", "guidance_scale", "scheduler", "strength", "fit", "loras", "images")


class Generation(BaseModel):
    """The request of OpenAI's clients; from `negative_prompt` on, additional fields of a recipe (`extra_body`).

    Other fields, such as `quality`, are ignored; the answer's `notes` name them.
    """

    model_config = ConfigDict(extra="allow", str_max_length=MAX_TEXT_CHARS)

    prompt: str
    model: Annotated[str | None, Field(description="an id of GET /v1/models; left out: the default model")] = None
    n: Annotated[int | None, Field(ge=1, le=MAX_PICTURES)] = None
    size: Annotated[str | None, Field(description="WIDTHxHEIGHT, of which the model's nearest size is taken")] = None
    response_format: Annotated[Literal["url", "b64_json"] | None, Field(description="left out: both")] = None
    output_format: Annotated[Literal["png", "jpeg", "webp"] | None, Field(description="left out: png")] = None
    output_compression: Annotated[
        int | None, Field(ge=0, le=100, description="quality of a JPEG or WebP, 100 is the best")
    ] = None
    background: Literal["opaque", "auto"] | None = None
    stream: Literal[False] | None = None
    partial_images: Literal[0] | None = None
    negative_prompt: str | None = None
    seed: Seed = None
    steps: int | None = None
    guidance_scale: float | None = None
    scheduler: str | None = None
    strength: float | None = None
    fit: Fit | None = None
    loras: tuple[Lora, ...] = ()
    images: tuple[str, ...] = ()

    def list_recipes(self, model: Model) -> list[Recipe]:
        """Splits the request into jobs of as many pictures as the model makes at once; picture i has seed + i.

        Raises RecipeError.
        """
        count = self.n or 1
        own = {name: getattr(self, name) for name in OWN_FIELDS}
        shape = choose_shape(self.size, model)
        return [
            read_recipe(
                {
                    **own,
                    "model": model.id,
                    "prompt": self.prompt,
                    "shape": shape,
                    "batch_size": min(model.max_batch_size, count - start),
                    "seed": None if self.seed is None else self.seed + start,
                }
            )
            for start in range(0, count, model.max_batch_size)
        ]

    def list_ignored(self) -> list[str]:
        """Returns a note on the fields that mean nothing here, if there are any."""
        names = [name for name, value in (self.model_extra or {}).items() if value is not None and name not in UNTOLD]
        if not names:
            return []
        named = ", ".join(name[:MAX_NAME_CHARS] for name in names[:MAX_NAMED])
        return [f"Ignored, as it means nothing here: {named}{', ...' if len(names) > MAX_NAMED else ''}."]


def read_form(fields: Mapping[str, str], images: Sequence[str]) -> Generation:
    """Reads the text fields of a form, which have no types; raises RecipeError with a message per field."""
    empty: dict[str, Any] = {"stream": {"false": False}, "partial_images": {"0": 0}}
    given = {name: empty.get(name, {}).get(value.lower(), value) for name, value in fields.items() if value}
    try:
        return Generation.model_validate({**given, "images": images})
    except ValidationError as error:
        problems = {
            name_field(one, whole="prompt"): word_problem(one)
            for one in error.errors(include_url=False, include_input=False)
        }
    raise RecipeError(problems)


def choose_model(
    catalog: Catalog, name: str | None, *, default: Model, takes_exact: bool, has_images: bool
) -> tuple[Model, list[str]]:
    """Returns the model that a client means, with a note where it could not mean it; raises RecipeError.

    A model of OpenAI becomes the studio's `default`, unless the operator `takes_exact` names only.
    """
    is_theirs = bool(name and THEIR_MODELS.fullmatch(name)) and not takes_exact
    try:
        model = catalog.get(name) if name and not is_theirs else choose_default(catalog, default, has_images=has_images)
    except ModelError as error:
        raise RecipeError({"model": error.whole}) from error
    if model.is_video:
        raise RecipeError({"model": english(f"{model.id} makes videos; queue them with POST /api/v1/jobs")})
    return model, [f"There is no {name[:MAX_NAME_CHARS]} here; {model.id} was used."] if name and is_theirs else []


def choose_default(catalog: Catalog, default: Model, *, has_images: bool) -> Model:
    """Returns the studio's default if it makes pictures, else the first that does; with images one that takes some."""
    able = [model for model in (default, *catalog.models) if not model.is_video]
    return next((model for model in able if model.max_images and has_images), able[0] if able else default)


def choose_shape(size: str | None, model: Model) -> str | None:
    """Returns the model's nearest shape, None for its default; raises RecipeError."""
    if not size or size == "auto":
        return None
    try:
        wished = Shape.parse(re.sub(r"\s*[*×xX]\s*", "x", size))
    except ValueError as error:
        raise RecipeError({"shape": english(f"{error}; {model.id} makes {model.shape_list()}")}) from error
    if not wished.width or not wished.height:
        raise RecipeError({"shape": english(f"{size} has no pixels; {model.id} makes {model.shape_list()}")})
    return str(model.find_nearest_shape(wished.width, wished.height, 1))
