"""Trainings over REST, with a worker that pretends: asked, run, paused, gone on with, ended."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.files.metadata import read_recipe_of
from pipelines.loras.files import find_lora_file
from pipelines.loras.settings import find_adapter_config
from pipelines.messages import say
from pipelines.models.catalog import Catalog, Shape
from pipelines.runtime.weights import hub
from pipelines.stages import Progress
from studio import events
from studio.access.users import Users
from studio.access_settings import EVERYBODY, Mode
from studio.api.application import create_api
from studio.database import Database
from studio.jobs import claims, queue, trainings
from studio.jobs.line.places import read_places
from studio.jobs.states import JobState
from studio.library import training_packs, training_starts, uploads
from studio.library.records import read_output
from studio.library.uploads import Quota
from studio.settings import Settings
from studio.worker.learning import Learnt, Lesson, pretend_to_learn
from studio.worker.loop import Worker
from studio.worker.runners import train

Ask = Callable[..., Any]


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """The catalogue, whose model of two experts makes small videos: samples of its own sizes take a minute here.

    sd15 has no example prompts, as models that people add.
    """
    small = Shape(width=96, height=64, frames=9)
    changes: dict[str, Any] = {
        "wan2.2-a14b": {"shapes": (small,), "default_shape": small},
        "sd15": {"examples": ()},
    }
    return replace(catalog, models=tuple(replace(model, **changes.get(model.id, {})) for model in catalog.models))


@pytest.fixture(autouse=True)
def hears_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretended steps take less than the time after which a worker asks again whether to go on."""
    monkeypatch.setattr(train, "REPORT_S", 0.0)


@pytest.fixture
def ask(client: TestClient, upload: Callable[..., str]) -> Ask:
    """Asks for a training of two pictures and few steps."""

    def ask(*, expects: int = 201, **fields: Any) -> Any:
        pictures = [{"id": upload("red"), "caption": "A red zorb"}, {"id": upload("blue")}]
        asked = {"model": "demo-sdxl", "name": "zorb", "trigger": "zorb", "pictures": pictures, "steps": 16, **fields}
        answer = client.post("/api/v1/trainings", json=asked)
        assert answer.status_code == expects, answer.text
        return answer.json()["id"] if expects == 201 else answer.json()["error"]

    return ask


def interrupt(worker: Worker, step: int, act: Callable[[], object]) -> None:
    """Has the worker's next training hear `act` when it has done so many steps."""

    def learn(lesson: Lesson) -> Learnt:
        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["step"] == step:
                act()
            lesson.on_event(event)

        worker.learn = usual
        return usual(replace(lesson, on_event=hear))

    usual = worker.learn
    worker.learn = learn


def look(client: TestClient, job_id: str) -> Any:
    return client.get(f"/api/v1/trainings/{job_id}").json()


def test_a_training_ends_in_a_lora_that_the_list_shows_and_samples_that_can_be_made_again(
    client: TestClient, worker: Worker, database: Database, ask: Ask
) -> None:
    job_id = ask(sample_prompts=["A zorb by the sea", "A zorb at night"])
    waiting = look(client, job_id)
    assert (waiting["job"]["state"], waiting["job"]["steps"], waiting["job"]["title"]) == ("queued", 16, "zorb")
    assert worker.run_next()
    done = look(client, job_id)
    assert (done["job"]["state"], done["job"]["step"], done["loras"], done["saved_step"]) == ("done", 16, ["zorb"], 16)
    assert [point["step"] for point in done["points"]] == list(range(1, 17))
    assert done["points"][0]["loss"] > done["points"][-1]["loss"]
    assert [(one["step"], one["number"]) for one in done["samples"][-2:]] == [(16, 0), (16, 1)]
    assert client.get(done["samples"][0]["url"]).headers["content-type"] == "image/webp"
    listed = client.get("/api/v1/loras", params={"model": "demo-sdxl"}).json()["loras"]
    assert [lora["ref"] for lora in listed] == ["zorb"]
    recipes = [read_output(database, output["id"]).recipe for output in done["job"]["outputs"]]
    assert [recipe.prompt for recipe in recipes] == ["A zorb by the sea", "A zorb at night"]
    assert {lora.ref for recipe in recipes for lora in recipe.loras} == {"zorb"}
    file = worker.settings.outputs_dir / read_output(database, f"{job_id}-0").file
    assert read_recipe_of(file) == recipes[0]
    again = client.post("/api/v1/jobs", json=recipes[0].to_json())
    assert again.status_code == 201, again.text


def test_a_trainings_numbers_stay_when_its_model_is_gone_and_it_does_not_go_on(
    client: TestClient, database: Database, ask: Ask
) -> None:
    job_id = ask(steps=None, strength="gentle")
    before = look(client, job_id)["numbers"]
    assert before == {"steps": 400, "rank": 8, "learning_rate": 1e-3}
    with database.write() as tx:
        tx.execute("UPDATE jobs SET recipe = json_set(recipe, '$.model', 'gone') WHERE id = ?", (job_id,))
    assert look(client, job_id)["numbers"] == before
    client.delete(f"/api/v1/jobs/{job_id}")
    refused = client.post(f"/api/v1/trainings/{job_id}/continue")
    assert (refused.status_code, look(client, job_id)["job"]["state"]) == (409, "cancelled")
    assert "'gone', which zorb learns from, is not here any more" in refused.json()["error"]["detail"]


