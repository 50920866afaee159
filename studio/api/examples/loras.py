"""LoRAs: which there are, one more, one less."""

from typing import Any

from studio.api.examples.example import Example, get, post

LORA: dict[str, Any] = {
    "ref": "watercolour",
    "title": "Watercolour",
    "family": "sdxl",
    "size": 46_138_992,
    "models": ["demo-sdxl", "sdxl-base"],
}
ADDED = LORA | {"ref": "pixel-art", "title": "pixel-art"}

EXAMPLES = (
    get("/api/v1/loras", "List the LoRAs", url="/api/v1/loras?model=demo-sdxl", answer={"loras": [LORA]}),
    post(
        "/api/v1/loras",
        "Add a LoRA",
        url="/api/v1/loras?name=pixel-art",
        sends="pixel-art.safetensors",
        is_whole=True,
        answer=ADDED,
    ),
    Example(method="DELETE", path="/api/v1/loras/{ref}", url="/api/v1/loras/watercolour", summary="Delete a LoRA"),
)
