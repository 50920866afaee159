"""Example requests for the machine: state, disk, caches, log, cost, and plans for other chips."""

from studio.api.examples.example import Example, get, post

EXAMPLES = (
    get("/api/v1/system", "How the machine stands"),
    get("/api/v1/system/disk", "What takes how much disk"),
    get("/api/v1/system/cache", "How large the caches are"),
    post("/api/v1/system/cache/clear", "Empty a cache", body={"what": "plans"}),
    get("/api/v1/system/log", "Read the end of the worker's log", url="/api/v1/system/log?lines=20"),
    get("/api/v1/system/usage", "What jobs have cost"),
    get("/api/v1/system/topologies", "Which machines can be planned for"),
    get("/api/v1/system/plan", "How far a plan is", url="/api/v1/system/plan?model=flux2-dev&topology=v6e-8"),
    post("/api/v1/system/plan", "Plan a model on other chips", body={"model": "flux2-dev", "topology": "v6e-8"}),
    Example(method="DELETE", path="/api/v1/system/plan", url="/api/v1/system/plan", summary="Stop planning"),
)