def test_the_second_experts_curve_goes_on_where_the_firsts_ended_over_a_pause_too(
    client: TestClient, worker: Worker, ask: Ask
) -> None:
    job_id = ask(model="wan2.2-a14b")
    assert look(client, job_id)["job"]["steps"] == 32
    passed = 0

    def pause_in_the_second() -> None:
        nonlocal passed
        passed += 1
        if passed == 2:
            client.post(f"/api/v1/trainings/{job_id}/pause")

    interrupt(worker, 5, pause_in_the_second)
    worker.run_next()
    paused = look(client, job_id)
    assert (paused["job"]["state"], 21 <= paused["saved_step"] < 32) == ("paused", True)
    assert [point["step"] for point in paused["points"]] == list(range(1, paused["saved_step"] + 1))

    client.post(f"/api/v1/trainings/{job_id}/continue")
    worker.run_next()
    done = look(client, job_id)
    assert (done["job"]["state"], done["job"]["step"], done["saved_step"]) == ("done", 32, 32)
    assert [point["step"] for point in done["points"]] == list(range(1, 33))
    assert done["points"][15]["loss"] < done["points"][16]["loss"]  # each begins as it was
    assert {one["step"] for one in done["samples"]} >= {16, 32}


def test_a_step_that_was_skipped_is_missing_in_the_curve_and_no_other(
    client: TestClient, worker: Worker, ask: Ask
) -> None:
    job_id = ask()
    usual = worker.learn

    def learn(lesson: Lesson) -> Learnt:
        def hear(event: dict[str, Any]) -> None:
            is_skipped = event["event"] == "step" and event["step"] == 5
            lesson.on_event(event | {"loss": None} if is_skipped else event)

        return usual(replace(lesson, on_event=hear))

    worker.learn = learn
    worker.run_next()
    done = look(client, job_id)
    assert done["job"]["state"] == "done"
    assert [point["step"] for point in done["points"]] == [step for step in range(1, 17) if step != 5]


def test_what_the_engine_changed_of_its_data_is_told(client: TestClient, worker: Worker, ask: Ask) -> None:
    job_id = ask()
    usual = worker.learn

    def learn(lesson: Lesson) -> Learnt:
        lesson.on_event({"event": "note", "text": say("add at least one picture")})
        return usual(lesson)

    worker.learn = learn
    worker.run_next()
    assert look(client, job_id)["job"]["notes"] == ["add at least one picture"]


def test_nothing_that_a_training_no_longer_needs_stays_on_the_disk(worker: Worker, ask: Ask) -> None:
    job_id = ask()
    worker.run_next()
    assert [entry.name for entry in (worker.settings.training_dir / job_id).iterdir()] == ["shown"]


def test_pictures_and_captions_lie_in_the_folder_only_while_it_learns(
    worker: Worker, ask: Ask, client: TestClient
) -> None:
    job_id = ask()
    folder = worker.settings.training_dir / job_id / "data"
    seen: dict[str, str] = {}

    def note() -> None:
        seen.update({file.name: file.read_text("utf-8") for file in folder.glob("*.txt")})
        client.post(f"/api/v1/trainings/{job_id}/pause")

    interrupt(worker, 3, note)
    worker.run_next()
    assert seen == {"0001.txt": "A red zorb", "0002.txt": "zorb"}
    assert not folder.exists()


def test_a_paused_training_gives_the_devices_back_and_goes_on_where_it_stopped(
    client: TestClient, worker: Worker, ask: Ask, submit: Callable[..., Any], database: Database
) -> None:
    job_id = ask()
    interrupt(worker, 5, lambda: client.post(f"/api/v1/trainings/{job_id}/pause"))
    worker.run_next()
    paused = look(client, job_id)
    assert (paused["job"]["state"], paused["pause_requested"]) == ("paused", False)
    assert 5 <= paused["saved_step"] < 16
    other = submit()
    assert worker.run_next()
    assert queue.read_job(database, other.id).state is JobState.DONE, "others run meanwhile"

    gone_on = client.post(f"/api/v1/trainings/{job_id}/continue").json()
    assert gone_on["job"]["state"] == "queued"
    worker.run_next()
    done = look(client, job_id)
    assert done["job"]["state"] == "done"
    assert [point["step"] for point in done["points"]] == list(range(1, 17)), "no step is lost, none is there twice"
    told = [event for event in events.read_after(database, 0) if event.job_id == job_id]
    steps = [json.loads(event.data)["step"] for event in told if event.kind == "training.step"]
    assert sorted(set(steps)) == list(range(1, 17))
    assert "job.paused" in [event.kind for event in told]


def test_a_waiting_training_is_paused_at_once_and_can_be_cancelled_then(client: TestClient, ask: Ask) -> None:
    job_id = ask()
    assert client.post(f"/api/v1/trainings/{job_id}/pause").json()["job"]["state"] == "paused"
    assert client.post(f"/api/v1/trainings/{job_id}/pause").status_code == 409
    client.post("/api/v1/jobs/clear")
    assert client.get(f"/api/v1/jobs/{job_id}").json()["is_cleared"] is False, "what goes on later stays in sight"
    assert client.delete(f"/api/v1/jobs/{job_id}").json()["state"] == "cancelled"


