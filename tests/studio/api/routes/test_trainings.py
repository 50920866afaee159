"""Trainings over REST, with a worker that pretends: asked, run, paused, gone on with, ended."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipelines.files.metadata import read_recipe_of
from pipelines.models.catalog import Catalog, Shape
from studio import events
from studio.access.users import Users
from studio.access_settings import EVERYBODY, Mode
from studio.api.application import create_api
from studio.database import Database
from studio.jobs import claims, queue, trainings
from studio.jobs.line.places import read_places
from studio.jobs.states import JobState
from studio.library.records import read_output
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
    assert seen == {"0000.txt": "A red zorb", "0001.txt": "zorb"}
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
    assert ask(expects=422, strength="brutal")["fields"].keys() == {"strength"}
    ask(name="wanted")
    assert ask(expects=422, name="Wanted")["fields"].keys() == {"name"}


def test_pictures_of_other_things_are_made_first_and_their_time_is_told_apart(
    client: TestClient, worker: Worker, ask: Ask, submit: Callable[..., Any], catalog: Catalog
) -> None:
    model = catalog.get("demo-sdxl")
    heard: list[tuple[Any, ...]] = []

    def learn(lesson: Lesson) -> Learnt:
        heard.append((lesson.settings.prior_prompt, lesson.settings.preserve))
        return usual(replace(lesson, on_event=lambda event: (heard.append((event["event"],)), lesson.on_event(event))))

    usual, worker.learn = worker.learn, learn
    job_id = ask(prior_prompts=["auto", " A dog ", "A dog"], steps=2)
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
    assert (told["strengths"]["usual"]["seconds"] > 0, told["strengths"]["usual"]["alone"]["seconds"]) == (True, None)

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
    from studio.library import uploads

    job_id = ask()
    uploads.forget_unused(database, settings.uploads_dir, now_s=1e12)
    ids = [picture["id"] for picture in look(client, job_id)["pictures"]]
    assert all(uploads.read_upload(database, upload_id) for upload_id in ids)


def test_a_training_is_no_recipe(client: TestClient, ask: Ask) -> None:
    job_id = ask()
    assert client.patch(f"/api/v1/jobs/{job_id}", json={"steps": 3}).status_code == 409
    assert client.post(f"/api/v1/jobs/{job_id}/duplicate").status_code == 409


def test_what_a_training_takes_is_known_once_one_was_measured(client: TestClient, worker: Worker, ask: Ask) -> None:
    def read() -> Any:
        choices = client.get("/api/v1/trainings/choices").json()
        return next(model for model in choices["models"] if model["id"] == "demo-sdxl")["strengths"]["usual"]

    assert (read()["steps"], read()["seconds"]) == (500, None)
    ask()
    worker.run_next()
    assert read()["seconds"] > 0
    job_id = ask(name="other")
    assert look(client, job_id)["job"]["eta_s"] > 0


def test_models_that_cannot_learn_are_no_choice(client: TestClient, catalog: Catalog) -> None:
    ids = [model["id"] for model in client.get("/api/v1/trainings/choices").json()["models"]]
    assert "demo-sdxl" in ids
    assert "clips" not in ids
    assert not [model.id for model in catalog.models if model.min_images and model.id in ids]


@pytest.mark.parametrize(("allowed", "status"), [((), 403), (("ada",), 201), ((EVERYBODY,), 201)])
def test_where_people_log_in_only_those_who_were_named_train(  # noqa: PLR0917 - fixtures
    settings: Settings,
    database: Database,
    catalog: Catalog,
    upload: Callable[..., str],
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
