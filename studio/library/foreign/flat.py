"""Programs that write one flat JSON object: NovelAI, RuinedFooocus, Draw Things, and others with the same names.

Names of fields differ little, so one table holds them all; a program differs by where its text stands.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from pipelines.messages import say
from studio.library.foreign.bounded import Fields, read_object, shorten
from studio.library.foreign.found import Found, FoundLora, Unusable, list_odd, list_unused, weigh_in_vain

_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "Prompt", "c"),
    "negative_prompt": ("negative_prompt", "Negative", "negativePrompt", "negative", "uc"),
    "model": ("base_model_name", "model", "model_name", "sd_model_name", "use_stable_diffusion_model"),
    "seed": ("seed",),
    "steps": ("steps", "num_inference_steps"),
    "guidance_scale": ("cfg", "cfg_scale", "guidance_scale", "scale"),
    "sampler": ("sampler_name", "sampler"),
    "schedule": ("scheduler", "noise_schedule"),
    "width": ("width",),
    "height": ("height",),
    "strength": ("strength",),
}
_READ = frozenset((*(name for names in _NAMES.values() for name in names), "size", "loras", "lora", "software"))
_SILENT = frozenset(
    (
        *("request_type", "signed_hash", "version", "n_samples", "v2", "profile", "v4_prompt", "v4_negative_prompt"),
        *("start_step", "denoise", "base_model_hash", "metadata_version", "app"),
    )
)
MAX_CHARACTERS = 20
_SETTINGS = {"seed", "steps", "guidance_scale", "sampler", "width"}
_XMP = re.compile(r"UserComment>(.{0,400}?)<rdf:li[^>]{0,200}>(.*?)</rdf:li>", re.DOTALL)
_NUMBER = re.compile(r"-?\d{0,3}\.?\d{1,6}")
_WEIGHT_AND_NAME = re.compile(r"(-?\d{0,3}\.?\d{1,6}) - (.+)")
_TAG = re.compile(r"(?:Loras:)?<(.+):([^:<>]+)>")
_WEIGHT = re.compile(r"\{[^{}]{0,200}\}|-?\d+(?:\.\d+)?::")


def read_flat(fields: Fields) -> Found | None:
    """Reads the object; None when it has no prompt or fewer than two settings: then it is something else."""
    chosen = {ours: next((name for name in names if name in fields.values), None) for ours, names in _NAMES.items()}
    known = {ours: name for ours, name in chosen.items() if name is not None}
    if "prompt" not in known or len(known.keys() & _SETTINGS) < 2:
        return None
    whole, number, text = fields.whole, fields.number, fields.text
    width, height = whole(known.get("width", "")), whole(known.get("height", ""))
    if width is None and "size" in fields.values:
        width, height = fields.size("size")
    found = Found(
        source=fields.text("software") or "another program",
        prompt=text(known["prompt"]) or "",
        negative_prompt=text(known.get("negative_prompt", "")) or "",
        model=text(known.get("model", "")),
        seed=whole(known.get("seed", "")),
        steps=whole(known.get("steps", "")),
        guidance_scale=number(known.get("guidance_scale", "")),
        sampler=text(known.get("sampler", "")),
        schedule=text(known.get("schedule", "")),
        width=width,
        height=height,
        loras=tuple(_list_loras(fields)),
    )
    rest = fields.rest(_READ | _SILENT)
    return replace(found, source=shorten(found.source), unusable=(*list_odd(fields), *list_unused(rest)))


def _list_loras(fields: Fields) -> Iterator[FoundLora]:
    """Yields LoRAs: objects with a file and a weight, and RuinedFooocus' three forms.

    Those are a hash and `0.5 - x.safetensors`, weight and name apart, and before them `Loras:<x:0.5>,<y:1>`.
    """
    for entry in [*fields.items("loras"), *fields.items("lora")]:
        weight: object = None
        if isinstance(entry, dict):
            inner = Fields(cast("dict[str, Any]", entry), fields.odd)
            name = next((text for key in ("file", "model", "name", "lora") if (text := inner.text(key))), None)
            weight = next((number for key in ("weight", "strength") if (number := inner.number(key)) is not None), None)
        elif isinstance(entry, list):
            parts = [str(part) for part in cast("list[Any]", entry)[:3]]
            whole = next(filter(None, map(_WEIGHT_AND_NAME.fullmatch, parts)), None)
            weight, name = whole.groups() if whole else _tell_apart(parts)
        else:
            tag = _TAG.fullmatch(str(entry))
            name, weight = tag.groups() if tag else (str(entry).removeprefix("Loras:"), None)
        if name and name != "None":
            yield FoundLora(shorten(name), fields.to_number("loras", weight))


def _tell_apart(parts: list[str]) -> tuple[str | None, str | None]:
    """Returns weight and name, whichever of the parts they are."""
    weight = next((part for part in parts if _NUMBER.fullmatch(part)), None)
    return weight, next((part for part in parts if part != weight), None)


def read_novelai(text: str, *, source: str = "") -> Found | None:
    """Reads NovelAI's comment; None when it is another one's. `source` names its model, and a hash behind it."""
    fields = read_object(text)
    found = read_flat(fields) if fields else None
    if found is None or fields is None:
        return None
    remarks: list[Unusable] = []
    prompt, count = _add_characters(found.prompt, fields, "v4_prompt")
    negative_prompt, _ = _add_characters(found.negative_prompt, fields, "v4_negative_prompt")
    if count:
        remarks.append(
            Unusable(
                say("Characters: {count}", count=count),
                say("NovelAI reads each apart; their words stand at the end of the prompt here"),
            )
        )
    if weight := _WEIGHT.search(prompt):
        remarks.append(weigh_in_vain(weight[0], program="NovelAI"))
    return replace(
        found,
        source="NovelAI",
        prompt=prompt,
        negative_prompt=negative_prompt,
        model=found.model or re.sub(r" [0-9A-F]{8}$", "", source.strip()) or None,
        sampler=(found.sampler or "").removeprefix("k_") or None,
        unusable=(*list_odd(fields), *found.unusable, *remarks),
    )


def _add_characters(prompt: str, fields: Fields, name: str) -> tuple[str, int]:
    """Returns a prompt with those of its characters, which NovelAI keeps beside it, and their number."""
    whole = fields.inner(name)
    caption = whole.inner("caption") if whole else None
    entries = caption.objects("char_captions")[:MAX_CHARACTERS] if caption else []
    texts = [text for entry in entries if (text := entry.text("char_caption"))]
    return ", ".join(filter(None, (prompt.rstrip(" ,"), *texts))) if texts else prompt, len(texts)


def read_draw_things(xmp: str) -> Found | None:
    """Reads the JSON in the user comment of an XMP block, where Draw Things keeps it; None for other blocks."""
    comment = _XMP.search(xmp)
    fields = read_object(html.unescape(comment[2]).strip()) if comment else None
    found = read_flat(fields) if fields else None
    return None if found is None else replace(found, source="Draw Things")