def test_a_cancelled_training_keeps_its_last_state(client: TestClient, worker: Worker, ask: Ask) -> None:
    job_id = ask()
    interrupt(worker, 4, lambda: client.delete(f"/api/v1/jobs/{job_id}"))
    worker.run_next()
    cancelled = look(client, job_id)
    assert (cancelled["job"]["state"], cancelled["loras"]) == ("cancelled", [])
    assert cancelled["saved_step"] >= 4
    client.post(f"/api/v1/trainings/{job_id}/continue")
    worker.run_next()
    assert look(client, job_id)["job"]["state"] == "done"


@pytest.mark.parametrize("ask_for", ["pause", "cancel"])
def test_before_its_first_step_a_training_ends_at_once(
    client: TestClient, worker: Worker, ask: Ask, ask_for: str
) -> None:
    job_id = ask()

    def learn(lesson: Lesson) -> Learnt:
        if ask_for == "pause":
            client.post(f"/api/v1/trainings/{job_id}/pause")
        else:
            client.delete(f"/api/v1/jobs/{job_id}")
        lesson.on_event({"event": "preparing", "done": 1, "total": 2})
        raise AssertionError("it goes on")

    worker.learn = learn
    worker.run_next()
    job = look(client, job_id)["job"]
    assert (job["state"], job["error"]) == ("paused" if ask_for == "pause" else "cancelled", None)


def test_a_training_whose_worker_crashed_goes_on_from_its_last_state(
    client: TestClient, worker: Worker, ask: Ask, database: Database
) -> None:
    job_id = ask(steps=40)

    def crash() -> None:
        raise RuntimeError("the device is gone")

    interrupt(worker, 25, crash)
    worker.run_next()
    failed = look(client, job_id)
    assert (failed["job"]["state"], failed["saved_step"]) == ("failed", 20)
    client.post(f"/api/v1/trainings/{job_id}/continue")
    worker.run_next()
    done = look(client, job_id)
    assert (done["job"]["state"], [point["step"] for point in done["points"]]) == ("done", list(range(1, 41)))
    assert len(client.get("/api/v1/loras").json()["loras"]) == 1


def test_when_the_server_stops_a_training_saves_and_stays_in_line(
    client: TestClient, worker: Worker, ask: Ask, database: Database
) -> None:
    job_id = ask()
    interrupt(worker, 6, worker.ending.set)
    worker.run_next()
    assert look(client, job_id)["job"]["state"] == "running", "its supervisor puts it back"
    claims.requeue_running(database)
    worker.ending.clear()
    worker.run_next()
    assert look(client, job_id)["job"]["state"] == "done"


def test_an_interrupted_training_says_what_its_own_button_does(
    client: TestClient, ask: Ask, database: Database
) -> None:
    job_id = ask()
    assert claims.claim_next(database, resident=None)
    claims.interrupt_running(database)
    error = look(client, job_id)["job"]["error"]
    assert error["detail"] == "The server stopped while this training was running."
    assert error["advice"] == "Go on continues from its last saved step."


def test_a_lost_claim_leaves_nothing_behind(client: TestClient, worker: Worker, ask: Ask, database: Database) -> None:
    job_id = ask()
    interrupt(worker, 6, lambda: claims.requeue_running(database))
    worker.run_next()
    assert look(client, job_id)["job"]["state"] == "queued"
    assert client.get("/api/v1/loras").json()["loras"] == []
    worker.run_next()
    assert look(client, job_id)["loras"] == ["zorb"]


def test_a_lora_of_the_same_name_that_came_meanwhile_is_not_replaced(
    client: TestClient, worker: Worker, ask: Ask, add_lora: Callable[..., Path]
) -> None:
    job_id = ask()
    file = add_lora("zorb", title="Somebody's")
    before = file.read_bytes()
    worker.run_next()
    assert look(client, job_id)["loras"] == ["zorb-2"]
    assert file.read_bytes() == before


def test_all_that_is_wrong_is_told_at_once_by_field(
    client: TestClient, ask: Ask, upload: Callable[..., str], add_lora: Callable[..., Path]
) -> None:
    add_lora("taken")
    theirs, mine = upload("green", owner="bob"), upload("black")
    pictures = [{"id": theirs, "caption": "x"}, {"id": mine}, {"id": mine, "caption": "y"}]
    error = ask(
        expects=422, model="clips", name="taken", trigger="", pictures=pictures, sample_prompts=["x"], strength="usual"
    )
    assert error["fields"].keys() == {"model", "name", "pictures.0.id", "pictures.1.caption", "pictures.2.id"}
    error = ask(expects=422, name="...", pictures=[], sample_prompts=["x" * 40_000])
    assert error["fields"].keys() == {"name", "pictures", "sample_prompts.0"}
    blank = ask(expects=422, name=" ", trigger="", pictures=[{"id": upload("white")}])["fields"]
    assert blank == {
        "name": "give it a name",
        "pictures.0.caption": "write what is to be seen, or give a trigger word",
    }, "nothing is said of the sample's prompt, which is that caption"
    assert ask(expects=422, strength="brutal")["fields"].keys() == {"strength"}
    ask(name="wänted")
    assert "has not ended" in ask(expects=422, name="WÄNTED")["fields"]["name"]


