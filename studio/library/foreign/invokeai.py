"""InvokeAI's three formats: `invokeai_metadata`, before it `sd-metadata`, and before that `Dream`, a command line."""

import re
from collections.abc import Mapping
from typing import Any

from pipelines.messages import say
from studio.library.foreign.bounded import Fields, limit_text, read_object, shorten
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import Found, FoundLora, Unusable, list_odd, list_unused, weigh_in_vain

SOURCE = "InvokeAI"
_KNOWN = frozenset(
    (
        *("positive_prompt", "negative_prompt", "model", "seed", "steps", "cfg_scale", "guidance", "scheduler"),
        *("width", "height", "loras", "app_version", "generation_mode", "rand_device", "clip_skip", "qwen3_encoder"),
        *("positive_style_prompt", "negative_style_prompt", "canvas_v2_metadata", "t5_encoder", "clip_embed_model"),
        "strength",
    )
)
_KNOWN_IMAGE = frozenset(
    (
        *("prompt", "seed", "steps", "cfg_scale", "sampler", "width", "height", "type", "postprocessing"),
        *("image_hash", "threshold", "perlin", "extra", "orig_hash", "strength"),
    )
)
_WEIGHT = re.compile(r"[\w)]{1,30}(?:\+{1,9}|(?<=\))(?:-{1,9}|\d?\.?\d+))(?=[\s,.)]|\Z)|\)\.(?:and|blend|swap)\(")
_SEPARATE_STYLE = "positive_style_prompt"
_OPTIONS = {"-s": "steps", "-S": "seed", "-W": "width", "-H": "height", "-C": "cfg_scale", "-A": "sampler"}


def read_invokeai(texts: Mapping[str, str]) -> Found | None:
    """Reads whichever of the three formats the file has; raises MetadataError when it is damaged."""
    if "invokeai_metadata" in texts:
        return _read_newest(_require(texts["invokeai_metadata"]))
    if "sd-metadata" in texts:
        return _read_older(_require(texts["sd-metadata"]))
    return _read_dream(texts["dream"]) if "dream" in texts else None


def _require(text: str) -> Fields:
    fields = read_object(text)
    if fields is None:
        raise MetadataError(say("Its recipe is damaged: it is not JSON."))
    return fields


def _read_newest(fields: Fields) -> Found:
    model = fields.inner("model")
    sampler, schedule = _split_scheduler(fields.text("scheduler"))
    rest = fields.rest(_KNOWN)
    loras = tuple(_read_lora(entry) for entry in fields.objects("loras"))
    style = fields.text(_SEPARATE_STYLE)
    if style and style != fields.text("positive_prompt"):
        rest[_SEPARATE_STYLE] = style
    return Found(
        source=SOURCE,
        prompt=fields.text("positive_prompt") or "",
        negative_prompt=fields.text("negative_prompt") or "",
        model=(model.text("name") or model.text("model_name")) if model else None,
        seed=fields.whole("seed"),
        steps=fields.whole("steps"),
        guidance_scale=fields.number("cfg_scale"),
        distilled_guidance=fields.number("guidance"),
        sampler=sampler,
        schedule=schedule,
        width=fields.whole("width"),
        height=fields.whole("height"),
        strength=_read_strength(fields, mode=fields.text("generation_mode")),
        loras=loras,
        unusable=(*list_odd(fields), *list_unused(rest), *_list_weights(fields.text("positive_prompt") or "")),
    )


def _list_weights(prompt: str) -> list[Unusable]:
    """Lists weights as Compel writes them: `word++`, `(some words)1.3`, `("a", "b").blend(1, 2)`."""
    found = _WEIGHT.search(prompt)
    return [weigh_in_vain(found[0], program=SOURCE)] if found else []


def _read_strength(fields: Fields, *, mode: str | None) -> float | None:
    """Reads the strength; ignores it for pictures made from noise, which carry a meaningless one."""
    return fields.number("strength") if mode and "img2img" in mode else None


def _read_lora(entry: Fields) -> FoundLora:
    model = entry.inner("model") or entry.inner("lora")
    name = (model.text("name") or model.text("model_name") if model else None) or "unnamed"
    return FoundLora(shorten(name), entry.number("weight"))


def _split_scheduler(name: str | None) -> tuple[str | None, str | None]:
    """Splits a name into sampler and schedule: `dpmpp_2m_k` is DPM++ 2M with Karras' noise levels."""
    return (name[:-2], "Karras") if name and name.endswith("_k") else (name, None)


def _read_older(outer: Fields) -> Found:
    image = outer.inner("image")
    if image is None:
        raise MetadataError(say("Its recipe is damaged: image is missing."))
    prompt = image.values.get("prompt")
    if isinstance(prompt, list):
        parts = [part.text("prompt") for part in image.objects("prompt")]
        text = " ".join(part for part in parts if part)
    else:
        text = image.text("prompt") or ""
    positive, negative = _split_prompt(limit_text(text, "prompt"))
    sampler = image.text("sampler")
    return Found(
        source=SOURCE,
        prompt=positive,
        negative_prompt=negative,
        model=outer.text("model_weights"),
        seed=image.whole("seed"),
        steps=image.whole("steps"),
        guidance_scale=image.number("cfg_scale"),
        sampler=sampler,
        width=image.whole("width"),
        height=image.whole("height"),
        strength=_read_strength(image, mode=image.text("type")),
        unusable=(*list_odd(outer), *list_unused(image.rest(_KNOWN_IMAGE))),
    )


def _split_prompt(text: str) -> tuple[str, str]:
    """Splits off the negative prompt, which is in square brackets."""
    negative: str = ", ".join(part.strip() for part in re.findall(r"\[([^\[\]]*)\]", text))
    return re.sub(r"\[[^\[\]]*\]", "", text).strip(), negative


def _read_dream(text: str) -> Found | None:
    """Parses a command line such as `"a red boat" -s 50 -S 42 -W 512 -H 512 -C 7.5 -A k_lms`."""
    match = re.fullmatch(r'\s*"((?:[^"\\]|\\.)*+)"(.*)', limit_text(text, "recipe"), re.DOTALL)
    if match is None:
        return None
    prompt, words = match[1], match[2].split()
    found: dict[str, str] = {}
    rest: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word, has_value = words[place], place + 1 < len(words) and not words[place + 1].startswith("-")
        glued = re.fullmatch(r"(-[sSWHCA])([\w.]+)", word)
        if glued:
            found[_OPTIONS[glued[1]]] = glued[2]
        elif word in _OPTIONS and has_value:
            found[_OPTIONS[word]] = words[place + 1]
        elif word.startswith("-"):
            rest[word] = words[place + 1] if has_value else "on"
        place += 2 if has_value and not glued else 1
    positive, negative = _split_prompt(prompt)

    fields = Fields(dict(found))
    return Found(
        source=SOURCE,
        prompt=positive,
        negative_prompt=negative,
        seed=fields.whole("seed"),
        steps=fields.whole("steps"),
        guidance_scale=fields.number("cfg_scale"),
        sampler=found.get("sampler"),
        width=fields.whole("width"),
        height=fields.whole("height"),
        unusable=(*list_odd(fields), *list_unused(rest)),
    )
