"""The loop: what a step that is no number, a failing batch, a full disk and a stop do to a training."""

import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.errors import RecipeError
from pipelines.training.engine import loop
from pipelines.training.engine.compiled_steps import choose_profiled
from pipelines.training.engine.loop import MOST_SKIPPED, Cadence, DivergedError, Stop, count_steps_between, run_steps
from pipelines.training.engine.step import BINS, Metrics, TrainState
from pipelines.training.results.state import StateFolder


def _start() -> TrainState:
    return TrainState(jnp.zeros((), jnp.int32), {"w": jnp.zeros(4)}, (), {})


def _tell(skipped: int) -> Metrics:
    zeros = jnp.zeros(BINS)
    return Metrics(jnp.ones(()), jnp.ones(()), jnp.ones(()), zeros, zeros, jnp.asarray(skipped))


def _learn(state: TrainState, _frozen: Any, batch: Any, rate: np.float32) -> tuple[TrainState, Metrics]:
    skipped = batch["skipped"]
    moved = {"w": state.trained["w"] + (0 if skipped else rate)}
    return state._replace(step=state.step + 1, trained=moved), _tell(skipped)


def _run(
    folder: Path,
    *,
    make_batch: Any = lambda _step: {"skipped": 0},
    steps: int = 20,
    first: int = 0,
    on_event: Any = None,
    **given: Any,
):
    events: list[dict[str, Any]] = []
    states = StateFolder(folder / "state", keep=2)
    stop, prepare = given.pop("stop", Stop()), given.pop("prepare", lambda _state, _batch: False)
    try:
        state, done = run_steps(
            given.pop("step", _learn),
            given.pop("state", _start()),
            {},
            first=first,
            cadence=Cadence(steps=steps, save_every_s=given.pop("save_every_s", 1e6), **given),
            rates=np.ones(steps, np.float32),
            make_batch=make_batch,
            states=states,
            facts={"rank": 4},
            stop=stop,
            on_event=on_event or events.append,
            prepare=prepare,
        )
    finally:
        states.close()
    return state, done, events


@dataclass
class _Order:
    """What came when, and the seconds of each step."""

    order: list[str]
    seconds: list[float] = field(default_factory=list[float])

    def hear(self, event: dict[str, Any]) -> None:
        if event["event"] == "step":
            self.order.append(f"step {event['step']}")
            self.seconds.append(event["seconds"])


def test_every_step_is_told_in_order_although_late(tmp_path: Path) -> None:
    state, done, events = _run(tmp_path)
    assert (done, int(state.step), float(state.trained["w"][0])) == (20, 20, 20.0)
    assert [event["step"] for event in events if event["event"] == "step"] == [*range(1, 21)]


def test_what_is_done_after_a_step_comes_after_what_it_tells(tmp_path: Path) -> None:
    order: list[str] = []
    told = _Order(order)
    _run(tmp_path, steps=6, between={2: (lambda done, _state: order.append(f"sample {done}"),)}, on_event=told.hear)
    assert order == ["step 1", "step 2", "sample 2", "step 3", "step 4", "sample 4", "step 5", "step 6", "sample 6"]
    assert all(seconds >= 0 for seconds in told.seconds)


def test_ten_steps_in_a_row_that_are_no_numbers_stop_it(tmp_path: Path) -> None:
    with pytest.raises(DivergedError) as told:
        _run(tmp_path, make_batch=lambda step: {"skipped": max(0, step - 2)})
    assert f"{MOST_SKIPPED} steps in a row" in str(told.value)


def test_single_steps_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    _, _, events = _run(tmp_path, make_batch=lambda step: {"skipped": int(step % 5 == 0)})
    assert [event["skipped"] for event in events if event["event"] == "step"][-1] == 4


def test_a_failing_batch_ends_it_with_its_own_error(tmp_path: Path) -> None:
    def fail(step: int) -> dict[str, int]:
        if step == 3:
            raise OSError("the disk is gone")
        return {"skipped": 0}

    with pytest.raises(OSError, match="the disk is gone"):
        _run(tmp_path, make_batch=fail)


def test_a_stop_saves_and_the_next_run_goes_on(tmp_path: Path) -> None:
    stop = Stop()
    asked = lambda done, _state: stop.ask("test") if done == 7 else None  # noqa: E731
    state, done, _ = _run(tmp_path, stop=stop, between={1: (asked,)})
    assert done in (7, 8)

    states = StateFolder(tmp_path / "state", keep=2)
    found = states.load(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state), {"rank": 4})
    assert int(found.step) == done
    np.testing.assert_array_equal(found.trained["w"], state.trained["w"])
    with pytest.raises(RecipeError, match="another output folder"):
        states.load(found, {"rank": 8})
    states.close()


def test_a_time_limit_stops_it_before_its_first_step(tmp_path: Path) -> None:
    stop = Stop()
    stop.limit(0.0)
    _, done, events = _run(tmp_path, stop=stop)
    assert (done, stop.reason, events) == (0, "time limit", [])


def test_a_stop_while_a_step_is_compiled_is_heard_before_that_step(tmp_path: Path) -> None:
    stop = Stop()

    def prepare(state: TrainState, _batch: Any) -> bool:
        is_new = int(state.step) in (0, 5)  # another size comes later
        if int(state.step) == 5:
            stop.ask("test")
        return is_new

    _, done, events = _run(tmp_path, stop=stop, prepare=prepare)
    assert done == 5
    assert [event["step"] for event in events if event["event"] == "saved"] == [5]


