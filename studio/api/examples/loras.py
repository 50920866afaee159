"""Example requests for LoRAs: list, add, download, delete."""

from studio.api.examples.example import Example, get, post

EXAMPLES = (
    get("/api/v1/loras", "List the LoRAs", url="/api/v1/loras?model=demo-sdxl"),
    post(
        "/api/v1/loras", "Add a LoRA", url="/api/v1/loras?name=pixel-art", sends="pixel-art.safetensors", is_whole=True
    ),
    get(
        "/api/v1/loras/{ref}/file",
        "Download a LoRA",
        url="/api/v1/loras/watercolour/file",
        saves="watercolour.safetensors",
    ),
    Example(method="DELETE", path="/api/v1/loras/{ref}", url="/api/v1/loras/watercolour", summary="Delete a LoRA"),
)
