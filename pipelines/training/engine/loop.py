"""The training loop: batches are prepared ahead, losses are read late, states are saved as time passes, stops are kept.

The host never waits for the devices within a step: it reads the metrics of two steps ago, which are done by then. A
stop (SIGTERM, Ctrl+C, the studio, a time limit) ends after the step under way, saved, or before the first one when it
came while that was compiled; the next run goes on there, with what was still to be done between steps.
Not here: what a step computes (step.py), what a batch is (rows.py).
"""

import math
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from pipelines.errors import LumeshError
from pipelines.messages import Message, say
from pipelines.runtime.devices import hosts
from pipelines.training.engine.step import Metrics, TrainState
from pipelines.training.results.state import StateFolder
from pipelines.training.stop import Stop as Stop

LATE = 2
"""Steps after which metrics are read."""
MOST_SKIPPED = 10
"""Steps in a row without finite gradients after which training stops."""
AGREE_EVERY = 10
"""Steps after which several hosts ask each other whether one of them was told to stop, at the most."""
AGREE_S = 5.0
"""Seconds after which they do, at the most: a machine that is taken away leaves half a minute."""

Duty = Callable[[int, TrainState], None]
"""A task after a step: it is given the number of steps done and the state."""
OnEvent = Callable[[dict[str, Any]], None]
"""Called with {"event": name, ...}: step, sample, validation, saved, note, stopped, done."""


class DivergedError(LumeshError):
    """A training whose gradients are no numbers any more; a state on disk may be from before, or from the way there."""

    title = say("The training diverged")


