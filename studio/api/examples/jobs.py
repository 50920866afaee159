"""Example requests for jobs: submit, list, edit, duplicate, cancel, retry; and for sweeps."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import DONE, FAILED, SHORT_RECIPE, WAITING

SWEEP = {"recipe": {"model": "demo-sdxl", "prompt": "A {red|blue} boat"}, "seeds": 2}

EXAMPLES = (
    post("/api/v1/jobs", "Queue a recipe", body=SHORT_RECIPE),
    get("/api/v1/jobs", "List your jobs", url="/api/v1/jobs?state=queued&limit=20"),
    get("/api/v1/jobs/{job_id}", "Look at a job", url=f"/api/v1/jobs/{DONE}"),
    post("/api/v1/estimate", "What would it cost", body=SHORT_RECIPE),
    Example(
        method="PATCH",
        path="/api/v1/jobs/{job_id}",
        url=f"/api/v1/jobs/{WAITING}",
        summary="Edit a waiting job",
        body={"steps": 20},
    ),
    get(
        "/api/v1/jobs/{job_id}/preview.jpg",
        "See a running job's preview",
        url=f"/api/v1/jobs/{WAITING}/preview.jpg",
        saves="preview.jpg",
    ),
    post("/api/v1/jobs/{job_id}/retry", "Run an ended job again", url=f"/api/v1/jobs/{FAILED}/retry"),
    post(
        "/api/v1/jobs/{job_id}/duplicate",
        "Queue a job's recipe once more",
        url=f"/api/v1/jobs/{DONE}/duplicate",
        body={"keep_seed": False},
    ),
    Example(method="DELETE", path="/api/v1/jobs/{job_id}", url=f"/api/v1/jobs/{WAITING}", summary="Cancel a job"),
    post("/api/v1/jobs/cancel", "Cancel many jobs", body={"scope": "waiting"}),
    post("/api/v1/jobs/clear", "Take ended jobs off the list"),
    post("/api/v1/expand", "Count what a prompt with choices would queue", body=SWEEP),
    post(
        "/api/v1/prompts/read",
        "See what a model reads of a prompt",
        body={"model": "demo-sdxl", "prompt": "A (red:1.3) boat at sea"},
    ),
    post("/api/v1/jobs/many", "Queue a prompt's choices and several seeds", body=SWEEP),
    get("/api/v1/wildcards", "List the wildcards that prompts may name"),
    get("/api/v1/wildcards/{name}", "Look at a wildcard", url="/api/v1/wildcards/animals"),
    Example(
        method="PUT",
        path="/api/v1/wildcards/{name}",
        url="/api/v1/wildcards/places-cities",
        summary="Create or change a wildcard",
        body={"lines": ["Oslo", "Rome"]},
    ),
    Example(
        method="DELETE", path="/api/v1/wildcards/{name}", url="/api/v1/wildcards/animals", summary="Delete a wildcard"
    ),
)
