"""What tests share: a studio in a temporary folder, and waiting with a deadline instead of sleeping."""

import functools
import gc
import io
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kept_programs import FOLDER, forget_old_programs, use_kept_programs

# Before anything imports JAX: what one process of a run compiles, studios and commands too, the others and the next run
# find.
use_kept_programs()

# Of torch, before anything imports it: there are more test processes than cores, and its threads spin while they wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.allocator import hand_on

hand_on()

import httpx
import pytest
from PIL import Image

from pipelines.families.fake import FakeFamily
from pipelines.models.catalog import Catalog, Model, Shape, load_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.devices.platform import collect_garbage_seldom
from pipelines.stages import OnProgress
from studio.database import Database, open_database
from studio.jobs import queue
from studio.jobs.job import Job
from studio.library import uploads
from studio.settings import Settings
from studio.worker.learning import pretend_to_learn
from studio.worker.local_desk import LocalDesk
from studio.worker.loop import Worker
from studio.worker.resident import Resident
from tests.forked_python import find_forked_python, share_forked_python
from tests.studio_processes import START_DEADLINE_S, Process, end_app, fork_app, start_app

pytest_plugins = ["tests.tiers", "tests.schedule"]
collect_garbage_seldom()  # as every process of the studio's and of the commands'

CLIPS = Model(
    id="clips",
    title="Clips",
    family="fake",
    shapes=(Shape(width=96, height=64, frames=9),),
    default_shape=Shape(width=96, height=64, frames=9),
    steps=3,
    guidance_scale=5.0,
    scheduler="unipc",
    schedulers=("unipc", "flow_match_euler"),
    fps=8,
    flow_shift=3.0,
)

OLDEST = 2  # generation of Python's garbage collector, which is looked through in a full collection
DEADLINE_S = 20.0
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        script = share_forked_python()
        if config.option.markexpr != "unit":  # whose tests import nothing of what a fork has imported
            config.option.tx = [f"popen//python={script}" for _ in config.option.tx]
    if "PYTEST_XDIST_WORKER" not in os.environ:
        forget_old_programs(FOLDER)


def pytest_collection_finish() -> None:
    """Makes a full collection look only at what is new since the last one.

    What was imported stays, and so do most traces that JAX keeps: looking through all of it whenever a model is
    unloaded took 70 s of a whole run. What lives through a collection and becomes a cycle later is not freed.
    """
    if "hypothesis" in sys.modules:  # it makes its random numbers now, and looks for who holds them
        with sys.modules["hypothesis.internal.entropy"].deterministic_PRNG():
            pass
    gc.freeze()
    gc.callbacks.append(_freeze_what_is_left)


def _freeze_what_is_left(phase: str, about: dict[str, int]) -> None:
    if phase == "stop" and about["generation"] == OLDEST:
        gc.freeze()


def encode_picture(
    colour: str = "red", *, size: tuple[int, int] = (60, 40), kind: str = "PNG", **options: Any
) -> bytes:
    """A file of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture(name="encode_picture", scope="session")
def give_encode_picture() -> Callable[..., bytes]:
    return encode_picture


FIRST_TENSOR = {
    "sdxl": "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q.lora_down.weight",
    "flux2": "transformer.single_transformer_blocks.0.attn.to_out.lora_A.weight",
    "wan": "diffusion_model.blocks.0.ffn.0.lora_A.weight",
    "fake": "nothing.weight",
}


def encode_lora(family: str = "sdxl", *, title: str = "", rows: int = 1) -> bytes:
    """The smallest file that is taken for a LoRA of this family (or, of "fake", for none); larger with more `rows`."""
    header = {
        "__metadata__": {"modelspec.title": title},
        FIRST_TENSOR[family]: {"dtype": "F32", "shape": [rows, 1], "data_offsets": [0, 4 * rows]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * rows)


@pytest.fixture(name="encode_lora", scope="session")
def give_encode_lora() -> Callable[..., bytes]:
    return encode_lora


@pytest.fixture
def add_lora(settings: Settings) -> Callable[..., Path]:
    """`add_lora("pixel", "sdxl")` puts a LoRA into the folder."""

    def add(ref: str = "pixel", family: str = "sdxl", *, title: str = "") -> Path:
        settings.loras_dir.mkdir(exist_ok=True)
        file = settings.loras_dir / f"{ref}.safetensors"
        file.write_bytes(encode_lora(family, title=title))
        return file

    return add


def wait_for(what: str, look: Callable[[], Any], *, timeout_s: float = DEADLINE_S) -> Any:
    """What `look` returns as soon as it is true; fails with `what` at the deadline.

    Asking a studio costs both sides a few hundredths of a second: what lets one wait is asked for less and less often.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = SHORTEST_PAUSE_S
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
    return found


@pytest.fixture(name="wait_for")
def give_wait_for() -> Callable[..., Any]:
    return wait_for


@pytest.fixture(autouse=True)
def _keep_environment() -> Iterator[None]:
    """Commands that run here may ask for more devices, which is not meant for processes that later tests start."""
    before = dict(os.environ)
    yield
    if dict(os.environ) != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(host="127.0.0.1", port=7860, data_dir=tmp_path, fake=True)


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database with all migrations, closed: a copy of it is made sooner."""
    file = tmp_path_factory.mktemp("database") / "new.db"
    open_database(file).close()
    return file


@pytest.fixture
def database(settings: Settings, new_database: Path) -> Iterator[Database]:
    if not settings.database_file.exists():
        shutil.copyfile(new_database, settings.database_file)
    database = open_database(settings.database_file)
    yield database
    database.close()


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The shipped one, and a small model of video for the fake family."""
    return Catalog((*load_catalog().models, CLIPS))


