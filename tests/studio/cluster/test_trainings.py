"""A training on another machine: its pictures go there, all that it tells comes back, and it goes on wherever it is."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from pipelines.loras.files import find_lora_file
from pipelines.models.catalog import Catalog
from studio.cluster import dispatcher, giving, storing
from studio.cluster.protocol import Attachment
from studio.database import Database
from studio.jobs import trainings, workers
from studio.settings import Settings
from studio.worker.learning import Learnt, Lesson, pretend_to_learn
from studio.worker.loop import Worker
from studio.worker.resident import Resident
from tests.conftest import encode_lora
from tests.studio.cluster.machines import Machine, Machines, until
from tests.studio.cluster.test_dispatcher import serve

STEPS = 120


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((dispatcher, "PLACE_S"), (dispatcher, "RETRY_S"), (giving, "GIVE_S"), (storing, "RETRY_S")):
        monkeypatch.setattr(module, name, 0.02)


@pytest.fixture
def job_id(client: TestClient, upload: Callable[..., str], add_lora: Callable[..., Path]) -> str:
    """A training that waits, of a LoRA that learns on."""
    add_lora("pixel")
    asked = {"model": "demo-sdxl", "trigger": "zorb", "name": "zorb", "steps": STEPS, "start_from": "pixel"}
    answer = client.post("/api/v1/trainings", json={**asked, "pictures": [{"id": upload("red")}]})
    return answer.raise_for_status().json()["id"]


@contextmanager
def work_on(
    machine: Machine,
    catalog: Catalog,
    *,
    step_s: float = 0.01,
    hear: Callable[[dict[str, Any]], object] = lambda _event: None,
    see: Callable[[Lesson], object] = lambda _lesson: None,
) -> Iterator[None]:
    """Lets a machine's worker run what comes, in a thread; `hear` is told what trainings tell, `see` which begin."""
    ending = threading.Event()

    def learn(lesson: Lesson) -> Learnt:
        see(lesson)
        told = replace(lesson, on_event=lambda event: (hear(event), lesson.on_event(event)))
        return pretend_to_learn(told, step_s=step_s)

    worker = Worker(
        settings=machine.settings,
        desk=machine.desk,
        catalog=catalog,
        resident=Resident(lambda *_: pytest.fail("a training loads no model to make pictures")),
        default_model=catalog.default,
        is_prepared=True,
        learn=learn,
    )

    def run() -> None:
        while not ending.is_set():
            worker.run_next()
            ending.wait(0.005)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        for claim in machine.desk.list_held():
            machine.desk.cancel(claim)
        thread.join()


def read_state(database: Database, job_id: str) -> str:
    row = database.read_one("SELECT state FROM jobs WHERE id = ?", (job_id,))
    assert row is not None
    return row["state"]


def read_saved(database: Database, job_id: str) -> int:
    training = trainings.read_training(database, job_id)
    assert training is not None
    return training.saved_step


def test_a_training_pauses_on_one_machine_and_ends_on_another(
    settings: Settings, client: TestClient, catalog: Catalog, job_id: str, tmp_path: Path
) -> None:
    database = cast("Any", client.app).state.studio.database
    two, three = Machine(tmp_path / "two"), Machine(tmp_path / "three")
    started_from: list[bytes] = []

    def see(lesson: Lesson) -> None:
        file = find_lora_file(lesson.settings.start_from or "", lesson.model.loras_dir)
        assert file is not None
        started_from.append(file.read_bytes())

    async def begin() -> None:
        async with serve(settings, database, Machines(two=two)):
            with work_on(two, catalog, see=see):
                await until("a saved step", lambda: read_saved(database, job_id))
                client.post(f"/api/v1/trainings/{job_id}/pause").raise_for_status()
                await until("the pause", lambda: read_state(database, job_id) == "paused")

    async def go_on() -> None:
        async with serve(settings, database, Machines(three=three)):
            with work_on(three, catalog, step_s=0.0, see=see):
                await until("its end", lambda: read_state(database, job_id) == "done")

    asyncio.run(begin())
    client.delete("/api/v1/loras/pixel").raise_for_status()
    paused_at = read_saved(database, job_id)
    assert 0 < paused_at < STEPS
    client.post(f"/api/v1/trainings/{job_id}/continue").raise_for_status()
    asyncio.run(go_on())
    training = client.get(f"/api/v1/trainings/{job_id}").json()
    assert training["loras"] == ["zorb"]
    steps = [point["step"] for point in training["points"]]
    assert steps == sorted(set(steps)) and steps[-1] == STEPS
    assert all(client.get(sample["url"]).is_success for sample in training["samples"])
    assert client.get(f"/api/v1/outputs/{job_id}-0").json()["recipe"]["loras"] == [{"ref": "zorb", "scale": 1.0}]
    assert (settings.loras_dir / "zorb.safetensors").is_file()
    assert started_from == [encode_lora("sdxl")] * 2, "what it learns on from came along, though it was deleted"
    assert not [*two.settings.loras_dir.glob("*"), *three.settings.loras_dir.glob("*")]
    assert not [*two.settings.training_dir.glob("*"), *three.settings.training_dir.glob("*")]


def test_a_training_whose_lora_went_before_it_was_sent_fails_with_a_card_that_says_so(
    settings: Settings, client: TestClient, job_id: str, tmp_path: Path
) -> None:
    database = cast("Any", client.app).state.studio.database
    client.delete("/api/v1/loras/pixel").raise_for_status()

    async def give() -> None:
        async with serve(settings, database, Machines(two=Machine(tmp_path / "two"))):
            await until("its end", lambda: read_state(database, job_id) == "failed")

    asyncio.run(give())
    error = client.get(f"/api/v1/jobs/{job_id}").json()["error"]
    assert error["title"] == "The LoRA to go on from is gone"
    assert error["detail"] == "This training begins from the LoRA 'pixel', which is not here any more."


