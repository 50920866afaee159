"""Jobs: ask, look, edit, repeat, cancel, retry; many at once."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import DONE, DONE_JOB, FAILED, RECIPE, SHORT_RECIPE, WAITING, WAITING_JOB

SWEEP = {"recipe": {"model": "demo-sdxl", "prompt": "A {red|blue} boat"}, "seeds": 2}
COUNT = {
    "count": 4,
    "prompts": 2,
    "combinations": 2,
    "seeds": 2,
    "images": 4,
    "examples": ["A red boat", "A blue boat"],
    "is_plain": False,
    "limit": 100,
    "seconds": 11.1,
}

EXAMPLES = (
    post("/api/v1/jobs", "Queue a recipe", body=SHORT_RECIPE, answer={"id": WAITING}),
    get(
        "/api/v1/jobs",
        "List your jobs",
        url="/api/v1/jobs?state=queued&limit=20",
        answer={"jobs": [WAITING_JOB], "last_event_id": 26},
    ),
    get("/api/v1/jobs/{job_id}", "Look at a job", url=f"/api/v1/jobs/{DONE}", answer=DONE_JOB),
    post(
        "/api/v1/estimate",
        "What would it cost",
        body=SHORT_RECIPE,
        answer={"programs": "256x256", "state": "warm", "warm_s": 0.0, "seconds": 0.2},
    ),
    Example(
        method="PATCH",
        path="/api/v1/jobs/{job_id}",
        url=f"/api/v1/jobs/{WAITING}",
        summary="Edit a waiting job",
        body={"steps": 20},
        answer=WAITING_JOB | {"recipe": RECIPE | {"steps": 20}, "steps": 20},
    ),
    get(
        "/api/v1/jobs/{job_id}/preview.jpg",
        "See a running job's preview",
        url=f"/api/v1/jobs/{WAITING}/preview.jpg",
        saves="preview.jpg",
    ),
    post(
        "/api/v1/jobs/{job_id}/retry",
        "Run an ended job again",
        url=f"/api/v1/jobs/{FAILED}/retry",
        answer=WAITING_JOB | {"id": FAILED, "attempt": 1},
    ),
    post(
        "/api/v1/jobs/{job_id}/duplicate",
        "Queue a job's recipe once more",
        url=f"/api/v1/jobs/{DONE}/duplicate",
        body={"keep_seed": False},
        answer={"id": WAITING},
    ),
    Example(
        method="DELETE",
        path="/api/v1/jobs/{job_id}",
        url=f"/api/v1/jobs/{WAITING}",
        summary="Cancel a job",
        answer=WAITING_JOB | {"state": "cancelled", "position": None, "eta_s": None},
    ),
    post("/api/v1/jobs/cancel", "Cancel many jobs", body={"scope": "waiting"}, answer={"cancelled": 3}),
    post("/api/v1/jobs/clear", "Take ended jobs off the list", answer={"cleared": 2}),
    post("/api/v1/expand", "Count what a prompt with choices would queue", body=SWEEP, answer=COUNT),
    post("/api/v1/jobs/many", "Queue a prompt's choices and several seeds", body=SWEEP, answer={"ids": [WAITING]}),
    get(
        "/api/v1/wildcards",
        "List the lists that prompts may name",
        answer={"wildcards": [{"name": "animals", "count": 12}]},
    ),
    get(
        "/api/v1/wildcards/{name}",
        "Look at a list",
        url="/api/v1/wildcards/animals",
        answer={"name": "animals", "count": 2, "lines": ["# of the farm", "cat", "dog"]},
    ),
    Example(
        method="PUT",
        path="/api/v1/wildcards/{name}",
        url="/api/v1/wildcards/places-cities",
        summary="Create or change a list",
        body={"lines": ["Oslo", "Rome"]},
        answer={"name": "places-cities", "count": 2},
    ),
    Example(
        method="DELETE",
        path="/api/v1/wildcards/{name}",
        url="/api/v1/wildcards/animals",
        summary="Delete a list",
    ),
)
