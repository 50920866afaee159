"""SwarmUI's JSON, in the PNG's `parameters` or the user comment of a JPEG or WebP."""

from collections.abc import Iterator
from itertools import zip_longest

from studio.library.foreign.bounded import Fields, shorten
from studio.library.foreign.found import Found, FoundLora, list_odd, list_unused

KEY = "sui_image_params"
_KNOWN = frozenset(
    (
        *("prompt", "negativeprompt", "original_prompt", "model", "seed", "steps", "cfgscale", "fluxguidancescale"),
        *("sampler", "scheduler", "width", "height", "aspectratio", "images", "batchsize", "loras", "loraweights"),
        *("lorasectionconfinement", "sigmashift", "swarm_version", "date", "generation_time", "wildcardseed"),
        *("used_wildcards", "automaticvae", "nopreviews", "imageformat", "personalnote", "presets", "donotsave"),
        *("text2videoframes", "videofps", "videoframes", "initimagecreativity"),
    )
)


def read_swarmui(outer: Fields) -> Found | None:
    """Parses the JSON; None when it is another program's."""
    fields = outer.inner(KEY)
    if fields is None:
        return None
    return Found(
        source="SwarmUI",
        prompt=fields.text("prompt") or "",
        negative_prompt=fields.text("negativeprompt") or "",
        model=fields.text("model"),
        seed=fields.whole("seed"),
        steps=fields.whole("steps"),
        guidance_scale=fields.number("cfgscale"),
        distilled_guidance=fields.number("fluxguidancescale"),
        sampler=fields.text("sampler"),
        schedule=fields.text("scheduler"),
        width=fields.whole("width"),
        height=fields.whole("height"),
        frames=fields.whole("text2videoframes") or fields.whole("videoframes"),
        fps=fields.whole("videofps"),
        flow_shift=fields.number("sigmashift"),
        strength=fields.number("initimagecreativity"),
        loras=tuple(_list_loras(fields)),
        unusable=(*list_odd(fields), *list_unused(fields.rest(_KNOWN))),
    )


def _list_loras(fields: Fields) -> Iterator[FoundLora]:
    """Pairs LoRA names with their weights, which are in a list of their own that may be shorter."""
    names = fields.items("loras")
    for name, weight in zip_longest(names, fields.items("loraweights")[: len(names)]):
        yield FoundLora(shorten(name), fields.to_number("loraweights", weight))