def test_what_was_packed_of_a_training_is_deleted_also_where_it_was_not_sent(
    settings: Settings, client: TestClient, job_id: str, tmp_path: Path
) -> None:
    database, packs = cast("Any", client.app).state.studio.database, settings.data_dir / "cache" / "sending"
    packs.mkdir(parents=True)
    (packs / "of-a-dispatcher-that-was-killed.zip").write_bytes(b"")
    two, tried = Machine(tmp_path / "two"), []

    def store(one: Attachment, _content: bytes) -> None:
        tried.append([file.name for file in packs.iterdir()])
        two.is_gone = one.name.endswith(".zip")

    two.store = store

    async def give() -> None:
        async with serve(settings, database, Machines(two=two)):
            await until("the loss", lambda: two.is_gone and read_state(database, job_id) == "queued")

    asyncio.run(give())
    assert tried[0] == [f"{job_id}-1.zip"]
    assert not [*packs.iterdir()]


def test_a_pause_before_the_first_step_keeps_the_pictures_that_were_made_first(
    settings: Settings, client: TestClient, catalog: Catalog, upload: Callable[..., str], tmp_path: Path
) -> None:
    database = cast("Any", client.app).state.studio.database
    asked = {"model": "demo-sdxl", "name": "zorb", "steps": 2, "prior_prompts": [f"A dog {n}" for n in range(40)]}
    pictures = [{"id": upload("red"), "caption": "A red zorb"}]
    job_id = client.post("/api/v1/trainings", json={**asked, "pictures": pictures}).raise_for_status().json()["id"]
    two, three = Machine(tmp_path / "two"), Machine(tmp_path / "three")

    def count_made() -> int:
        return len([*(two.settings.training_dir / job_id / "prior").glob("*")])

    async def begin() -> None:
        async with serve(settings, database, Machines(two=two)):
            with work_on(two, catalog, step_s=0.05):
                await until("pictures", lambda: count_made() > 2)
                client.post(f"/api/v1/trainings/{job_id}/pause").raise_for_status()
                await until("the pause", lambda: read_state(database, job_id) == "paused")

    asyncio.run(begin())
    kept = len([*(settings.training_dir / job_id / "prior").iterdir()])
    assert 2 < kept < 40
    client.post(f"/api/v1/trainings/{job_id}/continue").raise_for_status()
    totals: list[int] = []

    async def go_on() -> None:
        async with serve(settings, database, Machines(three=three)):
            with work_on(three, catalog, step_s=0.0, hear=lambda event: totals.append(event.get("total", 0))):
                await until("its end", lambda: read_state(database, job_id) == "done")

    asyncio.run(go_on())
    assert totals[0] == 40 - kept


def test_a_lost_machine_costs_the_steps_since_the_last_state_that_came(
    settings: Settings, database: Database, catalog: Catalog, job_id: str, tmp_path: Path
) -> None:
    cluster = Machines(two=Machine(tmp_path / "two"))
    resumed: list[int] = []

    async def work() -> None:
        async with serve(settings, database, cluster):
            with work_on(cluster.machines["two"], catalog):
                await until("a saved step", lambda: read_saved(database, job_id))
                cluster.machines["two"].is_gone = True
                await until("the loss", lambda: read_state(database, job_id) == "queued")
            saved = read_saved(database, job_id)
            cluster.machines["two"] = three = Machine(tmp_path / "three", epoch="second")
            go_back = three.desk.trainings.go_back
            three.desk.trainings.go_back = lambda job, step: (resumed.append(step), go_back(job, step))
            with work_on(three, catalog, step_s=0.0):
                await until("its end", lambda: read_state(database, job_id) == "done")
            assert resumed == [saved]

    asyncio.run(work())
    assert workers.read_worker(database, "two").epoch == "second"


def test_a_cancelled_training_ends_and_can_be_deleted(
    settings: Settings, client: TestClient, catalog: Catalog, job_id: str, tmp_path: Path
) -> None:
    database = cast("Any", client.app).state.studio.database
    two = Machine(tmp_path / "two")

    async def work() -> None:
        async with serve(settings, database, Machines(two=two)):
            with work_on(two, catalog):
                await until("a saved step", lambda: read_saved(database, job_id))
                client.delete(f"/api/v1/jobs/{job_id}").raise_for_status()
                await until("its end", lambda: read_state(database, job_id) == "cancelled")
                assert [*settings.training_dir.iterdir()]
                client.delete(f"/api/v1/trainings/{job_id}").raise_for_status()

    asyncio.run(work())
    assert not [
        *settings.loras_dir.glob("zorb*"),
        *settings.training_dir.iterdir(),
        *two.settings.training_dir.glob("*"),
    ]


def test_a_slice_takes_trainings(client: TestClient, database: Database, upload: Callable[..., str]) -> None:
    with database.write() as tx:
        tx.execute("UPDATE workers SET hosts = 4, state = 'ready'")
    asked: dict[str, Any] = {"model": "demo-sdxl", "name": "zorb", "pictures": [{"id": upload("red"), "caption": "x"}]}
    job_id = client.post("/api/v1/trainings", json=asked).raise_for_status().json()["id"]
    assert "waits for a worker" not in client.get(f"/api/v1/jobs/{job_id}").json()["reason"]