def test_pictures_of_other_things_are_made_first_and_their_time_is_told_apart(
    client: TestClient, worker: Worker, ask: Ask, submit: Callable[..., Any], catalog: Catalog
) -> None:
    model = catalog.get("demo-sdxl")
    heard: list[tuple[Any, ...]] = []

    def learn(lesson: Lesson) -> Learnt:
        heard.append((lesson.settings.prior_prompt, lesson.settings.preserve))
        return usual(replace(lesson, on_event=lambda event: (heard.append((event["event"],)), lesson.on_event(event))))

    usual, worker.learn = worker.learn, learn
    job_id = ask(prior_prompts=["auto", " A dog ", "A dog"], steps=11)
    worker.run_next()
    examples = tuple(example.prompt for example in model.examples)
    assert heard[0] == ((*examples, "A dog"), 1.0)
    kinds = [kind for (kind, *_) in heard[1:]]
    assert kinds.count("prior") == len(examples) + 2 and kinds.index("prior") < kinds.index("step")
    assert look(client, job_id)["job"]["state"] == "done"

    submit(model=model.id)
    worker.run_next()
    choices = client.get("/api/v1/trainings/choices").json()
    told = next(one for one in choices["models"] if one["id"] == model.id)
    assert told["prior"]["prompts"] == len(examples)
    assert told["prior"]["picture"]["seconds"] > 0
    assert told["strengths"]["usual"]["seconds"] > 0

    plain, first = ask(name="plain", steps=2), ask(name="first", prior_prompts=["auto", "A dog"], steps=2)
    waits = [look(client, job_id)["job"]["eta_s"] for job_id in (plain, first)]
    pictures_s = (len(examples) + 1) * told["prior"]["picture"]["seconds"]
    assert waits[1] - waits[0] == pytest.approx(waits[0] + pictures_s, abs=0.1), "the line counts them"

    database = client.app.state.studio.database
    with database.write() as tx:
        tx.execute("UPDATE trainings SET saved_step = 2 WHERE job_id = ?", (first,))
    assert read_places(database)[first].eta_s <= waits[1] - pictures_s, "what it has done is not counted again"


def test_a_pause_while_other_things_are_made_ends_it_and_they_are_not_made_twice(
    client: TestClient, worker: Worker, ask: Ask
) -> None:
    job_id = ask(prior_prompts=["A dog", "A boat", "A house"], steps=2)
    counts: list[int] = []

    def learn(lesson: Lesson) -> Learnt:
        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "prior":
                counts.append(event["total"])
                if event["done"] == 2 and len(counts) == 3:
                    client.post(f"/api/v1/trainings/{job_id}/pause")
                    lesson.on_event({"event": "compiling", "shape": "256x256"})  # another phase is told at once
            lesson.on_event(event)

        return usual(replace(lesson, on_event=hear))

    usual, worker.learn = worker.learn, learn
    worker.run_next()
    assert look(client, job_id)["job"]["state"] == "paused"
    client.post(f"/api/v1/trainings/{job_id}/continue")
    worker.run_next()
    assert (counts[0], counts[-1], look(client, job_id)["job"]["state"]) == (3, 1, "done")


def test_prompts_of_other_things_that_cannot_be_are_named(ask: Ask) -> None:
    assert ask(expects=422, prior_prompts="auto")["fields"].keys() == {"prior_prompts"}
    error = ask(expects=422, prior_prompts=["A dog", " ", 3, "x" * 3000])
    assert error["fields"].keys() == {"prior_prompts.1", "prior_prompts.2", "prior_prompts.3"}
    assert ask(expects=422, model="sd15", prior_prompts=["auto"])["fields"].keys() == {"prior_prompts"}
    ask(model="sd15", prior_prompts=["auto", "A dog"])


def test_the_pictures_of_a_training_stay_as_long_as_it_may_go_on(
    client: TestClient, ask: Ask, database: Database, settings: Settings
) -> None:
    job_id = ask()
    uploads.forget_unused(database, settings.uploads_dir, now_s=1e12)
    ids = [picture["id"] for picture in look(client, job_id)["pictures"]]
    assert all(uploads.read_upload(database, upload_id) for upload_id in ids)


def test_a_training_is_no_recipe(client: TestClient, ask: Ask) -> None:
    job_id = ask()
    assert client.patch(f"/api/v1/jobs/{job_id}", json={"steps": 3}).status_code == 409
    assert client.post(f"/api/v1/jobs/{job_id}/duplicate").status_code == 409


def test_what_a_training_takes_is_known_once_one_was_measured(client: TestClient, worker: Worker, ask: Ask) -> None:
    told = read_strength(client)
    assert (told["steps"], told["seconds"], told["is_about"]) == (500, None, False)
    ask(steps=11)
    worker.run_next()
    assert read_strength(client)["seconds"] > 0
    job_id = ask(name="other")
    assert look(client, job_id)["job"]["eta_s"] > 0


def test_what_a_training_takes_is_planned_where_none_was_measured(client: TestClient, database: Database) -> None:
    devices = json.dumps([{"kind": "TPU v6 lite"}] * 8)
    with database.write() as tx:
        tx.execute("UPDATE workers SET devices = ?, chips = 8, chip_price = 2.5", (devices,))
    models = {model["id"]: model for model in client.get("/api/v1/trainings/choices").json()["models"]}
    usual, strong = (models["sdxl-base"]["strengths"][name] for name in ("usual", "strong"))
    assert (usual["alone"]["is_planned"], usual["alone"]["is_about"], usual["is_about"]) == (True, False, True)
    assert usual["alone"]["seconds"] == pytest.approx(800 * usual["alone"]["step_s"])
    assert usual["alone"]["cost_usd"] == pytest.approx(usual["alone"]["seconds"] / 3600 * 8 * 2.5)
    assert usual["step_s"] == pytest.approx(2 * usual["alone"]["step_s"])
    assert strong["alone"]["is_about"]  # of another rank
    assert models["demo-sdxl"]["strengths"]["usual"]["seconds"] is None


