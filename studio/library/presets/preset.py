"""The format of presets: one versioned JSON document, validated before anything else sees it.

A preset comes from strangers, so the format is closed: unknown fields are refused, control and direction characters are
removed from text, and nothing in it is a path. It has no input pictures, which are somebody's files, but says how
strongly others' are changed, and how they fill the size. Its LoRAs are names to look up here. Text is
never markup; it must be displayed as text.
Not here: whether a model takes the recipe (gallery.py), files and packs (files.py).
"""

import json
import re
import unicodedata
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pipelines.errors import LumeshError, join_fields
from pipelines.field_errors import list_fields, word_first
from pipelines.messages import NOTHING, Message, say
from pipelines.models.catalog import Catalog
from pipelines.models.catalog_entries import MIN_STRENGTH
from pipelines.modest import find_excess
from pipelines.pictures.fitting import Fit
from pipelines.recipes.recipe import (
    MAX_LORA_SCALE,
    MAX_LORAS,
    MAX_PROMPT_CHARS,
    MAX_SEED,
    RANDOM_SEED,
    LoraExpert,
    Recipe,
    read_seed,
)
from pipelines.recipes.sigmas import MAX_SIGMA, MAX_SIGMAS

SCHEMA = 1
MAX_TAGS = 8
MAX_TITLE_CHARS = 80
MAX_REF_CHARS = 255  # the longest file name
# A thumbnail of ours has about 20 KB; base64 makes 4 characters of 3 bytes.
MAX_THUMBNAIL_CHARS = 700_000
# Other control and formatting characters are removed: they are invisible, or change the direction of the text.
_KEPT_CONTROLS = "\n\t"
_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji are written with them


class PresetError(LumeshError):
    """The preset cannot be used; `fields` maps each field at fault to its message."""

    title = say("This preset cannot be used")
    status = 422

    def __init__(self, detail: Message, *, advice: Message = NOTHING, fields: dict[str, Message] | None = None) -> None:
        super().__init__(detail, advice=advice)
        self.fields = fields or {}


def clean_text(text: str) -> str:
    """Removes invisible characters; returns text in composed form with plain line ends."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(
        one for one in text if one in _KEPT_CONTROLS or one in _JOINERS or unicodedata.category(one) not in ("Cc", "Cf")
    ).strip()


def clean_line(text: str) -> str:
    """Cleans text like `clean_text`, and joins it into one line."""
    return re.sub(r"\s+", " ", clean_text(text))


def _require(text: str) -> str:
    if not text:
        raise ValueError(say("must not be empty"))
    return text


def _require_plain(text: str) -> str:
    if clean_line(text) != text:
        raise ValueError(say("has characters that cannot be seen"))
    return text


def clean_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Normalizes tags for comparison: one line, lower case, without # and without duplicates."""
    cleaned = (clean_line(tag).lower().lstrip("#") for tag in tags)
    return tuple(dict.fromkeys(tag for tag in cleaned if tag))


Tag = Annotated[str, Field(max_length=24)]
# Patterns spell their letters out, because the validator's \d and \w match every script.
_ID = r"^[a-z0-9][a-z0-9.-]{0,63}$"
_REPO_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}"
_REPO = rf"^$|^{_REPO_PART}/{_REPO_PART}$"
_REF = r"^[^./\\\x00-\x1f][^/\\\x00-\x1f]*(/[^./\\\x00-\x1f][^/\\\x00-\x1f]*)*$"
_SHAPE = r"^[0-9]{1,5}x[0-9]{1,5}(x[0-9]{1,4})?$"
_HUB_FILE = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*\.safetensors$"
_THUMBNAIL = r"^data:image/(webp|png|jpeg);base64,[A-Za-z0-9+/]+={0,2}$"


class PresetLora(BaseModel):
    """A LoRA by its name, which may be of a file that is not here."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    ref: Annotated[str, Field(strict=True, pattern=_REF, max_length=MAX_REF_CHARS), AfterValidator(_require_plain)]
    scale: Annotated[float, Field(strict=True, ge=-MAX_LORA_SCALE, le=MAX_LORA_SCALE)] = 1.0
    expert: Annotated[LoraExpert | None, Field(exclude_if=lambda expert: expert is None)] = None


class PresetRecipe(BaseModel):
    """The part of a recipe that can be shared; what is null takes the model's default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    model: Annotated[str, Field(pattern=_ID, description="id of the catalogue")]
    shape: Annotated[str, Field(pattern=_SHAPE)] | None = None
    prompt: Annotated[str, Field(max_length=MAX_PROMPT_CHARS), AfterValidator(clean_text), AfterValidator(_require)]
    negative_prompt: Annotated[str, Field(max_length=MAX_PROMPT_CHARS), AfterValidator(clean_text)] | None = None
    seed: Annotated[Annotated[int, Field(ge=RANDOM_SEED, le=MAX_SEED)] | None, AfterValidator(read_seed)] = None
    steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    guidance_scale: Annotated[float, Field(ge=0, le=100)] | None = None
    guidance_scale_2: Annotated[float, Field(ge=0, le=100)] | None = None
    scheduler: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")] | None = None
    flow_shift: Annotated[float, Field(ge=0, le=100)] | None = None
    fps: Annotated[int, Field(ge=1, le=240)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=64)] = 1
    sigmas: (
        Annotated[
            tuple[Annotated[float, Field(ge=0, le=MAX_SIGMA)], ...],
            Field(strict=False, min_length=1, max_length=MAX_SIGMAS, description="the steps' noise levels"),
        ]
        | None
    ) = Field(default=None, exclude_if=lambda levels: levels is None)
    step_cache: Annotated[str, Field(max_length=60)] | None = Field(default=None, exclude_if=lambda text: text is None)
    # For the pictures that whoever uses the preset brings along; left out, as LoRAs are, where they are not set.
    strength: Annotated[float, Field(ge=MIN_STRENGTH, le=1)] | None = Field(
        default=None, exclude_if=lambda strength: strength is None
    )
    fit: Annotated[Fit, Field(strict=False)] | None = Field(default=None, exclude_if=lambda fit: fit is None)
    # LoRAs are left out where there are none, so that the document stays the same for older presets and studios. Not
    # strict, because a request's JSON arrives as lists and dicts.
    loras: Annotated[
        tuple[PresetLora, ...], Field(strict=False, max_length=MAX_LORAS, exclude_if=lambda loras: not loras)
    ] = ()

    def to_recipe(self) -> Recipe:
        return Recipe(**self.model_dump())


