"""Example requests for the routes of OpenAI's API."""

from studio.api.examples.example import get, post

EXAMPLES = (
    post(
        "/v1/images/generations",
        "Make pictures as OpenAI's API does",
        body={"model": "demo-sdxl", "prompt": "A red sailboat", "size": "256x256", "response_format": "url", "seed": 7},
    ),
    post(
        "/v1/images/edits",
        "Make pictures from a picture as OpenAI's API does",
        form={"prompt": "At night", "model": "demo-sdxl"},
        sends="cat.png",
        sends_as="image",
    ),
    get("/v1/models", "List the models of pictures"),
    get("/v1/models/{model_id}", "Look at a model", url="/v1/models/demo-sdxl"),
)
