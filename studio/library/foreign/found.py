"""The content of other programs' files in one vocabulary, before it is decided what is usable here."""

from dataclasses import dataclass
from typing import Any

from pipelines.messages import Message, add_codes, say
from pipelines.recipes.recipe import LoraExpert, Recipe
from studio.library.foreign.bounded import Fields, shorten

NO_COUNTERPART = say("has no counterpart here")
MAX_LISTED = 40


@dataclass(frozen=True)
class Unusable:
    """Something in the file that is left out: what, and why."""

    what: Message
    why: Message


@dataclass(frozen=True)
class FoundLora:
    """A LoRA by the program's own name for its file; None stands for what the file does not say.

    `text_weight` is the text encoder's weight, if the program stores it separately; `rest` is what else its tag in the
    prompt says; `expert` is our own recipes'.
    """

    name: str
    weight: float | None = None
    text_weight: float | None = None
    expert: LoraExpert | None = None
    rest: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Found:
    """A foreign recipe. `sampler`, `schedule` and `model` are the program's own names; None stands for unknown.

    `distilled_guidance` is the guidance that FLUX takes as an input; some programs store it beside their CFG scale.
    `strength` belongs to an input picture, which the file does not contain.
    """

    source: str
    prompt: str = ""
    negative_prompt: str = ""
    model: str | None = None
    seed: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None
    distilled_guidance: float | None = None
    sampler: str | None = None
    schedule: str | None = None
    width: int | None = None
    height: int | None = None
    frames: int | None = None
    fps: int | None = None
    flow_shift: float | None = None
    strength: float | None = None
    batch_size: int | None = None
    loras: tuple[FoundLora, ...] = ()
    unusable: tuple[Unusable, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReadRecipe:
    """A recipe that can be made here; its unset fields take the model's defaults.

    `unusable` lists what was left out, `notes` what was changed.
    """

    recipe: Recipe
    source: str
    unusable: tuple[Unusable, ...]
    notes: tuple[Message, ...]

    def to_json(self) -> dict[str, Any]:
        fields = {
            "recipe": self.recipe.to_json(),
            "source": self.source,
            "unusable": [add_codes(vars(one)) for one in self.unusable],
            "notes": list(self.notes),
        }
        return add_codes(fields)


def list_odd(fields: Fields) -> list[Unusable]:
    """Returns one entry for each field that could not be read."""
    return [Unusable(*odd) for odd in fields.odd][:MAX_LISTED]


def weigh_in_vain(example: str, *, program: str) -> Unusable:
    """Returns the entry for weights in a prompt that only their own program understands."""
    return Unusable(
        say("Weights such as {example}", example=shorten(example)),
        say("{program} weighs words by them; they are read as they are written", program=program),
    )


def list_unused(values: dict[str, Any], why: Message = NO_COUNTERPART) -> list[Unusable]:
    """Returns one entry for each name and value."""
    return [
        Unusable(say("{name}: {value}", name=shorten(name), value=shorten(_outline(value))), why)
        for name, value in values.items()
    ][:MAX_LISTED]


def _outline(value: object) -> str:
    if isinstance(value, str | float | int | bool):
        return str(value)[:1000] if isinstance(value, str) else repr(value)[:1000]
    return "…"
