"""Fooocus' own format: JSON in `parameters`, or in the user comment of a JPEG or WebP. Its other one is A1111's text.

The raw prompt is used, as Fooocus itself does when it reads a file: its styles only add words to it.
"""

from collections.abc import Iterator

from studio.library.foreign.bounded import Fields, shorten
from studio.library.foreign.found import Found, FoundLora, list_odd, list_unused

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
    """Reads the fields."""
    width, height = fields.size("resolution")
    rest = {name: value for name, value in fields.rest(_KNOWN).items() if not name.startswith("lora_combined")}
    if rest.get("refiner_model") is None:
        rest.pop("refiner_swap_method", None)
    loras = tuple(_list_loras(fields))
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
        loras=loras,
        unusable=(
            *list_odd(fields),
            *list_unused({name: value for name, value in rest.items() if value != "[]"}),
        ),
    )


def _list_loras(fields: Fields) -> Iterator[FoundLora]:
    """Yields LoRAs, each a list of name, weight and hash."""
    for entry in fields.items("loras"):
        name, *rest = Fields({"loras": entry}, fields.odd).items("loras") or [None]
        if name is not None:
            yield FoundLora(shorten(name), fields.to_number("loras", rest[0]) if rest else None)