@pytest.fixture
def make_recipe(catalog: Catalog) -> Callable[..., Recipe]:
    """A resolved recipe of the default model, two steps short."""

    def make(prompt: str = "A red sailboat", **fields: Any) -> Recipe:
        fields = {"model": catalog.default.id, "steps": 2, "seed": 7, **fields}
        return resolve(Recipe(prompt=prompt, **fields), catalog)

    return make


@pytest.fixture
def submit(database: Database, make_recipe: Callable[..., Recipe]) -> Callable[..., Job]:
    """Queues a recipe of these fields."""

    def submit(
        prompt: str = "A red sailboat", *, owner: str = "local", programs: str | None = None, **fields: Any
    ) -> Job:
        return queue.submit(database, make_recipe(prompt, **fields), owner=owner, programs=programs)

    return submit


@pytest.fixture
def upload(settings: Settings, database: Database) -> Callable[..., str]:
    """Brings a picture of one colour along and returns its id."""

    def upload(colour: str = "red", *, size: tuple[int, int] = (60, 40), owner: str = "local") -> str:
        return uploads.add(database, settings.uploads_dir, encode_picture(colour, size=size), owner=owner).id

    return upload


@pytest.fixture
def worker(settings: Settings, database: Database, catalog: Catalog) -> Worker:
    """A worker in this process, on the fake family without its waiting times."""

    def load(model: Model, _on_progress: OnProgress) -> FakeFamily:
        return FakeFamily(model, compile_s=0.0, step_s=0.0)

    return Worker(
        settings=settings,
        desk=LocalDesk(database, settings),
        catalog=catalog,
        resident=Resident(load),
        default_model=catalog.default,
        learn=functools.partial(pretend_to_learn, step_s=0.0),
    )


@dataclass(kw_only=True)
class RunningStudio:
    """`python app.py --fake` in a process of its own, and the file that it prints into."""

    process: Process
    printed: Path
    data_dir: Path
    client: httpx.Client

    def read(self, path: str) -> Any:
        return self.client.get(f"/api/v1/{path}").raise_for_status().json()

    def submit(self, prompt: str = "A red sailboat", **fields: Any) -> str:
        """Queues a recipe of the default model and returns the job's id."""
        recipe = {"model": self.read("models")["models"][0]["id"], "prompt": prompt, **fields}
        return self.client.post("/api/v1/jobs", json=recipe).raise_for_status().json()["id"]

    def wait_for_state(self, job_id: str, *states: str) -> dict[str, Any]:
        """The job, once it is in one of these states."""

        def look() -> dict[str, Any] | None:
            job = self.read(f"jobs/{job_id}")
            return job if job["state"] in states else None

        return wait_for(f"job {job_id} to be {' or '.join(states)}", look)

    def wait_for_step(self, job_id: str, step: int) -> None:
        """Returns once the job is denoising and at least at this step."""
        wait_for(f"job {job_id} to reach step {step}", lambda: self.read(f"jobs/{job_id}")["step"] >= step)

    def kill(self) -> None:
        """Ends the app as the kernel would: nothing is said to anybody."""
        self.process.kill()
        self.close()

    def stop(self, how: signal.Signals = signal.SIGINT) -> str:
        """Ends the app as Ctrl+C does, or as a system that stops; returns everything it printed."""
        end_app(self.process, self.printed, how)
        self.close()
        return self.printed.read_text("utf-8")

    def close(self) -> None:
        """Lets go of the process, which has ended or ends now."""
        self.client.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def fork_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that product code starts meanwhile are forked (forked_python.py)."""
    monkeypatch.setattr(sys, "executable", find_forked_python())


class Studios:
    """Starts studios, each in a new data directory unless told, and ends all of them."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory, start: Callable[..., Process]) -> None:
        self._tmp_path_factory = tmp_path_factory
        self._start = start
        self._started: list[RunningStudio] = []

    def start(self, data_dir: Path | None = None, *flags: str, **options: Any) -> RunningStudio:
        data_dir = data_dir or self._tmp_path_factory.mktemp("studio")
        printed = self._tmp_path_factory.mktemp("printed") / "app.log"
        port = find_free_port()
        process = self._start(["--fake", "--data-dir", str(data_dir), "--port", str(port), *flags], printed, **options)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S, trust_env=False)
        studio = RunningStudio(process=process, printed=printed, data_dir=data_dir, client=client)
        self._started.append(studio)
        wait_for(
            "the studio to answer", lambda: process.poll() is not None or _answers(client), timeout_s=START_DEADLINE_S
        )
        if process.poll() is not None:
            pytest.fail(f"the studio ended: {printed.read_text('utf-8')}")
        return studio

    def close(self) -> None:
        for studio in self._started:
            studio.close()


@pytest.fixture(scope="module")
def start_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningStudio]]:
    """`start_studio(data_dir, *flags)`: a studio that ends with the file of tests, or before."""
    with closing(Studios(tmp_path_factory, fork_app)) as studios:
        yield studios.start


@pytest.fixture(scope="module")
def start_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningStudio]]:
    """The same, from the start of its interpreter: for tests of just that. Takes an `environment`, too."""
    with closing(Studios(tmp_path_factory, start_app)) as studios:
        yield studios.start


@pytest.fixture(scope="session")
def shared_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A studio with no flags for all who leave it as they found it: running, nothing waiting, the line not held."""
    with closing(Studios(tmp_path_factory, fork_app)) as studios:
        yield studios.start()


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/api/v1/health").status_code in (200, 401)  # the latter of a studio with a login
    except httpx.TransportError:
        return False