@pytest.mark.parametrize(("trigger", "known", "other"), [("zorb", "usual", "alone"), ("", "alone", "usual")])
def test_trainings_with_twins_and_without_tell_each_others_time(  # noqa: PLR0917 - fixtures
    client: TestClient, worker: Worker, ask: Ask, upload: Callable[..., str], trigger: str, known: str, other: str
) -> None:
    ask(trigger=trigger, pictures=[{"id": upload("red"), "caption": "A zorb"}], steps=11)
    worker.run_next()
    told = read_strength(client)
    times = {"usual": told, "alone": told["alone"]}
    assert [times[name]["is_about"] for name in (known, other)] == [False, True]
    assert times["usual"]["step_s"] == pytest.approx(2 * times["alone"]["step_s"], abs=1e-3)
    assert times["usual"]["seconds"] > times["alone"]["seconds"] > 0


@pytest.mark.parametrize("act", ["pause", "cancel"])
def test_a_training_that_ended_early_teaches_what_a_step_takes(
    client: TestClient, worker: Worker, ask: Ask, database: Database, act: str
) -> None:
    job_id = ask(steps=30)
    url = f"/api/v1/trainings/{job_id}/pause" if act == "pause" else f"/api/v1/jobs/{job_id}"
    interrupt(worker, 20, lambda: client.request("POST" if act == "pause" else "DELETE", url))
    worker.run_next()
    assert look(client, job_id)["job"]["state"] in ("paused", "cancelled")
    told = read_strength(client)
    assert (told["is_about"], told["seconds"]) == (True, pytest.approx(500 * told["step_s"]))
    before = len(database.read("SELECT * FROM timings"))
    client.post(f"/api/v1/trainings/{job_id}/continue")
    worker.run_next()
    [row] = database.read("SELECT step_s, fixed_s FROM timings ORDER BY id DESC LIMIT 1")
    assert (len(database.read("SELECT * FROM timings")), row["step_s"] > 0, row["fixed_s"]) == (before + 1, True, None)


def read_strength(client: TestClient) -> Any:
    choices = client.get("/api/v1/trainings/choices").json()
    return next(model for model in choices["models"] if model["id"] == "demo-sdxl")["strengths"]["usual"]


def test_what_is_left_is_told_by_steps_alone_and_while_it_does_other_things_too(
    client: TestClient, worker: Worker, ask: Ask, database: Database
) -> None:
    """Thirty steps of 20 ms, between which something is compiled for half a second, and samples are made twice."""
    job_id = ask(steps=30)

    def learn(lesson: Lesson) -> Learnt:
        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["step"] == 3:
                lesson.on_event({"event": "compiling", "shape": "192x320"})
                time.sleep(0.5)
            lesson.on_event(event)

        return pretend_to_learn(replace(lesson, on_event=hear), step_s=0.02)

    worker.learn = learn
    worker.run_next()
    told = [json.loads(event.data) for event in events.read_after(database, 0) if event.job_id == job_id]
    steps = [event for event in told if event.get("phase") == "training" and "eta_s" in event]
    known = [(event["step"], event["eta_s"]) for event in steps if event["eta_s"] is not None]
    assert known[0][0] > 7, "too few steps were heard before"
    assert all(left_s < 2 for _, left_s in known), "by the time since the first step it would be four and more"


def test_what_is_told_of_its_samples_names_no_file_of_this_machine(
    client: TestClient, worker: Worker, ask: Ask, database: Database
) -> None:
    job_id = ask()

    def learn(lesson: Lesson) -> Learnt:
        def hear(event: dict[str, Any]) -> None:
            lesson.on_event(event)
            if event["event"] == "step" and event["step"] == 2:
                lesson.on_progress(Progress(phase="loading", detail="LoRA /data/training/samples/zorb-000002"))

        return pretend_to_learn(replace(lesson, on_event=hear))

    worker.learn = learn
    worker.run_next()
    told = [json.loads(event.data) for event in events.read_after(database, 0) if event.job_id == job_id]
    assert [event["phase_detail"] for event in told if event.get("phase") == "loading"] == [""]


def test_models_that_cannot_learn_are_no_choice(client: TestClient, catalog: Catalog) -> None:
    ids = [model["id"] for model in client.get("/api/v1/trainings/choices").json()["models"]]
    assert "demo-sdxl" in ids
    assert "clips" not in ids
    learnt = {one["id"]: one["clip_s"] for one in client.get("/api/v1/trainings/choices").json()["models"]}
    assert (learnt["demo-sdxl"], learnt["demo-wan"]) == (None, 17 / 8)
    assert not [model.id for model in catalog.models if model.min_images and model.id in ids]


def test_choices_say_what_is_not_on_this_machine_and_which_weights_learn(
    settings: Settings, database: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"black-forest-labs/FLUX.2-klein-4B", "stabilityai/stable-diffusion-xl-base-1.0"}
    monkeypatch.setattr(hub, "is_here", lambda model: not model.repo or model.repo in here)
    client = TestClient(create_api(replace(settings, fake=False), database, catalog))
    models = {model["id"]: model for model in client.get("/api/v1/trainings/choices").json()["models"]}
    told = {name: (models[name]["is_here"], models[name]["starts_from"]) for name in ("demo-sdxl", "sdxl-base", "sd15")}
    assert told == {"demo-sdxl": (True, None), "sdxl-base": (True, None), "sd15": (False, None)}
    klein = models["flux2-klein-4b"]
    assert (klein["is_here"], klein["starts_from"]) == (False, "black-forest-labs/FLUX.2-klein-base-4B")


