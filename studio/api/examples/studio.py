"""Health, models, events, and links as QR codes."""

from studio.api.examples.example import get, post
from studio.api.examples.things import DONE, NOW

SHAPE = {
    "shape": "256x256",
    "width": 256,
    "height": 256,
    "frames": 1,
    "flow_shift": None,
    "state": "warm",
    "warm_s": 0.0,
    "step_s": 0.0125,
    "seconds": 0.2,
}
MODEL = {
    "id": "demo-sdxl",
    "title": "Postcards (demo, SDXL layout)",
    "family": "sdxl",
    "family_title": "SDXL",
    "description": "A tiny SDXL trained by Lumesh's own trainer on pictures it draws itself.",
    "knows": "Times (sunrise, noon, sunset, night), places, subjects, colours.",
    "licence": "Apache-2.0",
    "examples": ["A red sailboat on the ocean at sunset"],
    "is_demo": True,
    "has_references": False,
    "is_resident": True,
    "is_here": True,
    "load_s": 1.9,
    "defaults": {
        "shape": "256x256",
        "negative_prompt": "",
        "steps": 12,
        "guidance_scale": 4.0,
        "guidance_scale_2": None,
        "scheduler": "euler",
        "flow_shift": None,
        "fps": None,
        "strength": 0.6,
    },
    "limits": {
        "steps": 100,
        "guidance_scale": 20.0,
        "guidance_scale_2": 20.0,
        "batch_size": 8,
        "min_images": 0,
        "images": 1,
        "flow_shift": 20,
        "fps": 60,
        "strength": 1,
    },
    "schedulers": ["euler", "euler_ancestral", "dpmpp_2m", "ddim"],
    "shapes": [SHAPE],
}
HEALTH = {
    "status": "ok",
    "engine": {
        "state": "ready",
        "activity": "ready",
        "pid": 4711,
        "device": "TPU v6e, 8 chips",
        "model": "demo-sdxl",
        "shapes": {"256x256": "warm", "320x192": "disk"},
        "phase": "",
        "phase_done": 0,
        "phase_total": 0,
        "error": None,
        "heartbeat_at": NOW,
        "outputs_at_once": 1,
        "swap": None,
    },
    "jobs": {"queued": 1, "running": 0, "done": 1, "failed": 1, "cancelled": 0, "interrupted": 0},
    "last_event_id": 26,
}
STREAM = (
    "retry: 1000\n\n"
    "id: 27\nevent: job.step\n"
    f'data: {{"id":27,"kind":"job.step","job_id":"{DONE}","at":{NOW},"state":"running","phase":"denoising","step":3,'
    '"steps":12,"eta_s":1.1}\n\n'
)

ME = {
    "owner": "local",
    "name": "local",
    "is_known": False,
    "is_admin": False,
    "is_operator": True,
    "sees_everyone": False,
    "can_log_out": False,
    "is_ephemeral": False,
}

EXAMPLES = (
    get("/api/v1/me", "Who am I", answer=ME),
    get("/api/v1/health", "Is it well", answer=HEALTH),
    get("/api/v1/models", "List the models and what each shape costs", answer={"models": [MODEL]}),
    get("/api/v1/events", "Follow what happens", url="/api/v1/events?after=0", lines=STREAM),
    post("/api/v1/qr", "Draw a link as a QR code", body={"link": "https://example.com/?preset=sunset"}, saves="qr.svg"),
)
