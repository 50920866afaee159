"""The visitor's line, and who is told when a job ends."""

from studio.api.examples.example import Example, get, post
from studio.api.examples.things import WAITING, WAITING_JOB

QUEUE = {"is_paused": False, "quota": 200}
WEBHOOK = {"url": "https://example.com/lumesh", "told_at": None, "told": "", "attempts": 0}

EXAMPLES = (
    get("/api/v1/queue", "Is your line held", answer=QUEUE),
    post("/api/v1/queue/pause", "Hold your waiting jobs", answer=QUEUE | {"is_paused": True}),
    post("/api/v1/queue/resume", "Let them go on", answer=QUEUE),
    post(
        "/api/v1/jobs/{job_id}/move",
        "Move a waiting job",
        url=f"/api/v1/jobs/{WAITING}/move",
        body={"before": None},
        answer=WAITING_JOB | {"is_placed": True},
    ),
    Example(
        method="PUT",
        path="/api/v1/webhook",
        url="/api/v1/webhook",
        summary="Set your webhook",
        body={"url": "https://example.com/lumesh"},
        answer={"webhook": WEBHOOK, "secret": "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ="},
    ),
    get("/api/v1/webhook", "Look at your webhook", answer={"webhook": WEBHOOK}),
    post(
        "/api/v1/webhook/ping",
        "Try your webhook",
        answer={"is_taken": True, "told": "it took the message"},
    ),
    Example(
        method="DELETE",
        path="/api/v1/webhook",
        url="/api/v1/webhook",
        summary="Remove your webhook",
        answer={"webhook": None},
    ),
)
