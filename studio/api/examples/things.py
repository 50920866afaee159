"""The things that examples refer to: a done job, a waiting one, a failed one, an output, a preset."""

from typing import Any

from studio.api.answers.jobs import GRID, JOB, NOW
from studio.api.answers.library import PRESET, UPLOAD

__all__ = [
    "CLIP",
    "DONE",
    "FAILED",
    "GONE_WORKER",
    "GRID",
    "NOW",
    "OTHER_PICTURE",
    "PAUSED",
    "PICTURE",
    "PRESET",
    "TRAINING",
    "TRAINING_RUNS",
    "UPLOAD",
    "WAITING",
    "WORKER",
]

DONE, WAITING, FAILED = JOB, "7c01e2d9aa", "90ab4411ce"
PICTURE, OTHER_PICTURE, CLIP = f"{DONE}-0", f"{DONE}-1", "c3d5e7f901-0"

TRAINING, TRAINING_RUNS, PAUSED = "d41e8a70bc", "2f9b6c11e4", "b07d3358fa"

WORKER, GONE_WORKER = "local", "spot-3"

SHORT_RECIPE: dict[str, Any] = {"model": "demo-sdxl", "prompt": "A red sailboat at sunset"}