class Source(BaseModel):
    """Where a preset's model comes from, for people who do not have it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    title: Annotated[str, Field(max_length=80), AfterValidator(clean_line)] = ""
    repo: Annotated[str, Field(pattern=_REPO, description="on the Hugging Face Hub")] = ""


class LoraSource(BaseModel):
    """Where one of a recipe's LoRAs, by its `ref`, is on the Hugging Face Hub, for people who do not have it.

    Without a revision it is taken as it is when it is downloaded. `licence` is for people, and nobody here has checked
    it; `size_bytes` is the file's, if it is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    ref: Annotated[str, Field(strict=True, pattern=_REF, max_length=MAX_REF_CHARS), AfterValidator(_require_plain)]
    repo: Annotated[str, Field(pattern=rf"^{_REPO_PART}/{_REPO_PART}$")]
    file: Annotated[str, Field(pattern=_HUB_FILE, max_length=500)]
    revision: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] | None = None
    licence: Annotated[str, Field(max_length=120), AfterValidator(clean_line)] = ""
    size_bytes: Annotated[int, Field(ge=0, le=10**12)] | None = None


class Preset(BaseModel):
    """One preset, as its file carries it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, title="Lumesh preset")

    schema_: Annotated[int, Field(alias="schema", ge=1, le=SCHEMA, description="version of this format")] = SCHEMA
    kind: Literal["lumesh.preset"] = "lumesh.preset"
    title: Annotated[str, Field(max_length=MAX_TITLE_CHARS), AfterValidator(clean_line), AfterValidator(_require)]
    description: Annotated[str, Field(max_length=600), AfterValidator(clean_text)] = ""
    author: Annotated[str, Field(max_length=60), AfterValidator(clean_line)] = ""
    tags: Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS), AfterValidator(clean_tags)] = ()
    licence: Annotated[
        str, Field(max_length=120, description="of the preset and its thumbnail"), AfterValidator(clean_line)
    ] = ""
    recipe: PresetRecipe
    source: Source = Source()
    # Left out where there are none, so that older studios take the document.
    loras: Annotated[
        tuple[LoraSource, ...], Field(strict=False, max_length=MAX_LORAS, exclude_if=lambda loras: not loras)
    ] = ()
    thumbnail: Annotated[str, Field(pattern=_THUMBNAIL, max_length=MAX_THUMBNAIL_CHARS)] | None = None

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def without_thumbnail(self) -> "Preset":
        return self.model_copy(update={"thumbnail": None})


def read_preset(content: str | bytes) -> Preset:
    """Parses untrusted JSON; raises PresetError with a message per field."""
    try:
        excess = find_excess(json.loads(content))
    except (ValueError, RecursionError):
        excess = None  # told below, as everything that is no JSON
    if excess is not None:
        raise PresetError(
            say("It is no preset: {reason}.", reason=excess[1]), advice=say("Choose a file that Lumesh exported.")
        )
    try:
        return Preset.model_validate_json(content)
    except ValidationError as error:
        problems = word_first(error.errors(include_url=False), whole="preset", known=list_fields(Preset))
    if "schema" in problems:
        raise PresetError(
            say(
                "It was written for another version of the format; this server reads version {version}.", version=SCHEMA
            ),
            advice=say("Update Lumesh, or ask its author for an older version."),
            fields=problems,
        )
    if "preset" in problems:
        raise PresetError(
            say("It is no preset: {reason}.", reason=problems["preset"]),
            advice=say("Choose a file that Lumesh exported."),
        )
    raise PresetError(join_fields(problems), fields=problems)


def name_source(preset: Preset, catalog: Catalog) -> Preset:
    """Adds the catalogue's source of the model, for people who do not have it."""
    model = next((model for model in catalog.models if model.id == preset.recipe.model), None)
    if model is None:
        return preset
    return preset.model_copy(update={"source": Source(title=model.title, repo=model.repo)})


def make_schema() -> dict[str, Any]:
    """Returns the format as JSON Schema, as in presets/preset.schema.json and REST."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Preset.model_json_schema(by_alias=True),
    }
