"""What the examples speak of: one job that is done, one that waits, one that ended badly, an output, a preset."""

from typing import Any

DONE, WAITING, FAILED = "5b6250a4b9", "7c01e2d9aa", "90ab4411ce"
PICTURE, OTHER_PICTURE, CLIP = f"{DONE}-0", f"{DONE}-1", "c3d5e7f901-0"
GRID = "e41f09aa37"
UPLOAD = "upload-9d76dd53d0031017"
PRESET = "preset-92af5ec0f6c0"
NOW = 1795325528.93

SHORT_RECIPE: dict[str, Any] = {"model": "demo-sdxl", "prompt": "A red sailboat at sunset"}

RECIPE: dict[str, Any] = {
    "schema": 1,
    "model": "demo-sdxl",
    "shape": "256x256",
    "prompt": "A red sailboat at sunset",
    "negative_prompt": "",
    "seed": 7,
    "steps": 12,
    "guidance_scale": 4.0,
    "guidance_scale_2": None,
    "scheduler": "euler",
    "flow_shift": None,
    "fps": None,
    "batch_size": 1,
    "loras": [],
    "images": [],
    "strength": None,
    "revision": None,
}

OUTPUT_LINK: dict[str, Any] = {
    "id": PICTURE,
    "kind": "image",
    "url": f"/api/v1/outputs/{PICTURE}/file",
    "thumb_url": f"/api/v1/outputs/{PICTURE}/thumb",
    "width": 256,
    "height": 256,
    "frames": 1,
    "seed": 7,
}

OUTPUT: dict[str, Any] = {
    **OUTPUT_LINK,
    "owner": "local",
    "job_id": DONE,
    "recipe": RECIPE,
    "created_at": NOW,
    "made_with": {"weights": "sha256:5f0c…", "device": "TPU v6e, 8 chips", "mesh": "dp=8"},
    "favourite": False,
    "tags": [],
    "trashed_at": None,
    "grid": None,
    "chip_seconds": 1.6,
    "cost_usd": None,
}

DONE_JOB: dict[str, Any] = {
    "id": DONE,
    "kind": "generate",
    "owner": "local",
    "state": "done",
    "worker": "local",
    "attempt": 1,
    "recipe": RECIPE,
    "created_at": NOW - 3,
    "started_at": NOW - 2,
    "finished_at": NOW,
    "phase": "saving",
    "phase_done": 1,
    "phase_total": 1,
    "phase_detail": "",
    "step": 12,
    "steps": 12,
    "eta_s": None,
    "eta_error_s": None,
    "position": None,
    "reason": "",
    "compiles": 0,
    "revision": "5f0c…",
    "timings": {"encode_s": 0.02, "denoise_s": 0.15, "step_ms": 12.5, "decode_s": 0.02, "total_s": 0.2},
    "error": None,
    "outputs": [OUTPUT_LINK],
    "chip_seconds": 1.6,
    "cost_usd": None,
    "overtaken": 0,
    "cancel_requested": False,
    "programs": "256x256",
    "is_placed": False,
    "is_cleared": False,
}

WAITING_JOB: dict[str, Any] = {
    **DONE_JOB,
    "id": WAITING,
    "state": "queued",
    "worker": None,
    "attempt": 0,
    "recipe": RECIPE | {"prompt": "A lighthouse"},
    "started_at": None,
    "finished_at": None,
    "phase": "",
    "phase_done": 0,
    "phase_total": 0,
    "step": 0,
    "eta_s": 2.8,
    "position": 1,
    "reason": "next, when the running job ends",
    "compiles": None,
    "revision": "",
    "timings": {},
    "outputs": [],
}

SHARED_RECIPE: dict[str, Any] = {
    name: value for name, value in RECIPE.items() if name not in ("schema", "loras", "images", "strength", "revision")
}

PRESET_CARD: dict[str, Any] = {
    "id": PRESET,
    "title": "Sunset",
    "description": "",
    "author": "",
    "tags": ["sea"],
    "licence": "",
    "recipe": SHARED_RECIPE,
    "model": {"id": "demo-sdxl", "title": "Postcards (demo, SDXL layout)"},
    "missing": None,
    "needs_picture": False,
    "origin": {"kind": "made", "name": ""},
    "thumb_url": f"/api/v1/presets/{PRESET}/thumb",
    "created_at": NOW,
}
