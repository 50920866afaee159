"""The machine: how it stands, disk, caches, log, cost, and plans for other chips."""

from studio.api.examples.example import Example, get, post

GIB = 2**30

ENGINE = {
    "state": "ready",
    "activity": "ready",
    "pid": 4711,
    "device": "TPU v6e, 8 chips",
    "model": "sdxl-base",
    "shapes": {"1024x1024": "warm"},
    "phase": "",
    "phase_done": 0,
    "phase_total": 0,
    "error": None,
    "heartbeat_at": 1795325528.93,
    "outputs_at_once": 1,
    "swap": {
        "model": "sdxl-base",
        "previous": "demo-sdxl",
        "unload_s": 0.3,
        "find_s": 0.1,
        "load_s": 2.2,
        "shard_s": 19.2,
        "compile_s": 0.0,
        "cache_s": 3.1,
        "total_s": 24.9,
    },
}
MACHINE = {
    "chips": 8,
    "chip_price": 2.7,
    "mesh": "dp=2,sp=4",
    "devices": [{"name": "TPU v6 lite 0", "used_bytes": 6 * GIB, "limit_bytes": 31 * GIB, "peak_bytes": 9 * GIB}],
    "host": {"total_bytes": 708 * GIB, "available_bytes": 650 * GIB, "worker_bytes": 14 * GIB},
    "compiling": 0,
    "measured_at": 1795325528.41,
    "cache_cleared_at": 0.0,
}
MODEL = {
    "id": "sdxl-base",
    "title": "Stable Diffusion XL 1.0",
    "is_resident": True,
    "load_s": 21.4,
    "shapes": [{"shape": "1024x1024", "state": "warm", "warm_s": 0.0}],
}
PART = {
    "name": "outputs",
    "holds": "pictures and videos",
    "path": "/home/me/lumesh/outputs",
    "bytes": 48_211_034,
    "files": 212,
}
CACHE = {"bytes": 412_000_000, "files": 61, "is_compiling": False}
USAGE = {"owner": "local", "jobs": 52, "chip_seconds": 1210.4, "cost_usd": 0.91}
TOPOLOGY = {"name": "v6e-8", "title": "8 chips TPU v6e", "chips": 8, "is_tpu": True}
QUESTION = {"model": "flux2-dev", "shape": "1024x1024", "topology": "v6e-8", "mode": "latency", "mesh": "dp=2,sp=4"}
RUN = {
    **QUESTION,
    "state": "running",
    "progress": {"phase": "compiling flux2-dev denoise", "done": 1, "total": 4, "elapsed_s": 38.2},
    "plan": None,
    "error": None,
}

EXAMPLES = (
    get(
        "/api/v1/system",
        "How the machine stands",
        answer={
            "engine": ENGINE,
            "machine": MACHINE,
            "models": [MODEL],
            "versions": {"lumesh": "1.0", "jax": "0.11.0", "libtpu": "0.0.42"},
            "data_dir": "/home/me/lumesh",
            "worker_log": "/home/me/lumesh/logs/worker.log",
        },
    ),
    get(
        "/api/v1/system/disk",
        "What takes how much disk",
        answer={"parts": [PART], "free_bytes": 67_907_006_464, "total_bytes": 270_553_174_016},
    ),
    get(
        "/api/v1/system/cache", "How large the caches are", answer={"programs": CACHE, "plans": CACHE, "layouts": CACHE}
    ),
    post(
        "/api/v1/system/cache/clear",
        "Empty a cache",
        body={"what": "plans"},
        answer={"bytes": 1_204_311, "files": 9, "was_compiling": False},
    ),
    get(
        "/api/v1/system/log",
        "Read the end of the worker's log",
        url="/api/v1/system/log?lines=20",
        answer={"lines": ["2026-11-22 06:25:20 job 5b6250a4b9 ended after 0.21 s"]},
    ),
    get(
        "/api/v1/system/usage",
        "What jobs have cost",
        answer={"mine": USAGE, "owners": [USAGE], "chip_price": 2.7},
    ),
    get(
        "/api/v1/system/topologies",
        "Which machines can be planned for",
        answer={
            "topologies": [TOPOLOGY],
            "modes": ["latency", "throughput"],
            "here": "v6e-8",
            "default": "v6e-8",
            "here_mode": "latency",
            "here_mesh": "dp=2,sp=4",
            "remote_text_encoders": [],
        },
    ),
    get(
        "/api/v1/system/plan",
        "How far a plan is",
        url="/api/v1/system/plan?model=flux2-dev&topology=v6e-8",
        answer=RUN | {"other": None},
    ),
    post(
        "/api/v1/system/plan",
        "Plan a model on other chips",
        body={"model": "flux2-dev", "topology": "v6e-8"},
        answer=RUN,
    ),
    Example(
        method="DELETE",
        path="/api/v1/system/plan",
        url="/api/v1/system/plan",
        summary="Stop planning",
        answer={"plan": RUN | {"state": "cancelled"}},
    ),
)
