"""A training in a studio of its own: progress, pause, a killed worker, a stopped server, and its LoRA in the list."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

Start = Callable[..., Any]


def ask(studio: Any, encode_picture: Callable[..., bytes], *, steps: int) -> str:
    answer = studio.client.post("/api/v1/uploads", files={"file": encode_picture("red")})
    picture = answer.raise_for_status().json()["id"]
    asked = {"model": "demo-sdxl", "name": "zorb", "trigger": "zorb", "steps": steps, "pictures": [{"id": picture}]}
    return studio.client.post("/api/v1/trainings", json=asked).raise_for_status().json()["id"]


def go_on(studio: Any, job_id: str) -> None:
    studio.client.post(f"/api/v1/trainings/{job_id}/continue").raise_for_status()


def test_a_training_survives_a_pause_a_killed_worker_and_a_stopped_server(
    start_studio: Start, encode_picture: Callable[..., bytes], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    studio = start_studio(data_dir)
    job_id = ask(studio, encode_picture, steps=1200)
    studio.wait_for_step(job_id, 20)
    studio.client.post(f"/api/v1/trainings/{job_id}/pause").raise_for_status()
    paused = studio.wait_for_state(job_id, "paused")
    saved = studio.read(f"trainings/{job_id}")["saved_step"]
    assert paused["step"] <= saved < 1200
    quick = studio.submit(steps=1)
    studio.wait_for_state(quick, "done")

    go_on(studio, job_id)
    studio.wait_for_step(job_id, saved + 20)
    os.kill(studio.read("health")["engine"]["pid"], signal.SIGKILL)
    failed = studio.wait_for_state(job_id, "failed")
    assert failed["error"]["title"] == "The worker was killed"

    go_on(studio, job_id)
    studio.wait_for_step(job_id, saved + 40)
    studio.stop(signal.SIGTERM)
    after = start_studio(data_dir)
    done = after.wait_for_state(job_id, "done")
    training = after.read(f"trainings/{job_id}")
    assert training["loras"] == ["zorb"]
    steps = [point["step"] for point in training["points"]]
    assert steps == sorted(set(steps)) and steps[-1] == 1200
    assert [lora["ref"] for lora in after.read("loras")["loras"]] == ["zorb"]
    assert done["outputs"]
    assert after.read(f"outputs/{job_id}-0")["recipe"]["loras"] == [{"ref": "zorb", "scale": 1.0}]
