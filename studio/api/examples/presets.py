"""Presets: look, save, import, export, and the Hugging Face Hub."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import PICTURE, PRESET, PRESET_CARD

IMPORTED = PRESET_CARD | {"origin": {"kind": "file", "name": ""}}
STYLE = {
    "id": "photo",
    "title": "Photograph",
    "prompt": "Photograph of {prompt}, 35 mm lens, natural light, fine grain",
    "negative_prompt": "drawing, painting, render",
    "fits_demo": False,
}
HUB = "/api/v1/hub/you/lumesh-presets"

EXAMPLES = (
    post(
        "/api/v1/presets",
        "Save an output as a preset",
        body={"title": "Sunset", "output": PICTURE, "tags": ["sea"]},
        answer=PRESET_CARD,
    ),
    get(
        "/api/v1/presets",
        "Search the presets",
        url="/api/v1/presets?q=sunset&model=demo-sdxl",
        answer={"presets": [PRESET_CARD], "tags": {"sea": 9}, "models": {"demo-sdxl": 12}},
    ),
    get("/api/v1/presets/{preset_id}", "Look at a preset", url=f"/api/v1/presets/{PRESET}", answer=PRESET_CARD),
    get(
        "/api/v1/presets/{preset_id}/thumb",
        "Fetch a preset's picture",
        url=f"/api/v1/presets/{PRESET}/thumb",
        saves="thumb.webp",
    ),
    get(
        "/api/v1/presets/{preset_id}/file",
        "Export a preset",
        url=f"/api/v1/presets/{PRESET}/file",
        saves="sunset.lumesh.json",
    ),
    get(
        "/api/v1/presets.zip",
        "Export several presets as one pack",
        url=f"/api/v1/presets.zip?id={PRESET}",
        saves="lumesh-presets.zip",
    ),
    post(
        "/api/v1/presets/import",
        "Import a preset or a pack",
        sends="sunset.lumesh.json",
        is_whole=True,
        answer={"presets": [IMPORTED], "refused": []},
    ),
    post(
        "/api/v1/presets/check",
        "See what importing would give",
        sends="sunset.lumesh.json",
        is_whole=True,
        answer=PRESET_CARD | {"id": "", "origin": {"kind": "link", "name": ""}, "thumb_url": None, "created_at": None},
    ),
    get(
        "/api/v1/preset.schema.json",
        "Fetch the format's JSON Schema",
        answer={"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Preset", "type": "object"},
    ),
    get("/api/v1/styles", "List the styles", answer={"styles": [STYLE]}),
    get("/api/v1/hub/{account}/{name}", "List a Hub repository's presets", url=HUB, answer={"names": ["sunset.json"]}),
    post(
        "/api/v1/hub/{account}/{name}/pull",
        "Import presets from the Hub",
        url=f"{HUB}/pull",
        body={"names": ["sunset.json"]},
        answer={"presets": [IMPORTED], "refused": []},
    ),
    post(
        "/api/v1/hub/{account}/{name}/push",
        "Put presets on the Hub",
        url=f"{HUB}/push",
        body={"ids": [PRESET]},
        answer={"url": "https://huggingface.co/datasets/you/lumesh-presets"},
    ),
    Example(
        method="DELETE",
        path="/api/v1/presets/{preset_id}",
        url=f"/api/v1/presets/{PRESET}",
        summary="Delete a preset of yours",
    ),
)