@pytest.mark.parametrize(("allowed", "status"), [((), 403), (("ada",), 201), ((EVERYBODY,), 201)])
def test_where_people_log_in_only_those_who_were_named_train(  # noqa: PLR0917 - fixtures
    settings: Settings,
    database: Database,
    catalog: Catalog,
    upload: Callable[..., str],
    encode_picture: Callable[..., bytes],
    allowed: tuple[str, ...],
    status: int,
) -> None:
    access = replace(settings.access, mode=Mode.PASSWORD, who_may_train=frozenset(allowed))
    users = Users(settings.users_file)
    users.add("ada", password=None, is_admin=False)
    bearer = {"Authorization": f"Bearer {users.add_token('ada')}"}
    client = TestClient(create_api(replace(settings, access=access), database, catalog), headers=bearer)
    picture = {"id": upload(owner="ada"), "caption": "A zorb"}
    asked = {"model": "demo-sdxl", "name": "zorb", "pictures": [picture]}
    assert client.get("/api/v1/trainings/choices").json()["may_train"] is (status == 201)
    answer = client.post("/api/v1/trainings", json=asked)
    assert answer.status_code == status, answer.text
    clip = client.post("/api/v1/clips", content=b"hello")
    assert clip.status_code == (422 if status == 201 else 403), "no others make the server write videos"
    client.app.state.studio = replace(client.app.state.studio, upload_quota=Quota(pictures=0))
    brought = client.post("/api/v1/uploads", files={"file": encode_picture("blue")})
    assert brought.status_code == (201 if status == 201 else 429), "nor bring as much"


def test_a_long_curve_is_thinned(client: TestClient, worker: Worker, ask: Ask) -> None:
    job_id = ask(steps=600)
    worker.run_next()
    points = look(client, job_id)["points"]
    assert len(points) == 300
    assert (points[0]["step"], points[-1]["step"]) == (2, 600)


def test_the_model_in_memory_leaves_before_a_training(worker: Worker, ask: Ask, submit: Callable[..., Any]) -> None:
    submit()
    worker.run_next()
    assert worker.resident.family is not None
    ask()
    seen: list[object] = []

    def learn(lesson: Lesson) -> Learnt:
        seen.append(worker.resident.family)
        return pretend_to_learn(lesson, step_s=0)

    worker.learn = learn
    worker.run_next()
    assert seen == [None]


def test_a_training_tells_all_that_was_asked_so_that_it_can_be_asked_again(client: TestClient, ask: Ask) -> None:
    told = look(
        client, ask(preserve=False, prior_prompts=["auto", "A dog"], sample_prompts=["A zorb"], strength="strong")
    )
    names = ("trigger", "preserve", "prior_prompts", "sample_prompts", "strength")
    assert [told[name] for name in names] == ["zorb", False, ["auto", "A dog"], ["A zorb"], "strong"]
    assert [picture["caption"] for picture in told["pictures"]] == ["A red zorb", ""]


def test_a_lora_that_is_here_learns_on_as_a_new_one_with_its_own_rank(
    client: TestClient, worker: Worker, ask: Ask, add_lora: Callable[..., Path], encode_lora: Callable[..., bytes]
) -> None:
    file = add_lora("pixel")
    file.write_bytes(encode_lora("sdxl", rows=3))
    add_lora("other", "flux2")
    seen: list[Any] = []
    usual = worker.learn

    def learn(lesson: Lesson) -> Learnt:
        seen.append((lesson.settings.start_from, lesson.settings.rank))
        return usual(lesson)

    worker.learn = learn
    job_id = ask(start_from="pixel")
    assert look(client, job_id)["start_from"] == "pixel"
    assert look(client, job_id)["numbers"]["rank"] == 3
    assert worker.run_next()
    assert seen == [("pixel", 3)]
    assert look(client, job_id)["loras"] == ["zorb"], "it stays as it was, beside the new one"
    assert look(client, ask(name="new"))["start_from"] is None

    for wrong in ("nothing", str(file), "other"):
        assert ask(expects=422, name="a", start_from=wrong)["fields"].keys() == {"start_from"}
    assert ask(expects=422, name="a", start_from="pixel", rank=2)["fields"].keys() == {"rank"}


def start_of(lesson: Lesson) -> bytes:
    """The LoRA that a lesson learns on from, as the engine finds it."""
    file = find_lora_file(lesson.settings.start_from or "", lesson.model.loras_dir)
    assert file is not None
    return file.read_bytes()