@contextmanager
def stopping_on_signals(stop: Stop) -> Iterator[None]:
    """Context in which SIGTERM and Ctrl+C ask to stop; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = (signal.SIGTERM, signal.SIGINT)
    before = {name: signal.getsignal(name) for name in names}

    def ask(number: int, _frame: Any) -> None:
        stop.ask(signal.Signals(number).name)
        for name, handler in before.items():
            signal.signal(name, handler)

    for name in names:
        signal.signal(name, ask)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """When what is done; `between` maps a number of steps to duties, called with the step and the state.

    `owed` are those after the first step of this run, which the run before was stopped at: they come before all.
    """

    steps: int
    save_every_s: float
    between: Mapping[int, tuple[Duty, ...]] = field(default_factory=dict)
    owed: tuple[Duty, ...] = ()


def run_steps(
    step: Callable[..., tuple[TrainState, Metrics]],
    state: TrainState,
    frozen: Any,
    *,
    first: int,
    cadence: Cadence,
    rates: np.ndarray,
    make_batch: Callable[[int], Mapping[str, Any]],
    states: StateFolder,
    facts: Mapping[str, Any],
    stop: Stop,
    on_event: OnEvent,
    prepare: Callable[[TrainState, Any], bool] = lambda _state, _batch: False,
) -> tuple[TrainState, int]:
    """Runs steps `first` to `cadence.steps`, or until a stop; returns the state and the number of steps done.

    `step` chooses the program by the batch; `prepare` compiles it before, and tells whether there was anything to
    compile. A stop at the last step comes too late, as all that is left are its duties. Raises DivergedError, and
    whatever `make_batch` raises.
    """
    saver = _Saver(states=states, facts=facts, on_event=on_event, every_s=cadence.save_every_s, last=first)
    done = first
    teller = _Teller(rates=rates, steps=cadence.steps, on_event=on_event)
    agreement = _Agreement(stop=stop, first=first)
    if cadence.owed and (done >= cadence.steps or not agreement.ask(f"step {done}, before what is owed")):
        for duty in cadence.owed:
            duty(done, state)
        teller.start_clock()
    with _prefetch(make_batch, first, cadence.steps) as batches:
        for number, batch in batches:
            if number == first and agreement.ask(f"step {done}, before the next"):
                break
            if prepare(state, batch) and agreement.ask(f"step {done}, the next is compiled"):
                break
            state, metrics = step(state, frozen, batch, np.float32(rates[number]))
            done = number + 1
            teller.add(done, metrics)
            is_over, is_time = agreement.ask_after(done, is_time=saver.is_time)
            if is_over and done < cadence.steps:
                break
            if is_over or (is_time and done < cadence.steps):
                saver.save(done, state)
            if due := [duty for every, duties in cadence.between.items() if done % every == 0 for duty in duties]:
                teller.tell_all()  # events come in the order of steps
                for duty in due:
                    duty(done, state)
                teller.start_clock()
    teller.tell_all()
    saver.finish(done, state)
    return state, done


def keep_finite(value: Any) -> float | None:
    """Returns a number that events can carry: JSON has none for NaN and infinity, which are None."""
    number = float(value)
    return number if math.isfinite(number) else None


@dataclass(kw_only=True)
class _Teller:
    """Tells steps' metrics some steps late, and counts those that were skipped."""

    rates: np.ndarray
    steps: int
    on_event: OnEvent
    waiting: deque[tuple[int, Metrics]] = field(default_factory=deque[tuple[int, Metrics]])
    skipped: int = 0
    last_in_a_row: int = 0
    _told_s: float = field(default_factory=time.monotonic)

    def add(self, done: int, metrics: Metrics) -> None:
        """Takes the metrics of the step that was just started, and tells those of `LATE` steps ago."""
        self.waiting.append((done, metrics))
        if len(self.waiting) > LATE:
            self.tell()

    def start_clock(self) -> None:
        """Begins the next step's seconds now: what was done between steps is none of them."""
        self._told_s = time.monotonic()

    def tell_all(self) -> None:
        """Waits for all steps that were started, and tells them."""
        while self.waiting:
            self.tell()

    def tell(self) -> None:
        """Reads and tells the oldest; raises DivergedError after too many steps in a row that were no numbers."""
        done, metrics = self.waiting.popleft()
        values = jax.tree.map(hosts.fetch, metrics)
        in_a_row = int(values.skipped)
        self.skipped += in_a_row > self.last_in_a_row
        self.last_in_a_row = in_a_row
        before_s, self._told_s = self._told_s, time.monotonic()
        self.on_event(
            {
                "event": "step",
                "step": done,
                "steps": self.steps,
                "loss": keep_finite(values.loss),
                "learning_rate": float(self.rates[done - 1]),
                "gradient_norm": keep_finite(values.gradient_norm),
                "update_norm": keep_finite(values.update_norm),
                "losses_by_noise": [
                    keep_finite(loss / count) if count else None
                    for loss, count in zip(values.losses, values.counts, strict=True)
                ],
                "skipped": self.skipped,
                "seconds": round(self._told_s - before_s, 4),
            }
        )
        if in_a_row >= MOST_SKIPPED:
            raise DivergedError(
                say(
                    "{count} steps in a row had gradients that are no numbers, the last was step {step}.",
                    count=in_a_row,
                    step=done,
                ),
                advice=say(
                    "Run it again with a lower learning rate. It goes on from the last state, if one was saved; where "
                    "that does not help, its weights had left their place by then: begin in another output folder."
                ),
            )


@dataclass(kw_only=True)
class _Agreement:
    """What hosts ask each other: all must stop after one step, and all save if the first one does.

    A single host asks nobody. How many steps there are between two questions follows from what the last ones took on
    the slowest host, and so is the same on all.
    """

    stop: Stop
    first: int
    _next: int = 0
    _asked_after: int = 0
    _asked_s: float = 0.0

    def __post_init__(self) -> None:
        self._start(self.first, every=1)

    def ask(self, name: str) -> bool:
        """Returns whether to stop here, before a step."""
        if hosts.count() == 1:
            return self.stop.is_asked
        return self._hear(hosts.collect(name, [self.stop.is_asked, self.stop.reason]))

    def ask_after(self, done: int, *, is_time: bool) -> tuple[bool, bool]:
        """Returns whether to stop after so many steps, and whether to save."""
        if hosts.count() == 1:
            return self.stop.is_asked, is_time
        if done < self._next:
            return False, False
        step_s = (time.monotonic() - self._asked_s) / (done - self._asked_after)
        found = hosts.collect(f"step {done}", [self.stop.is_asked, self.stop.reason, is_time, step_s])
        is_over = self._hear(found)
        slowest_s = max(step_s for _, _, _, step_s in found)
        self._start(done, every=count_steps_between(slowest_s))
        return is_over, found[0][2]

    def _start(self, done: int, *, every: int) -> None:
        self._next, self._asked_after, self._asked_s = done + every, done, time.monotonic()

    def _hear(self, found: Sequence[Sequence[Any]]) -> bool:
        """Returns whether a host said that it was told to stop; what one hears since then counts at the next question.

        Otherwise it would leave alone, and the others wait for it.
        """
        for number, (is_asked, reason, *_) in enumerate(found):
            if is_asked:
                self.stop.ask(reason if number == 0 else f"{reason}, host {number}")
        return any(is_asked for is_asked, *_ in found)


