"""Fooocus' own format: JSON in `parameters`, or in the user comment of a JPEG or WebP. Its other one is A1111's text.

The raw prompt is used, as Fooocus itself does when it reads a file: its styles only add words to it.
"""

import re

from pipelines.messages import say
from studio.library.foreign.bounded import Fields, read_number, shorten
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import Found, FoundLora, list_unused

_KNOWN = frozenset(
    (
        *("prompt", "negative_prompt", "full_prompt", "full_negative_prompt", "steps", "guidance_scale", "seed"),
        *("resolution", "base_model", "base_model_hash", "refiner_model_hash", "sampler", "scheduler", "loras"),
        *("version", "metadata_scheme", "created_by", "refiner_switch", "adaptive_cfg", "clip_skip"),
    )
)


def is_fooocus(fields: Fields) -> bool:
    return "base_model" in fields.values and bool(fields.values.keys() & {"performance", "styles", "metadata_scheme"})


def read_fooocus(fields: Fields) -> Found:
    """Parses the fields; raises MetadataError when one is damaged."""
    width, height = _read_resolution(fields.text("resolution"))
    loras = [Fields({"lora": one}).items("lora")[:2] for one in fields.items("loras")]
    rest = {name: value for name, value in fields.rest(_KNOWN).items() if not name.startswith("lora_combined")}
    if rest.get("refiner_model") is None:
        rest.pop("refiner_swap_method", None)
    return Found(
        source="Fooocus",
        prompt=fields.text("prompt") or "",
        negative_prompt=fields.text("negative_prompt") or "",
        model=fields.text("base_model"),
        seed=fields.whole("seed"),
        steps=fields.whole("steps"),
        guidance_scale=fields.number("guidance_scale"),
        sampler=fields.text("sampler"),
        schedule=fields.text("scheduler"),
        width=width,
        height=height,
        loras=tuple(_read_lora(*lora) for lora in loras if lora),
        unusable=tuple(list_unused({name: value for name, value in rest.items() if value != "[]"})),
    )


def _read_lora(name: object, weight: object = None) -> FoundLora:
    return FoundLora(shorten(name), None if weight is None else read_number(weight, "loras"))


def _read_resolution(text: str | None) -> tuple[int | None, int | None]:
    """Parses `(1024, 1024)`, with or without quotes around the numbers."""
    if text is None:
        return None, None
    match = re.fullmatch(r"\(\s*'?(\d{1,6})'?\s*,\s*'?(\d{1,6})'?\s*\)", text)
    if match is None:
        raise MetadataError(
            say("Its recipe is damaged: resolution is {text} where two numbers belong.", text=repr(shorten(text)))
        )
    return int(match[1]), int(match[2])
