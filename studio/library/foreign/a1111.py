"""A1111's `parameters`: prompt, negative prompt, one line of settings. Forge, SD.Next and many sites write the same.

Prompts may have any number of lines; the settings begin with `Steps:` and are `Name: value`, with quotes around values
that contain a comma. The text is parsed in one pass: one regular expression for all of it could be made to backtrack
for ever.
"""

import json
import re
from collections.abc import Iterator

from pipelines.messages import say
from studio.library.foreign.bounded import limit_text, read_number, read_whole
from studio.library.foreign.errors import MetadataError
from studio.library.foreign.found import NO_COUNTERPART, Found, FoundLora, Unusable, list_unused

NEGATIVE = "Negative prompt:"
STRENGTH = "Denoising strength"  # the input picture's, or the second pass's where the text describes one
SECOND_PASS = "Hires"
MAX_SETTINGS = 300

# Settings that are dropped without a remark: useless without the files that they describe, or reported elsewhere.
_SILENT = frozenset(
    (
        *("Model hash", "Lora hashes", "TI hashes", "VAE hash", "Hashes", "Version", "App", "Created Date", "RNG"),
        *("Civitai resources", "Civitai metadata", "Refiner hash", "Pipeline", "Operations", "User", "Parser"),
    )
)
_READ = frozenset(
    (
        *("Steps", "Sampler", "Schedule type", "Scheduler", "CFG scale", "Distilled CFG Scale", "Seed", "Size"),
        *("Model", "Raw prompt", "Raw negative prompt", "Lora weights", "Batch size", "Batch pos", "Shift"),
    )
)
_GROUPS = (SECOND_PASS, "ADetailer", "ControlNet", "Tiled Diffusion", "Variation", "Mask", "Inpaint")
_WHY = {
    STRENGTH: say("belongs to a second pass, which there is not here"),
    "Clip skip": say("the text encoders run as the model was trained"),
    "VAE": say("each model brings its own autoencoder"),
    "Refiner": say("only one model makes a picture"),
    "Styles": say("styles are not known here; their words are not in the prompt"),
    SECOND_PASS: say("there is no second pass at a larger size"),
    "ADetailer": say("there is no second pass over faces and hands"),
    "ControlNet": say("there is no ControlNet here"),
}


def read_a1111(text: str) -> Found | None:
    """Parses the text; None when it has no line of settings; raises MetadataError when the settings are damaged."""
    text = limit_text(text, "recipe").strip()
    lines = text.split("\n")
    place = next((at for at in reversed(range(len(lines))) if lines[at].startswith("Steps: ")), None)
    if place is None:
        return None
    settings = dict(_list_settings(lines[place]))
    head = "\n".join(lines[:place])
    before, mark, after = ("\n" + head).partition("\n" + NEGATIVE)
    width, height = _read_size(settings.get("Size"))
    return Found(
        source=_name_source(settings),
        prompt=settings.get("Raw prompt", before.strip()),
        negative_prompt=settings.get("Raw negative prompt", after.strip() if mark else ""),
        model=settings.get("Model"),
        seed=_whole(settings, "Seed"),
        steps=_whole(settings, "Steps"),
        guidance_scale=_number(settings, "CFG scale"),
        distilled_guidance=_number(settings, "Distilled CFG Scale"),
        sampler=settings.get("Sampler"),
        schedule=settings.get("Schedule type", settings.get("Scheduler")),
        width=width,
        height=height,
        flow_shift=_number(settings, "Shift"),
        strength=None if _has_second_pass(settings) else _number(settings, STRENGTH),
        batch_size=_whole(settings, "Batch size"),
        loras=tuple(_list_loras(settings.get("Lora weights", ""))),
        unusable=tuple(_list_unusable(settings)),
    )


def _list_settings(line: str) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(_split(line)):
        if number == MAX_SETTINGS:
            raise MetadataError(say("Its recipe has more than {limit} settings.", limit=MAX_SETTINGS))
        name, colon, value = part.strip().partition(":")
        if colon and re.fullmatch(r"[A-Za-z][\w \-/.]{0,60}", name):
            yield name, _unquote(value.strip())


def _split(line: str) -> Iterator[str]:
    """Splits a line at commas outside of quotes."""
    start, is_quoted, is_escaped = 0, False, False
    for place, sign in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif sign == "\\":
            is_escaped = is_quoted
        elif sign == '"':
            is_quoted = not is_quoted
        elif sign == "," and not is_quoted:
            yield line[start:place]
            start = place + 1
    yield line[start:]


def _unquote(value: str) -> str:
    if len(value) < 2 or not (value[0] == value[-1] == '"'):
        return value
    try:
        inner = json.loads(value)
    except ValueError:
        return value[1:-1]
    return limit_text(inner, "value") if isinstance(inner, str) else value


def _name_source(settings: dict[str, str]) -> str:
    version = settings.get("Version", "")
    if version.startswith("Fooocus"):
        return "Fooocus"
    if settings.get("App") == "SD.Next":
        return "SD.Next"
    if version == "Lumesh":
        return "Lumesh"
    return "Forge" if re.match(r"f\d|neo|classic", version) else "A1111"


def _whole(settings: dict[str, str], name: str) -> int | None:
    return read_whole(settings[name], name) if settings.get(name) else None


def _number(settings: dict[str, str], name: str) -> float | None:
    return read_number(settings[name], name) if settings.get(name) else None


def _read_size(size: str | None) -> tuple[int | None, int | None]:
    if not size:
        return None, None
    match = re.fullmatch(r"(\d{1,6})\s*x\s*(\d{1,6})", size)
    if match is None:
        raise MetadataError(
            say("Its recipe is damaged: Size is {text} where a width and a height belong.", text=repr(size[:40]))
        )
    return int(match[1]), int(match[2])


def _list_loras(text: str) -> Iterator[FoundLora]:
    """Parses LoRAs as Fooocus writes them into this format: `offset: 0.1, b: 1.0`."""
    for part in text.split(", "):
        name, colon, weight = part.rpartition(":")
        if part:
            yield FoundLora(name.strip(), read_number(weight.strip(), "Lora weights")) if colon else FoundLora(part)


def _has_second_pass(settings: dict[str, str]) -> bool:
    return any(name.startswith(SECOND_PASS) for name in settings)


def _list_unusable(settings: dict[str, str]) -> Iterator[Unusable]:
    """Lists the unusable settings, with those of one extension in one line."""
    left = {
        name: value for name, value in settings.items() if name not in _SILENT | _READ and value not in ("", "None")
    }
    if not _has_second_pass(settings):
        left.pop(STRENGTH, None)
    for group in _GROUPS:
        members = [name for name in left if name.startswith(group)]
        if members:
            values = ", ".join(f"{name.removeprefix(group).strip()} {left.pop(name)}" for name in members)
            yield from list_unused({group: values}, _WHY.get(group, NO_COUNTERPART))
    for name, value in left.items():
        yield from list_unused({name: value}, _WHY.get(name, NO_COUNTERPART))
