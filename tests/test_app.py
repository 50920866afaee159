"""The studio as people run it: real processes, real kills, nothing lost."""

import http.server
import io
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image, ImageStat

import app
from studio.database import open_database
from studio.library import uploads
from studio.settings import Settings
from tests.places import ROOT
from tests.studio_processes import run_app

Studio = Any  # conftest.RunningStudio
Start = Callable[..., Studio]


@pytest.fixture(scope="module")
def studio(
    start_studio: Start, encode_picture: Callable[..., bytes], tmp_path_factory: pytest.TempPathFactory
) -> Studio:
    """One studio for the tests that leave it running.

    When it starts, there is a picture that nobody used in time.
    """
    folder = tmp_path_factory.mktemp("studio")
    with closing(open_database(folder / "jobs.db")) as database:
        uploads.add(database, folder / "uploads", encode_picture(), owner="local")
        with database.write() as tx:
            tx.execute("UPDATE uploads SET created_at = 0")
    return start_studio(folder)


def read_states(studio: Studio) -> dict[str, str]:
    """Of all jobs, where no studio runs."""
    with closing(open_database(studio.data_dir / "jobs.db")) as database:
        return {row["id"]: row["state"] for row in database.read("SELECT id, state FROM jobs")}


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
    script = re.search(r'src="/?(\S*/js/page\.js)"', page.replace("\\", ""))
    assert script, "the page loads its script"
    assert page.index("lumesh.theme") < page.index("<script", page.index("<script") + 1), "the theme is chosen first"
    assert studio.client.get(f"/{script[1]}").is_success
    later = studio.client.get(f"/{script[1].removesuffix('js/page.js')}panels.html").text
    assert [("lu-train-form" in one, "lu-prompt-box" in one) for one in (page, later)] == [(False, True), (True, False)]
    assert not studio.client.get(f"/{script[1].removesuffix('js/page.js')}../page.py").is_success


def test_what_is_painted_first_waits_for_no_configuration_and_no_style_sheet(studio: Studio) -> None:
    page = studio.client.get("/").text
    painted = page.index('id="lu-first"')
    for late in ("window.gradio_config = ", "window.gradio_api_info = ", '<link rel="stylesheet"'):
        assert painted < page.index(late) < page.index("<gradio-app"), late


def test_a_studio_that_starts_deletes_what_nobody_used_in_time(studio: Studio, wait_for: Callable[..., Any]) -> None:
    uploaded = studio.data_dir / "uploads"
    wait_for("the upload to go", lambda: not list(uploaded.iterdir()))


