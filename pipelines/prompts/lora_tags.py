"""LoRA tags in a prompt, as A1111 and its relatives write them: `<lora:name:0.8>`.

Not here: which LoRAs there are (loras.py), and that a recipe's prompt loses its tags (recipe.py).
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_TAGS = 100  # of one prompt that are read; more than anybody uses

_TAG = re.compile(r"<(?:lora|lyco|lycoris):([^:<>\n]{1,200})((?::[^:<>\n]{0,60}){0,6})>", re.IGNORECASE)


class LoraTag(NamedTuple):
    """One tag: the LoRA's name, its weight, and the text encoders' weight where it is another (nan: no number)."""

    name: str
    weight: float
    text_weight: float


def list_tags(prompt: str) -> Iterator[LoraTag]:
    """Yields the tags: `<lora:a:0.8>`, `<lora:a:0.5:0.8>` (text encoder first) or `<lora:a:te=0.5:unet=0.8>`."""
    for number, tag in enumerate(_TAG.finditer(prompt)):
        if number == MAX_TAGS:
            return
        values = [value.strip() for value in tag[2].split(":")[1:]]
        plain = [value for value in values if "=" not in value]
        named = dict(value.split("=", 1) for value in values if "=" in value)
        text_weight = named.get("te", plain[0] if plain else "1")
        weight = named.get("unet", plain[1] if len(plain) > 1 else text_weight)
        yield LoraTag(tag[1].strip(), _read_weight(weight), _read_weight(text_weight))


def remove_tags(prompt: str) -> str:
    """Returns the prompt without tags, and without the commas and spaces that would stand alone."""
    rest = _TAG.sub("", prompt)
    if rest == prompt:
        return prompt
    return re.sub(r"[ \t]*,(?:[ \t]*,)+", ",", re.sub(r"[ \t]{2,}", " ", rest)).strip(" \t,\n")


def format_tag(name: str, weight: float) -> str:
    return f"<lora:{name}:{weight:g}>"


def _read_weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