@pytest.mark.parametrize("ref", ["pixel", "tmp/12"])  # names as states and unfinished files have
def test_a_lora_that_learns_on_may_be_deleted_or_replaced_after_the_first_attempt(
    client: TestClient, worker: Worker, encode_lora: Callable[..., bytes], ask: Ask, ref: str
) -> None:
    settings = worker.settings
    file = settings.loras_dir / f"{ref}.safetensors"
    file.parent.mkdir(parents=True)
    file.write_bytes(encode_lora("sdxl", rows=3))
    job_id, seen, usual = ask(start_from=ref), list[bytes](), worker.learn

    def learn(lesson: Lesson) -> Learnt:
        seen.append(start_of(lesson))
        return usual(lesson)

    worker.learn = learn
    first = file.read_bytes()
    interrupt(worker, 5, lambda: client.post(f"/api/v1/trainings/{job_id}/pause"))
    worker.run_next()
    work = settings.training_dir / job_id
    assert training_starts.has_start(work, ref) and not training_packs.is_being_written(work)
    assert (packed := training_packs.pack(work)) is not None
    training_packs.unpack(packed, work)
    assert training_starts.has_start(work, ref), "what goes to another machine has it"
    for act in (file.unlink, lambda: file.write_bytes(encode_lora("sdxl", rows=5))):
        act()
        client.post(f"/api/v1/trainings/{job_id}/continue").raise_for_status()
        if len(seen) == 1:
            interrupt(worker, 10, lambda: client.post(f"/api/v1/trainings/{job_id}/pause"))
        assert worker.run_next()
    assert seen == [first] * 3
    assert look(client, job_id)["job"]["state"] == "done"
    assert [*work.iterdir()] == [work / "shown"]


def test_a_description_of_pefts_is_copied_with_the_lora_that_it_is_of(
    settings: Settings, tmp_path: Path, encode_lora: Callable[..., bytes]
) -> None:
    place = settings.loras_dir / "mine"
    place.mkdir(parents=True)
    (place / "adapter_model.safetensors").write_bytes(encode_lora("sdxl"))
    (place / "adapter_config.json").write_text("{}", "utf-8")
    training_starts.keep_start(tmp_path, "mine", settings.loras_dir)
    copied = find_lora_file("mine", tmp_path / training_starts.START)
    assert copied is not None and find_adapter_config(copied) is not None


def test_a_copy_that_a_kill_cut_short_leaves_nothing(
    settings: Settings, tmp_path: Path, add_lora: Callable[..., Path]
) -> None:
    file, place = add_lora("pixel"), tmp_path / training_starts.START
    place.mkdir(parents=True)
    (place / ".pixel.1234abcd.part.safetensors").write_bytes(b"torn")
    training_starts.keep_start(tmp_path, "pixel", settings.loras_dir)
    assert [one.name for one in place.iterdir()] == [file.name]


def test_a_training_whose_lora_went_before_its_first_attempt_says_so_and_goes_on_once_it_is_back(
    client: TestClient, worker: Worker, ask: Ask, add_lora: Callable[..., Path]
) -> None:
    content = (file := add_lora("pixel")).read_bytes()
    job_id = ask(start_from="pixel")
    file.unlink()
    worker.run_next()
    job = look(client, job_id)["job"]
    assert (job["state"], job["error"]["title"]) == ("failed", "The LoRA to go on from is gone")
    refused = client.post(f"/api/v1/trainings/{job_id}/continue")
    assert refused.status_code == 409
    assert "'pixel', which is not here any more" in refused.json()["error"]["detail"]
    file.write_bytes(content)
    client.post(f"/api/v1/trainings/{job_id}/continue").raise_for_status()
    worker.run_next()
    assert look(client, job_id)["job"]["state"] == "done"


def test_trainings_are_listed_newest_first(client: TestClient, ask: Ask) -> None:
    first, second = ask(), ask(name="other")
    listed = client.get("/api/v1/trainings").json()["trainings"]
    assert [training["id"] for training in listed] == [second, first]
    assert client.get("/api/v1/trainings/nothing").status_code == 404


def test_a_job_that_makes_pictures_is_no_training(
    client: TestClient, submit: Callable[..., Any], database: Database
) -> None:
    job = submit()
    assert client.get(f"/api/v1/trainings/{job.id}").status_code == 404
    assert client.post(f"/api/v1/trainings/{job.id}/pause").status_code == 404
    assert trainings.read_training(database, job.id) is None


def ended(client: TestClient, worker: Worker, ask: Ask, state: str, **fields: Any) -> str:
    """A training in this state, with a curve and something to go on from unless it is done."""
    job_id = ask(**fields)
    if state == "paused":
        interrupt(worker, 5, lambda: client.post(f"/api/v1/trainings/{job_id}/pause"))
    elif state == "cancelled":
        interrupt(worker, 5, lambda: client.delete(f"/api/v1/jobs/{job_id}"))
    worker.run_next()
    assert look(client, job_id)["job"]["state"] == state
    return job_id


