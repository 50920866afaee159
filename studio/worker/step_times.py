"""How long a step of a training takes, from when each step was heard of, and how long its samples take.

Programs are compiled, states saved and samples made between two steps: that time is no step's. The engine tells steps
late (pipelines/training/engine/loop.py), so the next one after such a break comes at once and says nothing either.
Pure: the caller has the clock. Not here: what earlier trainings took (jobs/costs/lessons.py).
"""

from collections import deque

import numpy as np

KNOWN_FROM = 5
"""Steps without a break from which what is left is told: the first ones are of several sizes, or still settle."""
LAST = 100
"""Steps that count: a machine that others use too changes its pace."""
CUT = 5
"""One of so many steps is left out at each end, so that one slow step does not move what is told."""


class StepTimes:
    """Hears steps and what lies between them; `step_s` and `sample_s` are seconds."""

    def __init__(self) -> None:
        self.sample_s = 0.0
        """What one round of samples takes, without what is compiled for the first one; 0 until one was seen."""
        self._took: deque[float] = deque(maxlen=LAST)
        self._heard_s: float | None = None
        self._between: set[str] = set()
        self._is_after_break = False

    @property
    def step_s(self) -> float | None:
        """The mean of the last steps, without the slowest and quickest; None before a step without a break."""
        if not self._took:
            return None
        cut = len(self._took) // CUT
        return float(np.mean(sorted(self._took)[cut : len(self._took) - cut]))

    def hear_break(self, what: str) -> None:
        """Hears that the devices do something else than steps."""
        self._between.add(what)

    def hear_step(self, now_s: float) -> None:
        """Hears that a step is done."""
        step_s, is_break = self.step_s, bool(self._between)
        if self._heard_s is not None:
            took_s = now_s - self._heard_s
            if is_break and step_s is not None and "sample" in self._between and "compiling" not in self._between:
                self.sample_s = max(0.0, took_s - step_s)
            elif not is_break and not self._is_after_break:
                self._took.append(took_s)
        self._heard_s, self._is_after_break = now_s, is_break
        self._between.clear()

    def estimate_left_s(self, *, steps: int, samples: int, now_s: float) -> float | None:
        """Estimates the seconds of so many more steps and rounds of samples; None while too few steps were heard."""
        step_s = self.step_s
        if step_s is None or len(self._took) < KNOWN_FROM or self._heard_s is None:
            return None
        under_way_s = min(now_s - self._heard_s, step_s + (self.sample_s if self._between else 0.0))
        return max(0.0, steps * step_s + samples * self.sample_s - under_way_s)
