"""The training loop: batches are prepared ahead, losses are read late, states are saved as time passes, stops are kept.

The host never waits for the devices within a step: it reads the metrics of two steps ago, which are done by then. A
stop (SIGTERM, Ctrl+C, the studio, a time limit) ends after the step under way, saved; the next run goes on there.
Not here: what a step computes (step.py), what a batch is (rows.py).
"""

import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from pipelines.errors import LumeshError
from pipelines.messages import say
from pipelines.runtime.devices import hosts
from pipelines.training.engine.step import Metrics, TrainState
from pipelines.training.results.state import StateFolder
from pipelines.training.stop import Stop as Stop

LATE = 2
"""Steps after which metrics are read."""
MOST_SKIPPED = 10
"""Steps in a row without finite gradients after which training stops."""
AGREE_EVERY = 10
"""Steps after which several hosts ask each other whether one of them was told to stop."""

OnEvent = Callable[[dict[str, Any]], None]
"""Called with {"event": name, ...}: step, sample, validation, saved, note, stopped, done."""


class DivergedError(LumeshError):
    """A training whose gradients are no numbers any more; its last state on disk is from before."""

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
    """When what is done; `between` maps a number of steps to duties, called with the step and the state."""

    steps: int
    save_every_s: float
    between: Mapping[int, tuple[Callable[[int, TrainState], None], ...]] = field(default_factory=dict)


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
) -> tuple[TrainState, int]:
    """Runs steps `first` to `cadence.steps`, or until a stop; returns the state and the number of steps done.

    `step` chooses the program by the batch. Raises DivergedError, and whatever `make_batch` raises.
    """
    saved = time.monotonic()
    done = first
    teller = _Teller(rates=rates, steps=cadence.steps, on_event=on_event)
    with _prefetch(make_batch, first, cadence.steps) as batches:
        for number, batch in batches:
            state, metrics = step(state, frozen, batch, np.float32(rates[number]))
            done = number + 1
            teller.add(done, metrics)
            is_time = time.monotonic() - saved > cadence.save_every_s
            is_over, is_time = _agree(stop, done, is_time=is_time)
            if is_over:
                break
            if is_time and done < cadence.steps:
                _save(states, done, state, facts, on_event)
                saved = time.monotonic()
            for every, duties in cadence.between.items():
                if done % every == 0:
                    for duty in duties:
                        duty(done, state)
    while teller.waiting:
        teller.tell()
    _save(states, done, state, facts, on_event, is_last=True)
    return state, done


@dataclass(kw_only=True)
class _Teller:
    """Tells steps' metrics some steps late, and counts those that were skipped."""

    rates: np.ndarray
    steps: int
    on_event: OnEvent
    waiting: deque[tuple[int, Metrics]] = field(default_factory=deque[tuple[int, Metrics]])
    skipped: int = 0
    last_in_a_row: int = 0

    def add(self, done: int, metrics: Metrics) -> None:
        """Takes the metrics of the step that was just started, and tells those of `LATE` steps ago."""
        self.waiting.append((done, metrics))
        if len(self.waiting) > LATE:
            self.tell()

    def tell(self) -> None:
        """Reads and tells the oldest; raises DivergedError after too many steps in a row that were no numbers."""
        done, metrics = self.waiting.popleft()
        values = jax.tree.map(hosts.fetch, metrics)
        in_a_row = int(values.skipped)
        self.skipped += in_a_row > self.last_in_a_row
        self.last_in_a_row = in_a_row
        self.on_event(
            {
                "event": "step",
                "step": done,
                "steps": self.steps,
                "loss": float(values.loss),
                "learning_rate": float(self.rates[done - 1]),
                "gradient_norm": float(values.gradient_norm),
                "update_norm": float(values.update_norm),
                "losses_by_noise": [
                    float(loss / count) if count else None
                    for loss, count in zip(values.losses, values.counts, strict=True)
                ],
                "skipped": self.skipped,
            }
        )
        if in_a_row >= MOST_SKIPPED:
            raise DivergedError(
                say(
                    "{count} steps in a row had gradients that are no numbers, the last was step {step}.",
                    count=in_a_row,
                    step=done,
                ),
                advice=say("Run it again with a lower learning rate; it goes on from the last good state."),
            )


def _agree(stop: Stop, done: int, *, is_time: bool) -> tuple[bool, bool]:
    """Returns whether to stop here, and whether to save.

    Several hosts ask each other now and then: all must stop after one step, and all save if the first one does.
    """
    if hosts.count() == 1:
        return stop.is_asked, is_time
    if done % AGREE_EVERY:
        return False, False
    found = hosts.collect(f"step {done}", [stop.is_asked, stop.reason, is_time])
    for number, (is_asked, reason, _) in enumerate(found):
        if is_asked:
            stop.ask(reason if number == 0 else f"{reason}, host {number}")
    return stop.is_asked, found[0][2]


def _save(
    states: StateFolder,
    done: int,
    state: TrainState,
    facts: Mapping[str, Any],
    on_event: OnEvent,
    *,
    is_last: bool = False,
) -> None:
    """Starts to save, and waits for it if it `is_last`; a disk that is full is told, and training goes on.

    States are written in the background: that the disk refused one is known when the next is to be saved.
    """

    def attempt(act: Callable[[], None]) -> bool:
        try:
            act()
        except OSError as error:
            text = say("The state could not be saved: {error}. Training goes on.", error=error)
            if is_last:
                text = say(
                    "The last state could not be saved: {error}. Who goes on later does so from the one before.",
                    error=error,
                )
            on_event({"event": "note", "text": text})
            return False
        return True

    attempt(states.wait)
    if attempt(lambda: states.save(done, state, facts)) and (not is_last or attempt(states.wait)):
        on_event({"event": "saved", "step": done})


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
