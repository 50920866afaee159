"""A worker's desk whose dispatcher is far away: jobs come in, everything that is told is an event with its attempt."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import Cancelled
from pipelines.messages import say
from pipelines.stages import Progress
from studio.cluster import protocol
from studio.cluster.protocol import Order
from studio.database import Database
from studio.jobs import claims
from studio.jobs.job import Job
from studio.jobs.workers import WorkerState
from tests.studio.cluster.machines import Machine

STEP = Progress(phase="denoising", done=1, total=2)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "two")
    machine.outbox.pull(machine.outbox.last, wait_s=0.0)
    return machine


@pytest.fixture
def claim(database: Database, submit: Callable[..., Job]) -> Callable[[], Job]:
    def claim() -> Job:
        submit()
        job = claims.claim_next(database, "two", resident=None)
        assert job is not None
        return job

    return claim


def order(job: Job) -> Order:
    return Order(job=protocol.write_job(job), history=[], inputs=[], loras=[])


def test_a_job_is_taken_once_in_turn_and_held_to_its_end(machine: Machine, claim: Callable[[], Job]) -> None:
    first, second = claim(), claim()
    assert (machine.begin(order(first)), machine.begin(order(second)), machine.begin(order(first))) == (
        True,
        True,
        False,
    )
    assert machine.desk.find_next_model(resident=None) == first.recipe.model
    assert [machine.take(), machine.take(), machine.take()] == [first, second, None]
    assert machine.desk.list_held() == [(first.id, 1), (second.id, 1)]
    machine.finish(first)
    assert machine.desk.list_held() == [(second.id, 1)]


def test_what_is_told_of_a_job_carries_its_attempt_and_its_files(machine: Machine, claim: Callable[[], Job]) -> None:
    job = claim()
    machine.begin(order(job))
    machine.desk.report(job, STEP, eta_s=2.0)
    machine.desk.save_preview(job, b"jpeg")
    machine.finish(job)
    told = machine.outbox.pull(0, wait_s=0.0)
    assert [(one.kind, one.claim) for one in told] == [
        ("progress", (job.id, 1)),
        ("preview", (job.id, 1)),
        ("done", (job.id, 1)),
    ]
    made = protocol.read_made(told[-1].data)
    assert set(told[-1].blobs) == {made.files[0].file, made.files[0].thumb}
    assert not list(machine.settings.outputs_dir.glob("*/*"))  # it is on its way


def test_a_cancelled_job_hears_of_it_and_its_result_is_kept_by_nobody(
    machine: Machine, claim: Callable[[], Job]
) -> None:
    job, other = claim(), claim()
    machine.begin(order(job))
    machine.cancel((job.id, 1))
    machine.cancel((other.id, 1))  # of which nothing is known here
    assert not machine.desk.report(job, STEP, eta_s=None)
    with pytest.raises(Cancelled):
        machine.finish(job)
    machine.begin(order(other))
    assert machine.desk.report(other, STEP, eta_s=None)


def test_an_announcement_tells_all_that_lasts(machine: Machine) -> None:
    desk = machine.desk
    desk.announce(WorkerState.STARTING, activity=say("starting"), pid=5, model="", device=say("nothing"))
    desk.announce(WorkerState.BUSY, activity=say("running a job"), error={"title": "t"}, phase="loading")
    desk.announce(WorkerState.READY, activity=say("ready"))
    (told,) = machine.outbox.pull(0, wait_s=0.0)
    assert {name: told.data[name] for name in ("state", "pid", "device")} == {
        "state": "ready",
        "pid": 5,
        "device": "nothing",
    }
    assert not {"error", "phase"} & told.data.keys()
    assert desk.engine == told.data


def test_a_batch_asks_for_company_and_runs_alone_when_nobody_answers(
    machine: Machine, claim: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = claim(), claim()
    machine.begin(order(first))
    assert machine.desk.claim_others(first, room=0) == []

    def answer() -> None:
        (asked,) = machine.outbox.pull(0, wait_s=5.0)
        assert (asked.kind, asked.data) == ("room", {"room": 3})
        assert machine.join_batch((first.id, 1), [order(second)])

    thread = threading.Thread(target=answer)
    thread.start()
    assert machine.desk.claim_others(first, room=3) == [second]
    thread.join()
    assert machine.desk.list_held() == [(first.id, 1), (second.id, 1)]
    monkeypatch.setattr("studio.cluster.outbox_desk.COMPANY_S", 0.01)
    assert machine.desk.claim_others(first, room=2) == []
    assert not machine.join_batch((first.id, 1), [order(second)])  # too late: nobody waits


def test_history_comes_with_the_order(machine: Machine, claim: Callable[[], Job]) -> None:
    job = claim()
    row: dict[str, Any] = {"model": job.recipe.model, "shape": "s", "batch_size": 1, "step_s": 2.0}
    machine.begin(Order(job=protocol.write_job(job), history=[row], inputs=[], loras=[]))
    assert [one.step_s for one in machine.desk.read_history().rows] == [2.0]
