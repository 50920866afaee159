"""Example requests for the visitor's queue and webhook."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import WAITING

EXAMPLES = (
    get("/api/v1/queue", "Is your line held"),
    post("/api/v1/queue/pause", "Hold your waiting jobs"),
    post("/api/v1/queue/resume", "Let them go on"),
    post("/api/v1/jobs/{job_id}/move", "Move a waiting job", url=f"/api/v1/jobs/{WAITING}/move", body={"before": None}),
    Example(
        method="PUT",
        path="/api/v1/webhook",
        url="/api/v1/webhook",
        summary="Set your webhook",
        body={"url": "https://example.com/lumesh"},
    ),
    get("/api/v1/webhook", "Look at your webhook"),
    post("/api/v1/webhook/ping", "Try your webhook"),
    Example(method="DELETE", path="/api/v1/webhook", url="/api/v1/webhook", summary="Remove your webhook"),
)
