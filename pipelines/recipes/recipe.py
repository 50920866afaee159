"""A recipe: everything needed to make an output again, as one versioned type.

The page, REST, the command line, file metadata and presets all use this type. Only `model` and `prompt` are required;
`resolve` (resolving.py) fills in the model's defaults, draws the seed, and refuses a recipe that cannot run. After it,
every field is set and trusted.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipelines.errors import RecipeError
from pipelines.field_errors import list_fields, word_first
from pipelines.loras.files import HIGH, LOW
from pipelines.messages import say
from pipelines.models.catalog import Shape
from pipelines.modest import find_excess
from pipelines.pictures.fitting import Fit
from pipelines.recipes.cache_kinds import find_kind
from pipelines.recipes.schedulers import TWICE

SCHEMA = 1
# OpenAI's limit. An encoder reads far fewer, and what it does not read is said (prompts/reading.py).
MAX_PROMPT_CHARS = 32_000
MAX_LORAS = 8
MAX_LORA_SCALE = 20.0  # sliders are meant for up to 10 or so
MAX_NAMED = 20  # in a message
# Far beyond any field's own limit. It makes pydantic check every text, and so refuse unpaired surrogates, which JSON
# can contain but UTF-8 cannot encode.
MAX_TEXT_CHARS = 100_000
NUMBERS = ("seed", "steps", "guidance_scale", "guidance_scale_2", "flow_shift", "fps", "batch_size", "strength")
NEEDS_PICTURE = say("needs a picture to start from; give one or leave it out")
# Fields that mean the same to every model; the others are meaningless to another model, or mean something else.
MODEL_INDEPENDENT_FIELDS = ("prompt", "seed", "batch_size", "images", "fit")
MAX_SEED = 2**63 - 1  # SQLite's largest integer; torch's generators take all 64 bits
MAX_DRAWN_SEED = 2**32 - 1  # short enough to be read out, and exact in programs that count in floats
RANDOM_SEED = -1  # how many other programs write "draw one"


def read_seed(seed: int | None) -> int | None:
    """Returns the seed, None for one that is to be drawn."""
    return None if seed == RANDOM_SEED else seed


def refuse_boolean(value: object) -> object:
    """Returns a number as it was given; raises ValueError for true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(say("input should be a valid number"))
    return value


Seed = Annotated[
    int | None, AfterValidator(read_seed), Field(description=f"0 to {MAX_SEED}; null or {RANDOM_SEED}: a random one")
]


LoraExpert = Literal["high", "low", "both"]


class Lora(BaseModel):
    """A low-rank adapter and how strongly it applies.

    Of a model with two experts `expert` is the one that it goes to, the one for high noise or the one for low noise;
    None: the one that the file names, or both. For a strength of each expert's own it is given twice, once for each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=MAX_TEXT_CHARS)
    ref: str
    scale: float = 1.0
    expert: LoraExpert | None = Field(default=None, exclude_if=lambda expert: expert is None)

    _are_numbers = field_validator("scale", mode="before")(refuse_boolean)

    @property
    def experts(self) -> frozenset[str]:
        """Returns the experts that it may change."""
        return frozenset((self.expert,)) if self.expert in (HIGH, LOW) else frozenset((HIGH, LOW))


class Recipe(BaseModel):
    """What to make. Unset (None) fields get the model's defaults in `resolve`; lengths and sizes are in pixels.

    `strength` is the share of the denoising that a picture to start from goes through: at 1 all of it, which leaves
    little of the picture. `fit` says how the pictures fill a size of other proportions. `revision` is not a request: it
    names the weights that made the output carrying this recipe (stages.Family). `step_cache` is how much of earlier
    steps later ones may reuse (step_cache.py): `off`, `mild`, `strong`, or numbers such as `0.12,2`. `reused_steps` is
    no request either: which steps, from 0, that makes them. `sigmas` are the noise levels of the steps, falling, in
    place of a number of steps and their spacing (sigmas.py).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=MAX_TEXT_CHARS)

    schema_: int = Field(default=SCHEMA, alias="schema")
    model: str
    shape: str | None = None
    prompt: str
    negative_prompt: str | None = None
    seed: Seed = None
    steps: int | None = None
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None
    scheduler: str | None = None
    flow_shift: float | None = None
    fps: int | None = None
    batch_size: int = 1
    loras: tuple[Lora, ...] = ()
    images: tuple[str, ...] = ()
    strength: float | None = None
    fit: Fit | None = None
    revision: str | None = None
    sigmas: tuple[float, ...] | None = Field(default=None, max_length=1000, exclude_if=lambda levels: not levels)
    step_cache: str | None = Field(default=None, exclude_if=lambda text: text is None)
    reused_steps: tuple[int, ...] = Field(default=(), exclude_if=lambda steps: not steps)

    _are_numbers = field_validator(*NUMBERS, mode="before")(refuse_boolean)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def made_with(self, revision: str) -> "Recipe":
        """Returns the recipe of an output that these weights made."""
        return self.model_copy(update={"revision": revision or None})

    @property
    def seeds(self) -> range:
        """Returns the seed of each picture of the batch: picture n has seed + n."""
        first = self.seed or 0
        return range(first, first + self.batch_size)

    def of_picture(self, number: int) -> "Recipe":
        """Returns the recipe that makes only one picture of a batch."""
        return self.model_copy(update={"seed": self.seeds.start + number, "batch_size": 1})

    @property
    def denoising_steps(self) -> int:
        """Returns how many steps a resolved recipe runs: image to image runs only the last of them, as in diffusers.

        It runs at least one, where diffusers would have none and fail.
        """
        assert self.steps is not None, "resolve the recipe first"
        return self.steps if self.strength is None else max(1, int(self.steps * self.strength))

    @property
    def cache_kind(self) -> str:
        """Returns the kind of a resolved recipe's step cache (cache_kinds.py), "" without one."""
        return find_kind(self.step_cache)

    @property
    def rows_per_step(self) -> int:
        """Returns how often a step of this scheduler asks the denoiser; its last one does so once."""
        return 2 if self.scheduler in TWICE else 1

    @property
    def computed_steps(self) -> int:
        """Returns how often a resolved recipe runs the denoiser, which takes time: once a step that is not reused."""
        rows = self.rows_per_step
        return rows * self.denoising_steps - (rows - 1) - len(self.reused_steps)

    @property
    def parsed_shape(self) -> Shape:
        """Returns the shape of a resolved recipe."""
        assert self.shape is not None, "resolve the recipe first"
        return Shape.parse(self.shape)


def read_recipe(fields: dict[str, Any]) -> Recipe:
    """Turns untrusted JSON into a Recipe; raises RecipeError with a message per field."""
    if excess := find_excess(fields):
        raise RecipeError({excess[0] or "recipe": excess[1]})
    try:
        return Recipe.model_validate(fields)
    except ValidationError as error:
        problems = word_first(error.errors(), whole="recipe", known=list_fields(Recipe))
        raise RecipeError(problems) from error


def carry_over(recipe: Recipe) -> dict[str, Any]:
    """Returns the fields that a recipe keeps when its model is changed; the new model's defaults fill the others."""
    fields = recipe.to_json()
    return {name: fields[name] for name in MODEL_INDEPENDENT_FIELDS}