def count_steps_between(step_s: float) -> int:
    """Returns after how many steps of so many seconds hosts ask each other again."""
    return max(1, min(AGREE_EVERY, int(AGREE_S / max(step_s, 1e-9))))


@dataclass(kw_only=True)
class _Saver:
    """Saves states; a disk that is full is told, and training goes on.

    They are written in the background: that the disk refused one is known when the next is to be saved. A state of
    several hosts is one only where all have written their parts, so all take it as lost where one of them had to.
    """

    states: StateFolder
    facts: Mapping[str, Any]
    on_event: OnEvent
    every_s: float
    last: int
    _saved_s: float = field(default_factory=time.monotonic)

    @property
    def is_time(self) -> bool:
        return time.monotonic() - self._saved_s > self.every_s

    def save(self, done: int, state: TrainState, *, is_last: bool = False) -> None:
        """Starts to save the state after so many steps, if that was not the last one saved."""
        if done == self.last:
            return
        self._saved_s = time.monotonic()
        self._attempt(self.states.wait, _tell_lost)
        is_begun = self._attempt(
            lambda: self.states.save(done, state, self.facts), _tell_last_lost if is_last else _tell_lost
        )
        if all(hosts.collect(f"the state of step {done}", is_begun)):
            self.last = done
            self.on_event({"event": "saved", "step": done})

    def finish(self, done: int, state: TrainState) -> None:
        """Saves the last state, and returns when it is on disk or the disk has refused it."""
        if done == self.last:
            is_kept = self._attempt(self.states.wait, _tell_last_lost)
            if all(hosts.collect("the last state", is_kept)):
                return
        self.last = -1
        self.save(done, state, is_last=True)
        if self.last == done:
            self._attempt(self.states.wait, _tell_last_lost)

    def _attempt(self, act: Callable[[], None], tell_lost: Callable[[OSError], Message]) -> bool:
        """Returns whether the disk took it, and says what is lost where not."""
        try:
            act()
        except OSError as error:
            self.on_event({"event": "note", "text": tell_lost(error)})
            return False
        return True


def _tell_lost(error: OSError) -> Message:
    return say("The state could not be saved: {error}. Training goes on.", error=error)


def _tell_last_lost(error: OSError) -> Message:
    return say(
        "The last state could not be saved: {error}. Who goes on later does so from the one before.", error=error
    )


@contextmanager
def _prefetch(
    make_batch: Callable[[int], Mapping[str, Any]], first: int, steps: int
) -> Iterator[Iterator[tuple[int, Mapping[str, Any]]]]:
    """Gives an iterator over batches that a thread makes ahead, while the devices work on the one before."""
    made: queue.Queue[Any] = queue.Queue(maxsize=2)
    is_over = threading.Event()

    def put(item: Any) -> bool:
        while not is_over.is_set():
            try:
                made.put(item, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        for number in range(first, steps):
            try:
                item: Any = (number, make_batch(number))
            except Exception as error:  # noqa: BLE001 - raised where batches are taken
                item = error
            if not put(item) or isinstance(item, Exception):
                return

    def take() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for _ in range(first, steps):
            item = made.get()
            if isinstance(item, Exception):
                raise item
            yield item

    thread = threading.Thread(target=make, name="make-batches", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        is_over.set()
        thread.join()
