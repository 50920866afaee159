"""Example requests for trainings."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import PAUSED, TRAINING, TRAINING_RUNS, UPLOAD

EXAMPLES = (
    post(
        "/api/v1/trainings",
        "Train a LoRA on your pictures",
        body={
            "model": "demo-sdxl",
            "name": "zorb",
            "trigger": "zorb",
            "pictures": [{"id": UPLOAD, "caption": "A zorb in a meadow"}],
            "prior_prompts": ["auto", "A cactus in the desert at noon"],
            "strength": "usual",
            "sample_prompts": ["A zorb by the sea"],
        },
    ),
    get("/api/v1/trainings", "List your trainings"),
    get("/api/v1/trainings/choices", "See which models can learn, and what it takes"),
    get("/api/v1/trainings/{job_id}", "Look at a training", url=f"/api/v1/trainings/{TRAINING}"),
    post("/api/v1/trainings/{job_id}/pause", "Pause a training", url=f"/api/v1/trainings/{TRAINING_RUNS}/pause"),
    post("/api/v1/trainings/{job_id}/continue", "Let a training go on", url=f"/api/v1/trainings/{PAUSED}/continue"),
    Example(
        method="DELETE",
        path="/api/v1/trainings/{job_id}",
        url=f"/api/v1/trainings/{PAUSED}",
        summary="Delete a training, but not its LoRA",
    ),
    get(
        "/api/v1/trainings/{job_id}/samples/{step}/{number}",
        "See a sample",
        url=f"/api/v1/trainings/{TRAINING}/samples/2/0",
        saves="sample.webp",
    ),
)
