"""Example requests for health, models, events, and links as QR codes."""

from studio.api.examples.example import get, post
from studio.api.examples.things import DONE, NOW

STREAM = (
    "retry: 1000\n\n"
    "id: 27\nevent: job.step\n"
    f'data: {{"id":27,"kind":"job.step","job_id":"{DONE}","at":{NOW},"state":"running","phase":"denoising","step":3,'
    '"steps":12,"eta_s":1.1}\n\n'
)


EXAMPLES = (
    get("/api/v1/me", "Who am I"),
    get("/api/v1/health", "Is it well"),
    get("/api/v1/models", "List the models and what each shape costs"),
    get(
        "/api/v1/models/{model_id}/download",
        "See what a model's first job would download",
        url="/api/v1/models/demo-sdxl/download",
    ),
    get(
        "/api/v1/models/{model_id}/examples/{place}/picture",
        "Fetch the picture of an example",
        url="/api/v1/models/demo-sdxl/examples/0/picture",
        saves="example.webp",
    ),
    get("/api/v1/events", "Follow what happens", url="/api/v1/events?after=0", lines=STREAM),
    post("/api/v1/qr", "Draw a link as a QR code", body={"link": "https://example.com/?preset=sunset"}, saves="qr.svg"),
)
