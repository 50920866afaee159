"""A1111's `parameters`: prompt, negative prompt, one line of settings. Forge, SD.Next and many sites write the same.

Prompts may have any number of lines, and so may the settings (settings_line.py).
Not here: the models and LoRAs that the settings name by their hashes (resources.py).
"""

import re
from collections.abc import Iterator

from pipelines.messages import say
from studio.library.foreign.bounded import Fields, limit_text
from studio.library.foreign.found import NO_COUNTERPART, Found, FoundLora, Unusable, list_odd, list_unused
from studio.library.foreign.resources import read_resources
from studio.library.foreign.settings_line import find_settings

_NEGATIVE = re.compile(r"^Negative prompt:", re.IGNORECASE | re.MULTILINE)
_DRAW_THINGS_NEGATIVE = re.compile(r"^-", re.MULTILINE)
_NEGATIVE_WITHIN = re.compile(r"(?<=[\s,.])Negative prompt:")  # of programs that write one line
STRENGTH = "Denoising strength"  # the input picture's, or the second pass's where the text describes one
SECOND_PASS = "Hires"

# Settings that do not decide over the picture, or that resources.py reads.
_SILENT = frozenset(
    (
        *("Model hash", "Lora hashes", "TI hashes", "VAE hash", "Hashes", "Version", "App", "Created Date", "RNG"),
        *("Civitai resources", "Civitai metadata", "Refiner hash", "Pipeline", "Operations", "User", "Parser"),
        "Backend",
    )
)
_READ = frozenset(
    (
        *("Steps", "Sampler", "Schedule type", "Scheduler", "CFG scale", "Distilled CFG Scale", "Seed", "Size"),
        *(
            "Width",
            "Height",
            "Model",
            "Raw prompt",
            "Raw negative prompt",
            "Lora weights",
            "Batch size",
            "Batch pos",
            "Shift",
        ),
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


def read_a1111(text: str, *, needs_settings: bool = True) -> Found | None:
    """Parses the text; None when it has no settings, unless they are not needed: then it is prompts alone."""
    text = limit_text(text, "recipe").strip()
    found = find_settings(text)
    if found is None and (needs_settings or not text):
        return None
    settings, head = found or (dict[str, str](), text)
    mark = _NEGATIVE.search(head) or _NEGATIVE_WITHIN.search(head)
    if mark is None and "Seed Mode" in settings:
        mark = _DRAW_THINGS_NEGATIVE.search(head)
    before, after = (head[: mark.start()], head[mark.end() :]) if mark else (head, "")
    fields = Fields(dict(settings))
    width, height = fields.size("Size")
    if "Size" not in settings:
        width, height = fields.whole("Width"), fields.whole("Height")
    resources = read_resources(settings)
    return Found(
        source=_name_source(settings),
        prompt=settings.get("Raw prompt", before.strip()),
        negative_prompt=settings.get("Raw negative prompt", after.strip()),
        model=settings.get("Model") or resources.model,
        seed=fields.whole("Seed"),
        steps=fields.whole("Steps"),
        guidance_scale=fields.number("CFG scale"),
        distilled_guidance=fields.number("Distilled CFG Scale"),
        sampler=settings.get("Sampler"),
        schedule=settings.get("Schedule type", settings.get("Scheduler")),
        width=width,
        height=height,
        flow_shift=fields.number("Shift"),
        strength=None if _has_second_pass(settings) else fields.number(STRENGTH) or None,
        batch_size=fields.whole("Batch size"),
        loras=(*_list_loras(fields), *resources.loras),
        unusable=(*list_odd(fields), *resources.unusable, *_list_unusable(settings)),
    )


def _name_source(settings: dict[str, str]) -> str:
    version = settings.get("Version", "")
    if version.startswith("Fooocus"):
        return "Fooocus"
    if settings.get("App") == "SD.Next":
        return "SD.Next"
    if version == "Lumesh":
        return "Lumesh"
    return "Forge" if re.match(r"f\d|neo|classic", version) else "A1111"


def _list_loras(fields: Fields) -> Iterator[FoundLora]:
    """Parses LoRAs as Fooocus writes them into this format: `offset: 0.1, b: 1.0`."""
    for part in fields.items("Lora weights"):
        name, colon, weight = part.rpartition(":")
        yield FoundLora(name.strip(), fields.to_number("Lora weights", weight.strip())) if colon else FoundLora(part)


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
