"""A real training on a worker of Ray, by REST alone: `python -m tests.load.training [--steps 30] [--engine ray]`.

Needs requirements-cluster.txt. A studio with the demo model learns the pictures of tests/pipelines/training/zorb.py: it
is paused after a third of its steps, makes a picture meanwhile, goes on, and its LoRA makes another one. Printed is
when each thing happened; code 1 when the LoRA changes nothing, or a point of the curve is missing or there twice.
"""

import argparse
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from rich.console import Console

from tests.load.engines import is_ready
from tests.load.kills import find_port, wait_for
from tests.load.studios import Studio, start_studio
from tests.pipelines.training import zorb

READY_S = 600.0
END_S = 3600.0
LOOK_S = 0.1
RECIPE = {"model": "demo-sdxl", "prompt": "A zorb in a meadow at noon", "steps": 8, "seed": 3}

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Prints what happened when, and what came over the stream."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--engine", choices=("local", "ray"), default="ray")
    wanted = parser.parse_args()
    flags = ["--allow-cpu", "--model", "demo-sdxl", "--engine", wanted.engine]
    flags += ["--ray-port", str(find_port())] if wanted.engine == "ray" else []
    with tempfile.TemporaryDirectory(prefix="lumesh-training-") as folder, ExitStack() as stack:
        studio = stack.enter_context(start_studio(Path(folder) / "data", *flags, port=find_port()))
        wait_for("a worker", lambda: is_ready(studio), READY_S)
        kinds: Counter[str] = Counter()
        threading.Thread(target=count_events, args=(studio.url, kinds), daemon=True).start()
        pictures = upload_pictures(studio, Path(folder) / "pictures")
        is_right = train(studio, pictures, steps=wanted.steps)
        console.print(f"events: {dict(kinds)}; load of the machine {os.getloadavg()[0]:.1f}")
    return 0 if is_right else 1


def count_events(url: str, kinds: Counter[str]) -> None:
    with httpx.stream(
        "GET", f"{url.rstrip('/')}/api/v1/events", params={"after": 0}, timeout=None, trust_env=False
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                kinds[json.loads(line.removeprefix("data: "))["kind"]] += 1


def upload_pictures(studio: Studio, folder: Path) -> list[dict[str, str]]:
    zorb.make(folder)
    found = []
    for file in sorted(folder.glob("*.png")):
        answer = studio.client.post("/api/v1/uploads", content=file.read_bytes(), headers={"Content-Type": "image/png"})
        uploaded = answer.raise_for_status().json()
        found.append({"id": uploaded["id"], "caption": file.with_suffix(".txt").read_text("utf-8")})
    return found


def train(studio: Studio, pictures: list[dict[str, str]], *, steps: int) -> bool:
    """Trains with a pause; returns whether all came back that should."""
    began_s = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"{time.monotonic() - began_s:7.1f} s  {what}")

    asked = {"model": "demo-sdxl", "name": "zorb", "trigger": "zorb", "steps": steps, "pictures": pictures}
    training = studio.client.post("/api/v1/trainings", json=asked).raise_for_status().json()["id"]
    wait_until(studio, training, lambda job: job["phase"] == "training" and job["step"] >= steps // 3)
    tell("a third is learnt")
    studio.client.post(f"/api/v1/trainings/{training}/pause").raise_for_status()
    wait_until(studio, training, lambda job: job["state"] == "paused")
    tell(f"paused after step {studio.read(f'trainings/{training}')['saved_step']}")
    before = make(studio)
    tell("a picture of the model alone")
    studio.client.post(f"/api/v1/trainings/{training}/continue").raise_for_status()
    wait_until(studio, training, lambda job: job["phase"] == "training")
    tell("it goes on")
    wait_until(studio, training, lambda job: job["state"] == "done")
    found = studio.read(f"trainings/{training}")
    tell(f"done, with {len(found['samples'])} samples; LoRAs: {[one['ref'] for one in studio.read('loras')['loras']]}")
    after = make(studio, loras=[{"ref": "zorb", "scale": 1.0}])
    difference = float(np.abs(after - before).mean())
    tell(f"a picture with the LoRA, whose values differ by {difference:.1f} of 255")
    return difference > 0 and [point["step"] for point in found["points"]] == [*range(1, steps + 1)]


def wait_until(studio: Studio, job_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + END_S
    while not holds(job := studio.read(f"jobs/{job_id}")):
        if job["state"] in ("failed", "cancelled") or time.monotonic() > deadline:
            raise RuntimeError(f"the job is {job['state']}: {job['error']}")
        time.sleep(LOOK_S)
    return job


def make(studio: Studio, **more: Any) -> np.ndarray:
    job = studio.client.post("/api/v1/jobs", json={**RECIPE, **more}).raise_for_status().json()
    done = wait_until(studio, job["id"], lambda job: job["state"] == "done")
    content = studio.client.get(done["outputs"][0]["url"]).raise_for_status().content
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), np.float32)


if __name__ == "__main__":
    sys.exit(main())
