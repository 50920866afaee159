"""Example requests for presets: list, save, import, export, and the Hugging Face Hub."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import PICTURE, PRESET

HUB = "/api/v1/hub/you/lumesh-presets"

EXAMPLES = (
    post("/api/v1/presets", "Save an output as a preset", body={"title": "Sunset", "output": PICTURE, "tags": ["sea"]}),
    get("/api/v1/presets", "Search the presets", url="/api/v1/presets?q=sunset&model=demo-sdxl"),
    get("/api/v1/presets/{preset_id}", "Look at a preset", url=f"/api/v1/presets/{PRESET}"),
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
        "/api/v1/presets/{preset_id}/loras",
        "Download a preset's LoRAs",
        url="/api/v1/presets/sdxl-lightning-4/loras",
    ),
    post("/api/v1/presets/import", "Import a preset or a pack", sends="sunset.lumesh.json", is_whole=True),
    post("/api/v1/presets/check", "See what importing would give", sends="sunset.lumesh.json", is_whole=True),
    get("/api/v1/preset.schema.json", "Fetch the format's JSON Schema"),
    get("/api/v1/styles", "List the styles"),
    get("/api/v1/hub/{account}/{name}", "List a Hub repository's presets", url=HUB),
    post(
        "/api/v1/hub/{account}/{name}/pull",
        "Import presets from the Hub",
        url=f"{HUB}/pull",
        body={"names": ["sunset.json"]},
    ),
    post("/api/v1/hub/{account}/{name}/push", "Put presets on the Hub", url=f"{HUB}/push", body={"ids": [PRESET]}),
    Example(
        method="DELETE",
        path="/api/v1/presets/{preset_id}",
        url=f"/api/v1/presets/{PRESET}",
        summary="Delete a preset of yours",
    ),
)
