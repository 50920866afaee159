"""A worker's events wait until they are stored; of those whose age matters only the newest does."""

import threading
import time

import pytest

from studio.cluster import outbox as outboxes
from studio.cluster.outbox import Outbox


def read(outbox: Outbox, after: int) -> list[tuple[int, str]]:
    return [(told.number, told.kind) for told in outbox.pull(after, wait_s=0.0)]


def test_events_stay_until_a_pull_names_them() -> None:
    outbox = Outbox()
    for step in range(3):
        outbox.put("progress", ("a", 1), {"done": step})
    assert read(outbox, 0) == read(outbox, 0) == [(1, "progress"), (2, "progress"), (3, "progress")]
    assert read(outbox, 2) == [(3, "progress")]
    assert read(outbox, 0) == [(3, "progress")]  # what was acknowledged is gone
    assert not outbox.is_empty  # so far as the worker knows, nobody stored the last one
    assert (read(outbox, 3), outbox.last) == ([], 3)
    assert outbox.is_empty


def test_a_preview_replaces_the_one_of_its_job_that_nobody_pulled() -> None:
    outbox = Outbox()
    outbox.put("preview", ("a", 1), {}, {"jpeg": b"old"})
    outbox.put("preview", ("b", 1), {}, {"jpeg": b"other"})
    outbox.put("progress", ("a", 1), {})
    outbox.put("preview", ("a", 1), {}, {"jpeg": b"new"})
    told = outbox.pull(0, wait_s=0.0)
    assert [(one.number, one.claim, one.blobs.get("jpeg")) for one in told] == [
        (2, ("b", 1), b"other"),
        (3, ("a", 1), None),
        (4, ("a", 1), b"new"),
    ]


def test_a_pull_waits_for_the_next_event_and_no_longer_than_it_was_told() -> None:
    outbox = Outbox()
    began_s = time.monotonic()
    assert outbox.pull(0, wait_s=0.05) == []
    assert time.monotonic() - began_s < 1.0
    threading.Timer(0.05, outbox.put, args=("turn", None, {})).start()
    assert [told.kind for told in outbox.pull(0, wait_s=10.0)] == ["turn"]
    assert time.monotonic() - began_s < 5.0


def test_steps_that_follow_fast_are_sent_together_and_an_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "EVERY_S", every_s := 1.0)
    monkeypatch.setattr(outboxes, "SAVED", 0)
    outbox = Outbox()
    outbox.put("progress", ("a", 1), {"done": 1})
    assert [told.number for told in outbox.pull(0, wait_s=10.0)] == [1]
    began_s = time.monotonic()
    outbox.put("progress", ("a", 1), {"done": 2})
    threading.Timer(every_s / 10, outbox.put, args=("progress", ("a", 1), {"done": 3})).start()
    assert [told.number for told in outbox.pull(1, wait_s=10.0)] == [2, 3]
    assert time.monotonic() - began_s > every_s / 2
    outbox.put("done", ("a", 1), {})
    assert [told.number for told in outbox.pull(3, wait_s=10.0)] == [4]
    outbox.put("progress", ("b", 1), {"done": 1})
    assert [told.number for told in outbox.pull(4, wait_s=0.0)] == [5], "no longer than for the first one"


def test_steps_that_come_seldom_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "EVERY_S", 100.0)
    outbox = Outbox()
    began_s = time.monotonic()
    for step in range(outboxes.SAVED + 1):
        outbox.put("progress", ("a", 1), {"done": step})
        assert len(outbox.pull(step, wait_s=10.0)) == 1
    assert time.monotonic() - began_s < 5.0


def test_the_end_of_a_job_takes_the_end_of_the_turn_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "COMPANY_S", 10.0)
    outbox = Outbox()
    outbox.put("done", ("a", 1), {})
    for kind in ("engine", "turn"):
        threading.Timer(0.05, outbox.put, args=(kind, None, {})).start()
    began_s = time.monotonic()
    assert {told.kind for told in outbox.pull(0, wait_s=10.0)} >= {"done", "turn"}
    assert time.monotonic() - began_s < 5.0