def test_what_is_owed_comes_first_and_a_stop_at_the_last_step_leaves_nothing_owed(tmp_path: Path) -> None:
    stop, done_after = Stop(), list[tuple[str, int]]()

    def note(done: int, _state: TrainState) -> None:
        done_after.append(("duty", done))

    def learn(state: TrainState, *given: Any) -> tuple[TrainState, Metrics]:
        done_after.append(("step", int(state.step) + 1))
        if int(state.step) == 3:
            stop.ask("test")
        return _learn(state, *given)

    _, done, events = _run(tmp_path, steps=4, step=learn, stop=stop, owed=(note,), between={2: (note,)})

    assert done == 4
    assert done_after == [
        ("duty", 0), ("step", 1), ("step", 2), ("duty", 2), ("step", 3), ("step", 4), ("duty", 4),
    ]  # fmt: skip
    assert [event["step"] for event in events if event["event"] == "saved"] == [4]


def test_states_are_saved_as_time_passes(tmp_path: Path) -> None:
    _, _, events = _run(tmp_path, steps=3, save_every_s=-1.0)
    assert [event["step"] for event in events if event["event"] == "saved"] == [1, 2, 3]


def test_what_is_no_number_is_none_in_events(tmp_path: Path) -> None:
    def learn(state: TrainState, *given: Any) -> tuple[TrainState, Metrics]:
        state, metrics = _learn(state, *given)
        broken, ones = jnp.full((), jnp.nan), jnp.ones(BINS)
        return state, metrics._replace(loss=broken, gradient_norm=jnp.inf * broken, losses=broken * ones, counts=ones)

    _, _, events = _run(tmp_path, steps=1, step=learn)

    (event,) = (event for event in events if event["event"] == "step")
    assert (event["loss"], event["gradient_norm"], event["update_norm"]) == (None, None, 1.0)
    assert event["losses_by_noise"] == [None] * BINS
    json.dumps(events, allow_nan=False)


@pytest.mark.parametrize(("step_s", "steps"), [(0.001, 10), (0.5, 10), (1.0, 5), (8.0, 1), (0.0, 10)])
def test_hosts_ask_each_other_every_five_seconds_or_ten_steps(step_s: float, steps: int) -> None:
    assert count_steps_between(step_s) == steps


@contextmanager
def _refusing_large_files() -> Iterator[None]:
    """A disk that takes no more, which is told as a file that is too large: Python ignores the signal of it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_state_that_the_disk_refuses_is_told_and_the_next_one_is_saved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    noise = jnp.asarray(np.random.default_rng(0).normal(size=500_000), jnp.float32)
    state = TrainState(jnp.zeros((), jnp.int32), {"w": noise}, (), {})
    states = StateFolder(tmp_path / "state", keep=2)
    with _refusing_large_files():
        states.save(1, state, {})
        with pytest.raises(OSError, match="too large"):
            states.wait()
    assert (states.newest, [*(tmp_path / "state").iterdir()]) == (None, [])
    states.save(2, state, {})
    states.wait()
    states.close()
    assert states.newest == 2
    assert "Traceback" not in capfd.readouterr().err


def test_a_full_disk_does_not_end_a_training(tmp_path: Path) -> None:
    noise = jnp.asarray(np.random.default_rng(0).normal(size=500_000), jnp.float32)
    state = TrainState(jnp.zeros((), jnp.int32), {"w": noise}, (), {})
    with _refusing_large_files():
        _, done, events = _run(tmp_path, state=state, save_every_s=0.0, steps=4)
    notes = [str(event["text"]) for event in events if event["event"] == "note"]
    assert done == 4
    assert notes and all("could not be saved" in note for note in notes)
    assert "goes on from the one before" not in notes[0] and "does so from the one before" in notes[-1]


@pytest.mark.parametrize(("count", "first"), [(100, 10), (14, 10), (12, 8), (4, 1), (1, 1)])
def test_a_profile_begins_where_enough_steps_follow(count: int, first: int) -> None:
    assert choose_profiled(count) == first


def test_the_host_that_was_told_to_stop_is_named_with_the_reason() -> None:
    own, other = Stop(), Stop()
    assert not own.hear([[False, ""], [False, ""]]) and not own.is_asked
    assert own.hear([[False, ""], [True, "SIGTERM"]]) and own.reason == "SIGTERM, host 1"
    assert other.hear([[True, "time limit"], [False, ""]]) and other.reason == "time limit"


def test_a_stop_that_is_heard_while_hosts_ask_each_other_waits_for_the_next_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = loop.Stop()

    def collect(_name: str, told: Sequence[Any]) -> list[Any]:
        stop.ask("SIGTERM")  # after this host has told the others
        return [told, [False, "", *told[2:]]]

    monkeypatch.setattr(loop.hosts, "count", lambda: 2)
    monkeypatch.setattr(loop.hosts, "collect", collect)
    agreement = loop._Agreement(stop=stop, first=0)
    assert not agreement.ask("before the first step") and stop.is_asked
    assert agreement.ask("before the next")
    other = loop.Stop()
    monkeypatch.setattr(loop.hosts, "collect", lambda _name, told: other.ask("SIGTERM") or [told])
    assert loop._Agreement(stop=other, first=0).ask_after(1, is_time=False) == (False, False)
