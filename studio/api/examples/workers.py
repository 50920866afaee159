"""Example requests for the workers."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import GONE_WORKER, WORKER

_PATH = "/api/v1/workers/{worker_id}"

EXAMPLES = (
    get("/api/v1/workers", "Which workers there are"),
    post(f"{_PATH}/drain", "Give a worker no more jobs", url=f"/api/v1/workers/{WORKER}/drain"),
    post(f"{_PATH}/undrain", "Give a drained worker jobs again", url=f"/api/v1/workers/{WORKER}/undrain"),
    Example(method="DELETE", path=_PATH, url=f"/api/v1/workers/{GONE_WORKER}", summary="Forget a worker that is gone"),
)
