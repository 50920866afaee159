"""The machine over REST: what is measured, emptied and counted, and plans made by the real planner's process."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.models.catalog import Catalog, load_catalog
from pipelines.runtime.kernels import switches
from pipelines.runtime.kernels.switches import Checked, Found
from studio.api.application import create_api
from studio.database import Database
from studio.jobs import workers
from studio.jobs.job import Job
from studio.jobs.workers import LOCAL
from studio.models import read_catalog
from studio.services.plans import NICE, Planner, Question, suggest_topology
from studio.settings import Settings
from studio.worker import gauges
from studio.worker.loop import Worker

SYSTEM = "/api/v1/system"
PLAN_TIMEOUT_S = 900.0  # a process that imports jax, on a machine that may be busy


def test_the_workers_gauges_are_told_with_models_and_versions(
    client: TestClient, database: Database, worker: Worker
) -> None:
    assert worker.run_next()  # loads and warms the default model
    with database.write() as tx:
        workers.equip(tx, LOCAL, chips=1, chip_price=None)
    gauges.tell(worker.desk, worker.resident, lambda: [gauges.FAKE_DEVICE])
    found = client.get(SYSTEM).json()
    assert found["engine"]["model"] == worker.default_model.id
    assert found["machine"]["devices"] == [gauges.FAKE_DEVICE]
    assert 0 < found["machine"]["host"]["worker_bytes"] < found["machine"]["host"]["total_bytes"]
    states = {shape["shape"]: shape["state"] for shape in found["models"][0]["shapes"]}
    assert states[str(worker.default_model.default_shape)] == "warm"
    assert found["versions"].keys() >= {"lumesh", "jax", "torch", "torchax", "diffusers", "gradio"}


def test_disk_and_log_are_told(client: TestClient, settings: Settings) -> None:
    settings.worker_log.parent.mkdir()
    settings.worker_log.write_text("ready\nGET https://me:password1@example.com\n")
    assert client.get(f"{SYSTEM}/log", params={"lines": 1}).json() == {"lines": ["GET https://[removed]@example.com"]}
    disk = client.get(f"{SYSTEM}/disk").json()
    assert {part["name"]: part["files"] for part in disk["parts"]}["logs"] == 1
    assert 0 < disk["free_bytes"] <= disk["total_bytes"]
    assert client.get(f"{SYSTEM}/log", params={"lines": 0}).status_code == 422


def test_the_cache_is_cleared_but_never_under_a_running_compilation_unasked(
    client: TestClient, settings: Settings, database: Database
) -> None:
    settings.cache_dir.mkdir(parents=True)
    (settings.cache_dir / "program").write_bytes(b"12345")
    with database.write() as tx:
        workers.measure(tx, LOCAL, mesh="", devices=[], host={}, compiling=1)
    assert client.get(f"{SYSTEM}/cache").json()["programs"] == {"bytes": 5, "files": 1, "is_compiling": True}
    refused = client.post(f"{SYSTEM}/cache/clear", json={"what": "programs"})
    assert (refused.status_code, refused.json()["error"]["title"]) == (409, "A program is being compiled")
    assert (settings.cache_dir / "program").exists()
    freed = client.post(f"{SYSTEM}/cache/clear", json={"what": "programs", "anyway": True}).json()
    assert freed == {"bytes": 5, "files": 1, "was_compiling": True}
    assert not (settings.cache_dir / "program").exists()


def test_kept_layouts_are_cleared_but_not_under_a_model_that_is_being_loaded(
    client: TestClient, settings: Settings, database: Database
) -> None:
    kept = settings.layouts_dir / "tiny" / "unet.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"12345")
    assert client.get(f"{SYSTEM}/cache").json()["layouts"]["bytes"] == 5
    with database.write() as tx:
        tx.execute("UPDATE workers SET phase = 'sharding'")
    refused = client.post(f"{SYSTEM}/cache/clear", json={"what": "layouts", "anyway": True})
    assert (refused.status_code, refused.json()["error"]["title"]) == (409, "A model is being loaded")
    assert kept.exists()
    with database.write() as tx:
        tx.execute("UPDATE workers SET phase = ''")
    assert client.post(f"{SYSTEM}/cache/clear", json={"what": "layouts"}).json()["bytes"] == 5
    assert not kept.exists()


def test_jobs_outputs_and_totals_tell_what_they_cost(
    client: TestClient, database: Database, worker: Worker, submit: Callable[..., Job]
) -> None:
    with database.write() as tx:
        workers.equip(tx, LOCAL, chips=8, chip_price=4.5)
    job = submit(batch_size=2)
    worker.run_next()
    done = client.get(f"/api/v1/jobs/{job.id}").json()
    assert done["state"] == "done"
    assert done["cost_usd"] == pytest.approx(done["chip_seconds"] * 4.5 / 3600)
    outputs = [client.get(f"/api/v1/outputs/{output['id']}").json() for output in done["outputs"]]
    assert sum(output["chip_seconds"] for output in outputs) == pytest.approx(done["chip_seconds"], rel=0.5)
    assert outputs[0]["cost_usd"] == pytest.approx(outputs[0]["chip_seconds"] * 4.5 / 3600)
    usage = client.get(f"{SYSTEM}/usage").json()
    assert usage["mine"] == usage["owners"][0]
    assert usage["mine"]["chip_seconds"] == pytest.approx(done["chip_seconds"])
    assert usage["chip_price"] == 4.5


def test_another_owners_total_is_not_told(client: TestClient, database: Database, submit: Callable[..., Job]) -> None:
    job = submit(owner="bob")
    with database.write() as tx:
        tx.execute("UPDATE jobs SET chip_seconds = 5 WHERE id = ?", (job.id,))
    usage = client.get(f"{SYSTEM}/usage").json()
    assert usage["owners"] == []
    assert usage["mine"] == {"owner": "local", "jobs": 0, "chip_seconds": 0.0, "cost_usd": None}


def test_every_route_is_described(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    routes = [route for path, routes in paths.items() if path.startswith(SYSTEM) for route in routes.values()]
    assert len(routes) == 10
    assert all(route["description"] for route in routes)


# Plans


def test_a_kept_plan_shows_at_once(client: TestClient, settings: Settings) -> None:
    wanted = {"model": "demo-sdxl", "topology": "v6e-4"}
    assert client.get(f"{SYSTEM}/plan", params=wanted).json()["state"] in ("unknown", "shipped")
    question = Question.of(load_catalog().get("demo-sdxl"), shape="256x256", topology="v6e-4", mode="latency")
    settings.plans_dir.mkdir(parents=True)
    plan = {"model": "demo-sdxl", "source": "Estimated by the TPU compiler"}
    (settings.plans_dir / f"{question.key}.json").write_text(json.dumps(plan))
    found = client.get(f"{SYSTEM}/plan", params=wanted).json()
    assert (found["state"], found["plan"]) == ("done", plan)
    assert client.post(f"{SYSTEM}/plan", json=wanted).status_code == 200


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"model": "nope"}, "model"),
        ({"model": "demo-sdxl", "shape": "1x1"}, "shape"),
        ({"model": "demo-sdxl", "topology": "v9"}, "topology"),
        ({"model": "demo-sdxl", "mode": "fast"}, "mode"),
    ],
)
def test_what_cannot_be_planned_is_told_by_field(client: TestClient, wanted: dict[str, str], field: str) -> None:
    answer = client.post(f"{SYSTEM}/plan", json=wanted)
    assert (answer.status_code, list(answer.json()["error"]["fields"])) == (422, [field])


@pytest.mark.usefixtures("fork_commands")
def test_a_plan_is_made_in_the_background_one_at_a_time_and_kept(
    client: TestClient, settings: Settings, wait_for: Callable[..., object]
) -> None:
    wanted = {"model": "demo-sdxl", "topology": "cpu-1"}
    started = client.post(f"{SYSTEM}/plan", json=wanted)
    assert (started.status_code, started.json()["state"]) == (202, "running")
    other = {"model": "demo-sdxl", "topology": "cpu-8"}
    refused = client.post(f"{SYSTEM}/plan", json=other)
    assert (refused.status_code, refused.json()["error"]["title"]) == (409, "Another plan is being made")
    assert client.get(f"{SYSTEM}/plan", params=other).json()["other"]["topology"] == "cpu-1"
    phases: set[str] = set()

    def look() -> dict[str, Any]:
        run = client.get(f"{SYSTEM}/plan", params=wanted).json()
        phases.add(run["progress"]["phase"])
        return run

    wait_for("the plan", lambda: look()["state"] != "running", timeout_s=PLAN_TIMEOUT_S)
    done = look()
    assert (done["state"], done["error"]) == ("done", "")
    assert phases >= {"tracing", "compiling denoise"}
    stages = [stage["stage"] for stage in done["plan"]["stages"]]
    assert stages == ["encode", "condition", "denoise", "preview", "decode"]
    assert done["plan"]["source"] == "Compiled for CPU: memory only"
    question = Question.of(load_catalog().get("demo-sdxl"), shape="256x256", topology="cpu-1", mode="latency")
    kept = Planner(settings).find(question)
    assert kept is not None and kept.plan == done["plan"]


def make_planner(settings: Settings, *command: str) -> tuple[Planner, Question]:
    question = Question.of(load_catalog().get("demo-sdxl"), shape="256x256", topology="cpu-1", mode="latency")
    return Planner(settings, command=command), question


def test_a_planner_that_cannot_start_says_so_and_stands_in_nobodys_way(settings: Settings, tmp_path: Path) -> None:
    planner, question = make_planner(settings, str(tmp_path / "nothing"))
    for _ in range(2):
        run = planner.ask(question)
        assert (run.state, planner.is_running) == ("failed", False)
        assert run.error.startswith("The planner could not start: ")
    planner.close()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("print('no plan')", "The planner's answer cannot be read: "),
        ("import os; os.write(2, b'\\xff\\n'); os.abort()", "\ufffd"),
        ("raise SystemExit(3)", "The planner ended with code 3."),
    ],
)
def test_a_planner_that_ends_badly_has_failed_and_another_may_start(
    settings: Settings, wait_for: Callable[..., object], script: str, error: str
) -> None:
    planner, question = make_planner(settings, sys.executable, "-c", script)
    for _ in range(2):
        run = planner.ask(question)
        wait_for("the end", lambda run=run: run.state != "running")
        assert (run.state, planner.is_running) == ("failed", False)
        assert run.error.startswith(error)


def test_a_plan_that_cannot_be_kept_is_shown(settings: Settings, wait_for: Callable[..., object]) -> None:
    settings.plans_dir.parent.mkdir(parents=True, exist_ok=True)
    settings.plans_dir.write_text("a file in the folder's place")
    planner, question = make_planner(settings, sys.executable, "-c", "print('{}')")
    run = planner.ask(question)
    wait_for("the end", lambda: run.state != "running")
    assert (run.state, run.plan) == ("done", {})


def test_planning_stands_back_for_everything_else(settings: Settings, wait_for: Callable[..., object]) -> None:
    script = "import json, os, sys; sys.stdin.read(); print(json.dumps({'nice': os.nice(0)}))"
    planner, question = make_planner(settings, sys.executable, "-c", script)
    run = planner.ask(question)
    wait_for("the end", lambda: run.state != "running")
    assert run.plan == {"nice": min(19, os.nice(0) + NICE)}


@pytest.fixture
def make_client(database: Database, catalog: Catalog) -> Iterator[Callable[[Settings], TestClient]]:
    with contextlib.ExitStack() as clients:
        yield lambda settings: clients.enter_context(TestClient(create_api(settings, database, catalog)))


@pytest.fixture
def tpu(database: Database) -> None:
    """The worker runs on a v6e-8."""
    with database.write() as tx:
        workers.equip(tx, LOCAL, chips=8, chip_price=None)
        devices = [{"id": number, "kind": "TPU v6 lite"} for number in range(8)]
        workers.measure(tx, LOCAL, mesh="", devices=devices, host={}, compiling=0)


@pytest.mark.usefixtures("tpu")
@pytest.mark.parametrize(
    ("mesh", "wanted", "planned"),
    [
        (None, {}, ("latency", None)),
        ("dp=2,sp=4", {}, ("latency", "dp=2,sp=4")),
        ("dp=2,sp=4", {"mode": "throughput"}, ("throughput", None)),
        ("dp=2,sp=4", {"topology": "v6e-4"}, ("latency", None)),
        ("throughput", {}, ("throughput", None)),
        ("throughput", {"mode": "latency"}, ("latency", None)),
        ("throughput", {"topology": "v6e-4"}, ("latency", None)),
    ],
)
def test_this_hardware_is_planned_as_the_worker_uses_it(
    make_client: Callable[..., TestClient],
    settings: Settings,
    mesh: str | None,
    wanted: dict[str, str],
    planned: tuple[str, str | None],
) -> None:
    client = make_client(dataclasses.replace(settings, mesh=mesh))
    found = client.get(f"{SYSTEM}/plan", params={"model": "demo-wan", **wanted}).json()
    assert (found["mode"], found["mesh"]) == planned


def test_mesh_and_weights_reach_the_planner_and_are_part_of_the_key(
    settings: Settings, wait_for: Callable[..., object]
) -> None:
    script = "import json, sys; print(json.dumps(sys.argv))"
    planner, question = make_planner(settings, sys.executable, "-c", script)
    split = dataclasses.replace(question, mesh="dp=2,sp=4")
    rounded = dataclasses.replace(question, weights="int8")
    assert len({one.key for one in (question, split, rounded)}) == 3
    for asked in (question, split, rounded):
        run = planner.ask(asked)
        wait_for("the end", lambda run=run: run.state != "running")
        assert ("dp=2,sp=4" in (run.plan or ())) is (asked is split)
        assert ("int8" in (run.plan or ())) is (asked is rounded)


def test_weights_that_are_not_alike_of_all_models_are_called_mixed(settings: Settings, database: Database) -> None:
    (settings.data_dir / "models.toml").write_text('[[model]]\nid = "flux2-dev"\nweights = "int8"\n')
    catalog = read_catalog(settings)
    with TestClient(create_api(settings, database, catalog)) as client:
        assert client.get(SYSTEM).json()["weights"] == "mixed"
        told = {model["id"]: model["weights"] for model in client.get("/api/v1/models").json()["models"]}
    assert (told["flux2-dev"], told["sdxl-base"]) == ("int8", "full")


@pytest.mark.parametrize("weights", ["full", "int8"])
def test_it_is_told_everywhere_how_weights_lie_on_the_devices(
    settings: Settings, database: Database, catalog: Catalog, weights: str
) -> None:
    settings = dataclasses.replace(settings, weights=weights)
    with TestClient(create_api(settings, database, catalog.with_weights(weights))) as client:
        assert client.get(SYSTEM).json()["weights"] == weights
        for path in ("/api/v1/models", "/api/v1/models/files"):
            assert {model["weights"] for model in client.get(path).json()["models"]} == {weights}
        found = client.get(f"{SYSTEM}/plan", params={"model": "flux2-dev", "topology": "v5e-8"}).json()
        assert (found["state"], found["weights"], found["plan"]["weights"]) == ("shipped", weights, weights)


def test_models_whose_prompts_are_read_elsewhere_are_told(
    make_client: Callable[..., TestClient], settings: Settings
) -> None:
    urls = {"flux2-dev": "http://10.0.0.2:8000"}
    found = make_client(dataclasses.replace(settings, text_encoder_urls=urls)).get(f"{SYSTEM}/topologies").json()
    assert found["remote_text_encoders"] == ["flux2-dev"]


def test_a_plan_is_cancelled_and_can_be_asked_for_again(client: TestClient) -> None:
    wanted = {"model": "flux2-dev", "topology": "v6e-8"}
    for _ in range(2):
        assert client.post(f"{SYSTEM}/plan", json=wanted).json()["state"] == "running"
        assert client.delete(f"{SYSTEM}/plan").json()["plan"]["state"] == "cancelled"
        assert client.get(f"{SYSTEM}/plan", params=wanted).json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("kind", "chips", "name"),
    [
        ("TPU v6 lite", 8, "v6e-8"),
        ("TPU v5 lite", 4, "v5e-4"),
        ("TPU v5p", 4, "v5p-8"),
        ("cpu", 1, "cpu-1"),
        ("cpu", 3, None),
    ],
)
def test_this_hardware_is_found_among_the_topologies(kind: str, chips: int, name: str | None) -> None:
    found = suggest_topology([{"kind": kind}] * chips, chips=chips)
    assert (found and found.name) == name


def test_what_concerns_everybody_is_in_the_audit_log(
    client: TestClient, settings: Settings, encode_lora: Callable[..., bytes]
) -> None:
    client.put("/api/v1/wildcards/animals", json={"lines": ["cat"]}).raise_for_status()
    client.delete("/api/v1/wildcards/animals").raise_for_status()
    client.post("/api/v1/loras", params={"name": "a.safetensors"}, content=encode_lora()).raise_for_status()
    client.delete("/api/v1/loras/a").raise_for_status()
    client.post("/api/v1/system/cache/clear", json={"what": "plans"}).raise_for_status()
    client.post("/api/v1/outputs/purge", json={"ids": None}).raise_for_status()
    notes = [json.loads(line) for line in settings.audit_log.read_text("utf-8").splitlines()]
    assert [note["what"] for note in notes] == [
        "wildcard.changed",
        "wildcard.deleted",
        "lora.added",
        "lora.deleted",
        "cache.cleared",
        "outputs.purged",
    ]
    assert {note["owner"] for note in notes} == {"local"}


def test_what_the_doctor_found_of_the_kernels_is_told(
    client: TestClient, database: Database, settings: Settings
) -> None:
    assert client.get(SYSTEM).json()["kernels"] == "", "nobody looked"
    with database.write() as tx:
        devices = [gauges.FAKE_DEVICE | {"kind": "TPU v9"}]
        workers.measure(tx, LOCAL, mesh="", devices=devices, host={}, compiling=0)
    found = {"flash": Found(verdict="hung", detail="20 s", off=("flash",)), "rotary": Found(verdict="right")}
    checked = Checked(kind="TPU v9", hardware="", versions=switches.list_versions(), at=1.0, checks=found)
    switches.remember(switches.find_file(settings.cache_dir), checked)
    told = client.get(SYSTEM).json()
    assert told["kernels"] == "off: flash (flash: no answer in 20 s)"
    assert told["kernels_said"]["code"] == "off: {names} ({reasons})"
    late = dataclasses.replace(checked, checks={"rotary": Found(verdict="right"), "picture": Found(verdict="skipped")})
    switches.remember(switches.find_file(settings.cache_dir), late)
    assert client.get(SYSTEM).json()["kernels"] == "1 checks passed, there was no time for 1"
    right = dataclasses.replace(checked, checks={"rotary": Found(verdict="right")})
    switches.remember(switches.find_file(settings.cache_dir), right)
    assert client.get(SYSTEM).json()["kernels"] == "all 1 checks passed"
