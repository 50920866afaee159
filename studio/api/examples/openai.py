"""The routes that programs written for OpenAI's API know."""

from studio.api.examples.example import get, post
from studio.api.examples.things import PICTURE

MODEL = {"id": "demo-sdxl", "object": "model", "created": 0, "owned_by": "lumesh"}
PICTURES = {
    "created": 1795325528,
    "size": "256x256",
    "output_format": "png",
    "background": "opaque",
    "data": [{"id": PICTURE, "seed": 7, "url": f"http://localhost:7860/api/v1/outputs/{PICTURE}/file"}],
}

EXAMPLES = (
    post(
        "/v1/images/generations",
        "Make pictures as OpenAI's API does",
        body={"model": "demo-sdxl", "prompt": "A red sailboat", "size": "256x256", "response_format": "url", "seed": 7},
        answer=PICTURES,
    ),
    get("/v1/models", "List the models of pictures", answer={"object": "list", "data": [MODEL]}),
    get("/v1/models/{model_id}", "Look at a model", url="/v1/models/demo-sdxl", answer=MODEL),
)
