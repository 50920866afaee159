"""The dispatcher is kept alive by the app, and what its workers held is settled when the app stops."""

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.messages import english, say
from studio.cluster import head_file
from studio.cluster import keeper as module
from studio.cluster.head_file import HeadProcess
from studio.cluster.keeper import Keeper, NoRayError
from studio.database import Database
from studio.jobs import claims, queue, workers
from studio.jobs.job import Card, Job
from studio.jobs.states import JobState
from studio.jobs.workers import WorkerState
from studio.services.condition import Condition
from studio.settings import Settings
from studio.worker import CANNOT_START_CODE


@pytest.fixture
def keeper(settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """One whose dispatchers end at once."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setattr(module, "FIRST_DELAY_S", 0.01)
    keeper = Keeper(settings, database, Condition(), environment={})
    monkeypatch.setattr(keeper, "_run", lambda: 1)
    return keeper


def test_without_ray_the_start_says_what_to_install(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(NoRayError) as raised:
        keeper.start()
    assert "requirements-cluster.txt" in str(raised.value.advice)


def test_a_dispatcher_that_ends_is_started_again_and_the_studio_says_so(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]
) -> None:
    starts: list[float] = []

    def run() -> int:
        starts.append(time.monotonic())
        return 1

    monkeypatch.setattr(keeper, "_run", run)
    keeper.start()
    try:
        wait_for("three starts", lambda: len(starts) >= 3)
    finally:
        keeper.stop()
    count = len(starts)
    time.sleep(0.1)
    assert len(starts) == count
    assert [card.title for card in keeper._condition.list_cards()] == ["The dispatcher ended"]


def test_a_dispatcher_that_cannot_start_says_why(
    keeper: Keeper, settings: Settings, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]
) -> None:
    settings.dispatcher_error_file.parent.mkdir()
    card = Card(title=english("Taken"), detail=english("Another program listens."), advice=english("Choose another."))
    settings.dispatcher_error_file.write_text(json.dumps(card.to_json()), "utf-8")
    monkeypatch.setattr(keeper, "_run", lambda: CANNOT_START_CODE)
    keeper.start()
    try:
        wait_for("the reason", keeper._condition.list_cards)
    finally:
        keeper.stop()
    assert keeper._condition.list_cards() == [card]


@pytest.mark.parametrize(("finish_s", "state"), [(None, JobState.INTERRUPTED), (0.0, JobState.QUEUED)])
def test_what_still_runs_at_the_end_is_interrupted_or_waits_for_the_next_start(
    keeper: Keeper, database: Database, submit: Callable[..., Job], *, finish_s: float | None, state: JobState
) -> None:
    job = submit()
    with database.write() as tx:
        workers.describe(tx, "two", WorkerState.BUSY, activity=say("running a job"), pid=5, epoch="first")
    assert claims.claim_next(database, "two", resident=None)
    keeper.start()
    keeper.stop(finish_s=finish_s)
    found, row = queue.read_job(database, job.id), workers.read_worker(database, "two")
    assert found is not None
    assert found.state is state
    assert (row.state, row.pid) == (WorkerState.STOPPED, None)


@pytest.mark.process
def test_a_head_without_a_dispatcher_ends_with_the_app(keeper: Keeper, settings: Settings) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, start_new_session=True) as head:
        head_file.write(settings, HeadProcess(pid=head.pid, address="10.0.0.1:6379"))
        assert settings.read_ray_address() == "10.0.0.1:6379"
        keeper.start()
        keeper.stop()
        assert head.wait(10.0) == -signal.SIGTERM
    assert settings.read_ray_address() is None
