"""Example requests for the gallery and its files."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import CLIP, OTHER_PICTURE, PICTURE

EXAMPLES = (
    get("/api/v1/outputs", "Search your outputs", url="/api/v1/outputs?q=sunset+boat&model=demo-sdxl&limit=20"),
    get("/api/v1/outputs/filters", "What there is to filter by"),
    get("/api/v1/outputs/{output_id}", "Look at an output", url=f"/api/v1/outputs/{PICTURE}"),
    Example(
        method="PATCH",
        path="/api/v1/outputs/{output_id}",
        url=f"/api/v1/outputs/{PICTURE}",
        summary="Mark an output",
        body={"favourite": True, "tags": ["sea"]},
    ),
    get("/api/v1/outputs/{output_id}/file", "Fetch the file", url=f"/api/v1/outputs/{PICTURE}/file", saves="boat.png"),
    get(
        "/api/v1/outputs/{output_id}/thumb",
        "Fetch the thumbnail",
        url=f"/api/v1/outputs/{PICTURE}/thumb",
        saves="thumb.webp",
    ),
    get(
        "/api/v1/outputs/{output_id}/poster",
        "Fetch a video's poster",
        url=f"/api/v1/outputs/{CLIP}/poster",
        saves="poster.webp",
    ),
    get(
        "/api/v1/outputs/{output_id}/compare/{other_id}",
        "Compare two outputs pixel by pixel",
        url=f"/api/v1/outputs/{PICTURE}/compare/{OTHER_PICTURE}",
    ),
    post("/api/v1/outputs/zip", "Download several as one zip", form={"ids": PICTURE}, saves="outputs.zip"),
    Example(
        method="DELETE",
        path="/api/v1/outputs/{output_id}",
        url=f"/api/v1/outputs/{PICTURE}",
        summary="Throw an output away",
    ),
    post("/api/v1/outputs/restore", "Take outputs back", body={"ids": [PICTURE]}),
    post("/api/v1/outputs/trash", "Throw outputs away", body={"ids": [PICTURE]}),
    post("/api/v1/outputs/purge", "Delete outputs for ever", body={"ids": [PICTURE]}),
)