def test_text_comes_compressed_and_streams_at_once(studio: Studio) -> None:
    page = studio.client.get("/")
    paths = {"/": page.text}
    for found in re.findall(r'(?:src|href)="/?(ui/\w+/(?:js|css|icons|fonts)/[\w.-]+)"', page.text.replace("\\", "")):
        answer = studio.client.get(f"/{found}")
        is_font = found.endswith((".woff2", ".png"))
        assert ("content-encoding" in answer.headers) != (is_font or len(answer.content) < 1000), found
        paths[found] = answer.text
    assert len(paths) >= 5  # the page, its script, its style sheet, its font, its icon
    assert page.headers["content-encoding"] == "gzip"

    job_id = studio.submit(steps=100)
    with studio.client.stream("GET", "/api/v1/events", params={"after": 0}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers
        kinds = (line for line in answer.iter_lines() if line.startswith("event: "))
        assert "event: job.step" in kinds, "while the job runs"
    studio.client.delete(f"/api/v1/jobs/{job_id}")
    studio.wait_for_state(job_id, "cancelled")

    sent = studio.client.post(
        "/gradio_api/call/generate", json={"data": ["A boat", "demo-sdxl", {"steps": 1}]}
    ).raise_for_status()
    url = f"/gradio_api/call/generate/{sent.json()['event_id']}"
    with studio.client.stream("GET", url) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers
        assert "event: complete" in answer.iter_lines()


def test_the_app_never_imports_jax_or_torch() -> None:
    script = """
import sys, tempfile, pathlib, app
print(sorted({name.split(".")[0] for name in sys.modules} & {"fastapi", "gradio", "pandas", "uvicorn"}))
from pipelines.models.catalog import load_catalog
from studio import serving
from studio.database import open_database
from studio.settings import Settings
settings = Settings(host="127.0.0.1", port=1, data_dir=pathlib.Path(tempfile.mkdtemp()))
serving.create_app(settings, open_database(settings.database_file), load_catalog())
print(sorted({name.split(".")[0] for name in sys.modules} & {"jax", "jaxlib", "torch", "torchax", "diffusers"}))
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    of_commands, of_all = ran.stdout.splitlines()
    assert of_commands == "[]"  # those that only say something, and the worker's start, wait for no server
    assert of_all == "[]"


def test_a_studio_that_nobody_uses_hardly_wakes(studio: Studio) -> None:
    status = Path(f"/proc/{studio.process.pid}/status")

    def count_wakes() -> int:
        return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.MULTILINE)[1])

    before = count_wakes()
    time.sleep(1.0)
    assert count_wakes() - before < 200, "Gradio's own queue alone would look for work a thousand times"


def test_the_database_is_not_served(studio: Studio) -> None:
    for path in ("/file=jobs.db", f"/gradio_api/file={studio.data_dir}/jobs.db", "/static/../../../jobs.db"):
        assert not studio.client.get(path).is_success


def test_a_second_studio_on_the_same_data_is_refused(studio: Studio, tmp_path: Path) -> None:
    code, said = run_app(["--fake", "--data-dir", str(studio.data_dir), "--port", "1"], tmp_path / "log")
    assert code == 2
    assert f"Another Lumesh (process {studio.process.pid})" in said
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, said = run_app(["--fake", "--data-dir", str(tmp_path), "--port", port], tmp_path / "log")
    assert code == 2
    assert f"127.0.0.1:{port} cannot be used" in said
    assert not (tmp_path / "logs").exists(), "no worker was started"


def test_answers_and_events_do_not_wait_for_the_clients_acknowledgement(tmp_path: Path) -> None:
    """Nagle's algorithm is off, by asyncio, for sockets that say they are TCP; accepted ones say what this one says."""
    with app._open_port(Settings(host="127.0.0.1", port=0, data_dir=tmp_path)) as port:
        assert port.proto == socket.IPPROTO_TCP


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
    """Three jobs, which are the cells of a grid: the next server makes its sheet."""
    before = start_studio()
    recipe = {"model": "demo-sdxl", "prompt": "A red boat", "shape": "128x128", "seed": 11}
    cells = {"x": {"field": "steps", "values": "1, 100, 2"}, "recipe": recipe}
    grid = before.client.post("/api/v1/grids", json=cells).raise_for_status().json()
    done, running, waiting = grid["ids"]
    before.wait_for_state(done, "done")
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

    made = wait_for("the sheet", lambda: (found := after.read(f"grids/{grid['id']}"))["output_id"] and found)
    assert made["states"] == {"done": 2, "interrupted": 1}
    sheet = after.client.get(f"/api/v1/outputs/{made['output_id']}/file")
    with Image.open(io.BytesIO(sheet.content)) as picture:
        assert "lumesh-grid" in picture.info

    after.client.post(f"/api/v1/jobs/{running}/retry").raise_for_status()
    after.wait_for_step(running, 1)
    assert after.read(f"jobs/{running}")["recipe"]["seed"] == 11
    after.client.delete(f"/api/v1/jobs/{running}")
    after.wait_for_state(running, "cancelled")
    after.stop()


def test_a_thousand_waiting_jobs_survive_a_killed_server_in_their_order(
    start_studio: Start, wait_for: Callable[..., Any]
) -> None:
    before = start_studio(None, "--queue-quota", "2000")
    running = before.submit(steps=100)
    before.wait_for_step(running, 1)
    sweep = {"recipe": {"model": "demo-sdxl", "prompt": "A red boat", "shape": "128x128", "steps": 1}, "seeds": 100}
    sent = [before.client.post("/api/v1/jobs/many", json=sweep).raise_for_status() for _ in range(10)]
    ids = [job_id for answer in sent for job_id in answer.json()["ids"]]
    worker_pid = before.read("health")["engine"]["pid"]
    before.kill()
    wait_for("the worker without a server to end", lambda: not is_alive(worker_pid))

    after = start_studio(before.data_dir, "--queue-quota", "2000")
    after.wait_for_state(ids[2], "done")
    after.client.post("/api/v1/queue/pause").raise_for_status()
    wait_for("the last job to end", lambda: after.read("health")["jobs"]["running"] == 0)
    waiting = [job["id"] for job in after.read("jobs?state=queued&limit=500")["jobs"]]
    after.kill()
    with closing(open_database(before.data_dir / "jobs.db")) as database:
        rows = database.read("SELECT id, state FROM jobs ORDER BY started_at IS NULL, started_at, position")
        outputs = [row["job_id"] for row in database.read("SELECT job_id FROM outputs ORDER BY number")]
        queued = database.read("SELECT job_id FROM events WHERE kind = 'job.queued' ORDER BY id")
    done = len(outputs)
    assert done >= 3
    states = ["interrupted"] + ["done"] * done + ["queued"] * (1000 - done)
    assert [tuple(row) for row in rows] == list(zip([running, *ids], states, strict=True))
    assert outputs == ids[:done]
    assert waiting == ids[done : done + 500]
    assert [row["job_id"] for row in queued] == [running, *ids], "none was queued twice"


def test_ctrl_c_ends_everything_quickly_and_quietly(start_command: Start) -> None:
    studio = start_command()
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
    assert read_states(studio) == {job_id: "interrupted"}


def test_a_hub_that_never_answers_does_not_keep_a_studio_from_ending(start_command: Start) -> None:
    release, asked = threading.Event(), threading.Event()

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            asked.set()
            release.wait()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        environment = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "NO_PROXY": "127.0.0.1"}
        studio = start_command(environment=environment)
        with pytest.raises(httpx.ReadTimeout):
            studio.client.get("/api/v1/hub/someone/presets", timeout=3)
        assert asked.is_set()
        assert "Traceback" not in studio.stop(signal.SIGTERM)
        release.set()
        hub.shutdown()
    assert studio.process.returncode == 0


