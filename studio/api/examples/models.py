"""Example requests for models' files: list, download, delete, the default, the hub's token."""

from studio.api.examples.example import Example, get, post

SDXL = "/api/v1/models/sdxl-base"

EXAMPLES = (
    post(
        "/api/v1/models",
        "Add a checkpoint in one file",
        url="/api/v1/models?name=my-finetune",
        sends="my-finetune.safetensors",
        is_whole=True,
    ),
    post(
        "/api/v1/models/repositories",
        "Add a repository of the hub",
        body={"repo": "somebody/my-finetune", "revision": "main"},
    ),
    post(
        "/api/v1/models/arrivals",
        "Add a checkpoint by its address",
        body={"place": "https://huggingface.co/somebody/some-sdxl/blob/main/some-sdxl.safetensors"},
    ),
    post(
        "/api/v1/models/arrivals/{arrival_id}",
        "Go on with a file's download",
        url="/api/v1/models/arrivals/model:e5152fef37b4",
    ),
    Example(
        method="DELETE",
        path="/api/v1/models/arrivals/{arrival_id}",
        url="/api/v1/models/arrivals/model:e5152fef37b4",
        summary="Stop a file's download",
    ),
    get("/api/v1/models/files", "Which models are on this machine"),
    get("/api/v1/models/{model_id}/access", "Whether a model is gated", url=f"{SDXL}/access"),
    post("/api/v1/models/{model_id}/download", "Download a model", url=f"{SDXL}/download"),
    Example(
        method="DELETE", path="/api/v1/models/{model_id}/download", url=f"{SDXL}/download", summary="Stop a download"
    ),
    Example(
        method="DELETE", path="/api/v1/models/{model_id}/files", url=f"{SDXL}/files", summary="Delete a model's files"
    ),
    Example(
        method="DELETE",
        path="/api/v1/models/{model_id}",
        url="/api/v1/models/my-finetune",
        summary="Remove a model that was added",
    ),
    Example(
        method="PUT",
        path="/api/v1/models/default",
        url="/api/v1/models/default",
        summary="Choose the model to start with",
        body={"model": "sdxl-base"},
    ),
    Example(
        method="PUT",
        path="/api/v1/models/token",
        url="/api/v1/models/token",
        summary="Keep a token for gated models",
        body={"token": "hf_abcdefgh"},
    ),
    Example(method="DELETE", path="/api/v1/models/token", url="/api/v1/models/token", summary="Forget the token"),
)