@pytest.mark.parametrize("state", ["done", "cancelled", "paused"])
def test_a_deleted_training_leaves_its_lora_and_what_it_cost_and_nothing_else(
    client: TestClient, worker: Worker, ask: Ask, state: str
) -> None:
    database, settings = client.app.state.studio.database, worker.settings
    job_id = ended(client, worker, ask, state, sample_prompts=["A secret zorb"])
    images = [picture["id"] for picture in look(client, job_id)["pictures"]]
    usage = client.get("/api/v1/system/usage").json()
    assert (settings.training_dir / job_id).is_dir()
    answer = client.delete(f"/api/v1/trainings/{job_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert not (settings.training_dir / job_id).exists()
    for path in (f"trainings/{job_id}", f"trainings/{job_id}/samples/16/0"):
        assert client.get(f"/api/v1/{path}").status_code == 404
    assert client.delete(f"/api/v1/trainings/{job_id}").status_code == 404
    assert client.get("/api/v1/trainings").json()["trainings"] == []
    assert [lora["ref"] for lora in client.get("/api/v1/loras").json()["loras"]] == ["zorb"] * (state == "done")
    assert client.get("/api/v1/system/usage").json() == usage
    job = client.get(f"/api/v1/jobs/{job_id}").json()
    assert (job["is_cleared"], job["recipe"]["prompt"], job["title"]) == (True, "", "zorb")
    assert job["state"] == ("cancelled" if state == "paused" else state)
    assert client.post(f"/api/v1/jobs/{job_id}/retry").status_code == 404
    assert client.post(f"/api/v1/trainings/{job_id}/continue").status_code == 404
    for table in ("training_points", "training_samples"):
        assert database.read(f"SELECT * FROM {table}") == []
    told = [event.kind for event in events.read_after(database, 0) if event.job_id == job_id]
    assert told[-1] == "training.deleted"
    log = "".join(event.data for event in events.read_after(database, 0))
    assert "A secret zorb" not in log and "A red zorb" not in log
    uploads.forget_unused(database, settings.uploads_dir, now_s=1e12)
    assert not any(uploads.read_upload(database, one) for one in images), "no job uses its pictures any more"


def test_a_training_that_waits_or_runs_is_not_deleted(client: TestClient, worker: Worker, ask: Ask) -> None:
    job_id = ask()
    answers = [client.delete(f"/api/v1/trainings/{job_id}")]
    interrupt(worker, 5, lambda: answers.append(client.delete(f"/api/v1/trainings/{job_id}")))
    worker.run_next()
    assert [answer.status_code for answer in answers] == [409, 409]
    assert "Cancel it first" in answers[0].json()["error"]["advice"]
    assert look(client, job_id)["job"]["state"] == "done"


def test_what_a_deleted_training_taught_of_time_stays(client: TestClient, worker: Worker, ask: Ask) -> None:
    job_id = ended(client, worker, ask, "done")
    before = client.get("/api/v1/trainings/choices").json()
    client.delete(f"/api/v1/trainings/{job_id}")
    assert client.get("/api/v1/trainings/choices").json() == before


def test_who_trained_a_lora_deletes_it_and_nobody_elses(  # noqa: PLR0917 - fixtures
    settings: Settings,
    database: Database,
    catalog: Catalog,
    client: TestClient,
    worker: Worker,
    upload: Callable[..., str],
    add_lora: Callable[..., Path],
) -> None:
    people = frozenset(("ada", "bob"))
    access = replace(settings.access, mode=Mode.PASSWORD, who_may_train=people)
    users = Users(settings.users_file)
    clients = {}
    api = create_api(replace(settings, access=access), database, replace(catalog, loras_dir=settings.loras_dir))
    for name in people:
        users.add(name, password=None, is_admin=False)
        clients[name] = TestClient(api, headers={"Authorization": f"Bearer {users.add_token(name)}"})
    ada, bob = clients["ada"], clients["bob"]
    add_lora("shared")
    asked = {"model": "demo-sdxl", "name": "zorb", "trigger": "zorb", "steps": 2}
    training = ada.post("/api/v1/trainings", json=asked | {"pictures": [{"id": upload(owner="ada")}]}).json()["id"]
    worker.run_next()

    def may_delete(who: TestClient) -> list[str]:
        return [lora["ref"] for lora in who.get("/api/v1/loras").json()["loras"] if lora["may_delete"]]

    assert (may_delete(ada), may_delete(bob), may_delete(client)) == (["zorb"], [], ["shared", "zorb"])
    assert bob.get("/api/v1/loras/zorb/file").status_code == 200, "everybody may use it"
    assert bob.delete(f"/api/v1/trainings/{training}").status_code == 404
    assert ada.delete(f"/api/v1/trainings/{training}").status_code == 204, "and the right to the LoRA stays"
    assert (bob.delete("/api/v1/loras/zorb").status_code, ada.delete("/api/v1/loras/shared").status_code) == (403, 403)
    assert ada.delete("/api/v1/loras/zorb").status_code == 204
    add_lora("zorb", title="Somebody else's")
    assert ada.delete("/api/v1/loras/zorb").status_code == 403


def test_a_taken_name_says_whose_lora_has_it_in_any_case_of_letters(
    client: TestClient, worker: Worker, ask: Ask, add_lora: Callable[..., Path]
) -> None:
    ask()
    worker.run_next()
    own = ask(expects=422, name="ZORB")["fields"]["name"]
    assert own == "your LoRA 'zorb' has this name: delete it first, or choose another name"
    add_lora("Shared")
    assert ask(expects=422, name="shared")["fields"]["name"] == "there is a LoRA 'Shared' already; choose another name"
    assert client.delete("/api/v1/loras/zorb").status_code == 204
    ask(name="ZORB")


def test_a_name_that_no_file_can_have_is_changed_and_told(client: TestClient, upload: Callable[..., str]) -> None:
    def send(name: str) -> Any:
        pictures = [{"id": upload("red"), "caption": "A zorb"}]
        answer = client.post("/api/v1/trainings", json={"model": "demo-sdxl", "name": name, "pictures": pictures})
        return answer.raise_for_status().json()

    changed, kept = send("a/b"), send(" odd one")
    assert (changed["name"], kept["name"]) == ("a_b", "odd one")
    notes = [look(client, training["id"])["job"]["notes"] for training in (changed, kept)]
    assert notes == [["The LoRA is called 'a_b': a file's name cannot have all that was asked for."], []]
