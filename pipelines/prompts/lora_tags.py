"""LoRA tags in a prompt, as A1111 and its relatives write them: `<lora:name:0.8>`.

Not here: which LoRAs there are (loras.py), and that a recipe's prompt loses its tags (resolving.py).
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipelines.messages import Message, say

MAX_TAGS = 100  # of one prompt that are read; more than anybody uses
MAX_REST_CHARS = 80  # in a sentence

_TAG = re.compile(r"<(?:lora|lyco|lycoris):([^:<>\n]{1,200})((?::[^:<>\n]{0,60}){0,6})>", re.IGNORECASE)


class LoraTag(NamedTuple):
    """One tag: the LoRA's name, its weight, and the text encoders' weight where it is another (nan: no number).

    `rest` is what else stands in it, such as the weights of single blocks (`lbw=`) that extensions of A1111 read.
    """

    name: str
    weight: float
    text_weight: float
    rest: tuple[str, ...] = ()


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
        rest = (*plain[2:], *(f"{key}={value}" for key, value in named.items() if key not in ("te", "unet")))
        yield LoraTag(tag[1].strip(), _read_weight(weight), _read_weight(text_weight), rest)


def remove_tags(prompt: str) -> str:
    """Returns the prompt without tags, and without the commas and spaces that would stand alone."""
    rest = _TAG.sub("", prompt)
    if rest == prompt:
        return prompt
    return re.sub(r"[ \t]*,(?:[ \t]*,)+", ",", re.sub(r"[ \t]{2,}", " ", rest)).strip(" \t,\n")


def list_unfollowed(what: Message, *, scale: float, text_weight: float | None, rest: Sequence[str]) -> list[Message]:
    """Lists sentences on what is not followed where `what`, a LoRA, is applied at `scale`."""
    notes: list[Message] = []
    if text_weight not in (None, scale):
        notes.append(
            say("{what} has one weight here, {scale}, for picture and words alike.", what=what, scale=f"{scale:g}")
        )
    if rest:
        notes.append(
            say("{what}: {rest} in its tag means nothing here.", what=what, rest=":".join(rest)[:MAX_REST_CHARS])
        )
    return notes


def format_tag(name: str, weight: float) -> str:
    return f"<lora:{name}:{weight:g}>"


def _read_weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
