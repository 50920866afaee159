"""The studio with the text encoder elsewhere: the picture of one machine, or a card, and the worker goes on."""

import dataclasses
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

from pipelines import registry
from pipelines.families.remote_encoder import RemoteEncoder
from pipelines.generate import generate
from pipelines.models.catalog import Catalog, Model
from pipelines.recipes.recipe import Recipe
from pipelines.stages import Family, OnProgress
from studio.database import Database
from studio.jobs import queue
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState, read_worker
from studio.library.records import read_output
from studio.settings import Settings
from studio.worker.local_desk import LocalDesk
from studio.worker.loop import Worker
from studio.worker.opening import open_devices
from studio.worker.resident import Loader, Resident
from tests.forked_python import find_forked_python
from tests.places import ROOT

SERVER_DEADLINE_S = 300.0  # it imports jax and torch, and compiles


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def open_worker(
    settings: Settings, database: Database, flux2_catalog: Catalog, models_dir: Path, cache_dir: Path
) -> Iterator[Callable[..., Worker]]:
    """A worker of the tiny klein; the models and JAX's one cache are those of the other tests."""
    (settings.data_dir / "cache").mkdir()
    settings.cache_dir.symlink_to(cache_dir)
    settings.models_dir.symlink_to(models_dir)
    opened: list[Worker] = []

    def open_worker(load: Loader | None = None, **changes: Any) -> Worker:
        own = dataclasses.replace(settings, fake=False, mesh="dp=1", **changes)
        worker = Worker(
            settings=own,
            desk=LocalDesk(database, settings),
            catalog=flux2_catalog,
            resident=Resident(load or open_devices(own).load),
            default_model=flux2_catalog.get("klein"),
        )
        opened.append(worker)
        return worker

    yield open_worker
    for worker in opened:
        if worker.resident.family is not None:
            worker.resident.family.unload()


@pytest.fixture
def encoder_url(models_dir: Path, tmp_path: Path, wait_for: Callable[..., Any]) -> Iterator[str]:
    """`python -m pipelines encoder-server` of the tiny klein, in a process of its own."""
    port = find_free_port()
    flags = ["--model", "klein", "--port", str(port), "--mesh", "dp=1", "--data-dir", str(models_dir.parent)]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [find_forked_python(), "-m", "pipelines", "encoder-server", *flags],
            cwd=ROOT,
            env=os.environ | {"LUMESH_TEXT_ENCODER_TOKEN": "secret"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def answers() -> bool:
        if process.poll() is not None:
            pytest.fail(f"the encoder server ended: {(tmp_path / 'server.log').read_text()}")
        try:
            return client.get("/health").is_success
        except httpx.TransportError:
            return False

    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_for("the encoder server to answer", answers, timeout_s=SERVER_DEADLINE_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_job_of_the_studio_asks_the_encoder_server(
    open_worker: Callable[..., Worker],
    encoder_url: str,
    database: Database,
    draw_recipe: Callable[..., Recipe],
    load_flux2: Callable[..., Any],
) -> None:
    worker = open_worker(text_encoder_urls={"flux2": encoder_url}, text_encoder_token="secret")
    job = queue.submit(database, draw_recipe(), owner="local")
    worker.run_next()
    done = queue.read_job(database, job.id)
    assert (done.state, done.error) == (JobState.DONE, None)
    assert "text_encoder" not in worker.resident.family.parts.weights
    file = worker.settings.outputs_dir / read_output(database, done.outputs[0]["id"]).file
    with Image.open(file) as picture:
        np.testing.assert_array_equal(np.asarray(picture), generate(load_flux2(), draw_recipe()).pixels[0])


@dataclasses.dataclass
class Stub:
    """A text encoder that answers as it is told."""

    url: str
    status: int = 200
    content: bytes = b""
    answers: threading.Event = dataclasses.field(default_factory=threading.Event)


@pytest.fixture
def stub() -> Iterator[Stub]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            told.answers.wait()
            self.send_response(told.status)
            self.send_header("content-length", str(len(told.content)))
            self.end_headers()
            self.wfile.write(told.content)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told = Stub(url=f"http://127.0.0.1:{server.server_address[1]}")
        told.answers.set()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield told
        told.answers.set()
        server.shutdown()
        thread.join()


def test_whatever_the_server_does_its_job_ends_as_a_card_and_the_worker_goes_on(
    open_worker: Callable[..., Worker],
    stub: Stub,
    database: Database,
    draw_recipe: Callable[..., Recipe],
    load_flux2: Callable[..., Any],
) -> None:
    family = load_flux2("distilled")
    shapes = family.embedding_shapes()
    right = save(dict(generate_embeddings(family, draw_recipe(model="distilled"))))
    wrong = save({name: np.zeros((1, 2, 3), np.float32) for name in shapes})
    free = f"http://127.0.0.1:{find_free_port()}"
    url = free

    def load(model: Model, on_progress: OnProgress) -> Family:
        remote = RemoteEncoder(url, wait=lambda _seconds: None)
        cache_dir = worker.settings.cache_dir
        return registry.load(model, mesh="dp=1", cache_dir=cache_dir, on_progress=on_progress, remote_encoder=remote)

    worker = open_worker(load)

    def run() -> Any:
        job = queue.submit(database, draw_recipe(model="distilled"), owner="local")
        worker.run_next()
        assert read_worker(database).state is WorkerState.READY
        return queue.read_job(database, job.id)

    failed = run()
    assert failed.state is JobState.FAILED
    assert failed.error["title"] == "The remote text encoder cannot be used"
    assert failed.error["detail"].startswith(f"{free}/encode cannot be reached")
    assert failed.error["advice"] == "Check that the server runs and that its address and port are right."
    worker.resident.family.remote_encoder = RemoteEncoder(stub.url, wait=lambda _seconds: None)
    for status, content, detail, advice in (
        (401, b'{"detail": "no token"}', "answered 401: no token", "set LUMESH_TEXT_ENCODER_TOKEN"),
        (503, b"", "answered 503", "busy or still loading its model"),
        (200, wrong, "of shape (1, 2, 3); (1, 512, 96) is needed", "serves the same model"),
    ):
        stub.status, stub.content = status, content
        failed = run()
        assert failed.state is JobState.FAILED
        assert detail in failed.error["detail"]
        assert advice in failed.error["advice"]
    stub.status, stub.content = 200, right
    assert run().state is JobState.DONE


def test_a_job_is_cancelled_while_the_server_hangs(
    open_worker: Callable[..., Worker],
    stub: Stub,
    database: Database,
    draw_recipe: Callable[..., Recipe],
    wait_for: Callable[..., Any],
) -> None:
    stub.answers.clear()
    worker = open_worker(text_encoder_urls={"flux2": stub.url})
    job = queue.submit(database, draw_recipe(model="distilled"), owner="local")
    running = threading.Thread(target=worker.run_next)
    running.start()
    wait_for("the encoding", lambda: queue.read_job(database, job.id).phase == "encoding", timeout_s=SERVER_DEADLINE_S)
    queue.cancel(database, job.id)
    running.join()
    assert not stub.answers.is_set()
    assert queue.read_job(database, job.id).state is JobState.CANCELLED


def generate_embeddings(family: Any, recipe: Recipe) -> Any:
    generate(family, recipe)  # warm
    return family.encode(recipe)
