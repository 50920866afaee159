"""The studio as people run it: real processes, real kills, nothing lost."""

import io
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageStat

ROOT = Path(__file__).resolve().parent.parent
Studio = Any  # conftest.RunningStudio
Start = Callable[..., Studio]


@pytest.fixture(scope="module")
def studio(start_studio: Start) -> Studio:
    """One studio for the tests that leave it running."""
    return start_studio()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def read_events(studio: Studio, after: int) -> Iterator[dict[str, Any]]:
    """Events of one stream, as a browser gets them."""
    with studio.client.stream("GET", "/api/v1/events", params={"after": after}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def test_the_page_is_served_with_its_files(studio: Studio) -> None:
    page = studio.client.get("/").text
    script = re.search(r'src="/?(\S*/js/main\.js)"', page.replace("\\", ""))
    assert script, "the page loads its script"
    assert studio.client.get(f"/{script[1]}").is_success
    assert not studio.client.get(f"/{script[1].removesuffix('js/main.js')}../page.py").is_success


def test_the_app_never_imports_jax_or_torch() -> None:
    script = """
import sys, tempfile, pathlib, app
from pipelines.catalog import load_catalog
from studio.database import open_database
from studio.settings import Settings
settings = Settings(host="127.0.0.1", port=1, data_dir=pathlib.Path(tempfile.mkdtemp()))
app.create_app(settings, open_database(settings.database_file), load_catalog())
print(sorted({name.split(".")[0] for name in sys.modules} & {"jax", "jaxlib", "torch", "torchax", "diffusers"}))
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_database_is_not_served(studio: Studio) -> None:
    for path in ("/file=jobs.db", f"/gradio_api/file={studio.data_dir}/jobs.db", "/static/../../../jobs.db"):
        assert not studio.client.get(path).is_success


def test_a_second_studio_on_the_same_data_is_refused(studio: Studio) -> None:
    command = [sys.executable, "app.py", "--fake", "--data-dir", str(studio.data_dir), "--port", "1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert f"Another Lumesh (process {studio.process.pid})" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "app.py", "--fake", "--data-dir", str(tmp_path), "--port", port]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert f"127.0.0.1:{port} cannot be used" in ran.stderr
    assert not (tmp_path / "logs").exists(), "no worker was started"


def test_three_jobs_finish_without_any_client(studio: Studio) -> None:
    ids = [studio.submit(steps=2) for _ in range(3)]
    studio.client.close()
    studio.client = type(studio.client)(base_url=studio.client.base_url, timeout=20, trust_env=False)
    for job_id in ids:
        job = studio.wait_for_state(job_id, "done")
        assert len(job["outputs"]) == 1


def test_a_waiting_and_a_running_job_are_cancelled(studio: Studio) -> None:
    running, waiting = studio.submit(steps=100), studio.submit(steps=100)
    studio.wait_for_step(running, 1)
    assert studio.client.delete(f"/api/v1/jobs/{waiting}").json()["state"] == "cancelled"
    assert studio.client.delete(f"/api/v1/jobs/{running}").json()["state"] in ("running", "cancelled")
    assert studio.wait_for_state(running, "cancelled")["step"] < 100
    studio.wait_for_state(studio.submit(steps=1), "done")


def test_a_picture_brought_along_reaches_the_real_worker(studio: Studio, encode_picture: Callable[..., bytes]) -> None:
    colours = {}
    for colour in ("red", "blue"):
        sent = studio.client.post("/api/v1/uploads", files={"file": encode_picture(colour)}).raise_for_status()
        recipe = {"model": "flux2-klein-4b", "shape": "512x512", "steps": 1, "seed": 3, "images": [sent.json()["id"]]}
        job = studio.wait_for_state(studio.submit(**recipe), "done")
        assert job["recipe"]["images"] == [sent.json()["id"]]
        content = studio.client.get(job["outputs"][0]["url"]).content
        assert str(studio.data_dir).encode() not in content
        colours[colour] = ImageStat.Stat(Image.open(io.BytesIO(content))).mean
    assert colours["red"][0] > colours["blue"][0] + 100
    assert colours["blue"][2] > colours["red"][2] + 100


def test_previews_are_shown_while_a_job_runs(studio: Studio, wait_for: Callable[..., Any]) -> None:
    job_id = studio.submit(steps=50)
    url = f"/api/v1/jobs/{job_id}/preview.jpg"
    wait_for("a preview", lambda: studio.client.get(url).content.startswith(b"\xff\xd8"))
    studio.client.delete(f"/api/v1/jobs/{job_id}")
    studio.wait_for_state(job_id, "cancelled")
    assert studio.client.get(url).status_code == 404


def test_a_stream_that_was_cut_goes_on_without_a_gap(studio: Studio) -> None:
    start = studio.read("health")["last_event_id"]
    job_id = studio.submit(steps=6)
    seen = [event["id"] for event in itertools.islice(read_events(studio, start), 4)]
    for event in read_events(studio, seen[-1]):
        seen.append(event["id"])
        if event["kind"] == "job.done" and event["job_id"] == job_id:
            break
    assert seen == list(range(start + 1, start + 1 + len(seen)))


@pytest.mark.parametrize("how", ["kill", "prompt"])
def test_a_killed_worker_fails_its_job_and_the_queue_goes_on(
    studio: Studio, wait_for: Callable[..., Any], how: str
) -> None:
    pid = wait_for("the worker", lambda: studio.read("health")["engine"]["pid"])
    doomed = studio.submit("crash worker" if how == "prompt" else "a long one", steps=100)
    following = studio.submit(steps=1)
    if how == "kill":
        studio.wait_for_step(doomed, 1)
        os.kill(pid, signal.SIGKILL)
    failed = studio.wait_for_state(doomed, "failed")
    assert failed["error"]["title"] == "The worker was killed"
    assert "signal 9" in failed["error"]["detail"]
    assert failed["error"]["advice"]
    studio.wait_for_state(following, "done")
    assert studio.read("health")["engine"]["pid"] != pid


def test_a_killed_server_loses_nothing(start_studio: Start, wait_for: Callable[..., Any]) -> None:
    before = start_studio()
    done = before.submit(steps=1)
    before.wait_for_state(done, "done")
    running, waiting = before.submit(steps=100, seed=11), before.submit(steps=1)
    before.wait_for_step(running, 1)
    worker_pid = before.read("health")["engine"]["pid"]
    last_id = before.read("health")["last_event_id"]
    before.kill()
    wait_for("the worker without a server to end", lambda: not is_alive(worker_pid))

    after = start_studio(before.data_dir)
    interrupted = after.wait_for_state(running, "interrupted")
    assert interrupted["error"]["title"] == "Interrupted"
    assert after.wait_for_state(waiting, "done")["outputs"]
    assert after.read(f"jobs/{done}")["state"] == "done"
    replayed = [event["id"] for event in itertools.islice(read_events(after, last_id), 3)]
    assert replayed == [last_id + 1, last_id + 2, last_id + 3]

    after.client.post(f"/api/v1/jobs/{running}/retry").raise_for_status()
    after.wait_for_step(running, 1)
    assert after.read(f"jobs/{running}")["recipe"]["seed"] == 11
    after.client.delete(f"/api/v1/jobs/{running}")
    after.wait_for_state(running, "cancelled")
    after.stop()


def test_ctrl_c_ends_everything_quickly_and_quietly(start_studio: Start) -> None:
    studio = start_studio()
    job_id = studio.submit(steps=100)
    studio.wait_for_step(job_id, 1)
    worker_pid = studio.read("health")["engine"]["pid"]
    stream = read_events(studio, 0)
    next(stream)
    printed = studio.stop()
    assert studio.process.returncode == 0
    assert not is_alive(worker_pid)
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    assert [line[0] for line in lines] == ["Lumesh", "Page", "Data", "Device"]

    again = start_studio(studio.data_dir)
    assert again.read(f"jobs/{job_id}")["state"] == "interrupted"
    again.stop()
