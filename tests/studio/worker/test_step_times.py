"""What a training's steps and samples take, whatever lies between them."""

import pytest

from studio.worker.step_times import StepTimes


class Clock:
    """Steps of one second, with breaks between them."""

    def __init__(self) -> None:
        self.times = StepTimes()
        self.now_s = 100.0

    def step(self, count: int = 1, *, takes_s: float = 1.0) -> None:
        for _ in range(count):
            self.now_s += takes_s
            self.times.hear_step(self.now_s)

    def rest(self, *what: str, takes_s: float) -> None:
        """A break, after which the steps that were told late come at once (pipelines/training/engine/loop.py)."""
        for name in what:
            self.times.hear_break(name)
        self.now_s += takes_s
        self.step(2, takes_s=0.0)

    def left_s(self, *, steps: int = 0, samples: int = 0) -> float | None:
        return self.times.estimate_left_s(steps=steps, samples=samples, now_s=self.now_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_steps_that_compiled_or_made_samples_are_not_counted_as_steps(clock: Clock) -> None:
    clock.times.hear_break("compiling")
    clock.step(2)
    clock.rest("compiling", takes_s=60)
    clock.step(3)
    clock.rest("saved", takes_s=5)
    clock.rest("compiling", "sampling", "sample", takes_s=90)
    clock.step(4)
    assert clock.times.step_s == pytest.approx(1.0)
    assert clock.left_s(steps=100) == pytest.approx(100)


def test_nothing_is_told_before_enough_steps_were_heard(clock: Clock) -> None:
    clock.times.hear_break("compiling")
    clock.step(6)
    assert (clock.times.step_s, clock.left_s(steps=100)) == (1.0, None)
    clock.step()
    assert clock.left_s(steps=100) == 100


def test_samples_still_to_come_are_counted_without_what_was_compiled_for_the_first(clock: Clock) -> None:
    clock.step(10)
    clock.rest("compiling", "sample", takes_s=60)
    assert clock.left_s(steps=10, samples=3) == 10
    clock.step(10)
    clock.rest("sampling", "sample", takes_s=8)
    assert clock.left_s(steps=10, samples=3) == pytest.approx(10 + 3 * 7)


def test_the_time_left_goes_down_while_samples_are_made(clock: Clock) -> None:
    clock.step(10)
    clock.rest("sample", takes_s=9)
    clock.step(10)
    told = []
    for _ in range(12):
        clock.times.hear_break("sampling")
        clock.now_s += 1
        told.append(clock.left_s(steps=20, samples=1))
    assert told[0] == 27
    assert told[8:] == [19] * 4, "it stands still when they take longer than before"


def test_one_slow_step_changes_little(clock: Clock) -> None:
    clock.step(10)
    clock.step(takes_s=50)
    assert clock.times.step_s == 1.0