def test_a_text_encoder_of_an_unknown_model_is_named(tmp_path: Path) -> None:
    flags = ["--data-dir", str(tmp_path), "--text_encoder_url", "flux=http://127.0.0.1:8888"]
    code, said = run_app(flags, tmp_path / "log")
    assert code == 2
    assert "There is no model 'flux'" in said
    assert not (tmp_path / "logs").exists(), "no worker was started"


def test_a_studio_that_is_told_to_stop_lets_a_short_job_finish(
    start_studio: Start, wait_for: Callable[..., Any]
) -> None:
    studio = start_studio()
    running, waiting = studio.submit(steps=8), studio.submit(steps=1)
    studio.wait_for_step(running, 1)
    worker_pid = studio.read("health")["engine"]["pid"]
    studio.stop(signal.SIGTERM)
    assert studio.process.returncode == 0
    wait_for("its worker, a forked one, to end", lambda: not is_alive(worker_pid))
    assert read_states(studio) == {running: "done", waiting: "queued"}
    assert len([*(studio.data_dir / "outputs").rglob("*.png")]) == 1


def test_a_job_that_is_too_long_to_finish_goes_back_in_front(start_studio: Start) -> None:
    studio = start_studio(None, "--finish-timeout", "0.2")
    running, waiting = studio.submit(steps=100), studio.submit(steps=100)
    studio.wait_for_step(running, 1)
    studio.stop(signal.SIGTERM)
    with closing(open_database(studio.data_dir / "jobs.db")) as database:
        rows = database.read("SELECT id, state, step, error FROM jobs ORDER BY position")
        assert [tuple(row) for row in rows] == [(running, "queued", 0, None), (waiting, "queued", 0, None)]


def test_a_backup_of_a_running_studio_is_restored_into_another(start_studio: Start, tmp_path: Path) -> None:
    studio = start_studio()
    done = studio.submit(steps=1)
    url = studio.wait_for_state(done, "done")["outputs"][0]["url"]
    picture = studio.client.get(url).content
    running = studio.submit(steps=100)
    studio.wait_for_step(running, 1)

    file = str(tmp_path / "backup.tar")
    command = [sys.executable, "app.py", "backup", file, "--data-dir", str(studio.data_dir)]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (written.returncode, written.stderr) == (0, "")
    code, said = run_app(["restore", file, "--data-dir", str(studio.data_dir)], tmp_path / "refused.log")
    assert code == 2
    assert f"(process {studio.process.pid}) already uses" in said
    assert "Traceback" not in said
    studio.stop()
    code, said = run_app(["restore", file, "--data-dir", str(tmp_path / "other")], tmp_path / "restored.log")
    assert code == 0, said
    other = start_studio(tmp_path / "other")
    assert other.client.get(url).content == picture
    assert other.read(f"jobs/{running}")["state"] == "interrupted"
    other.stop()
