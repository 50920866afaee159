"""The line from which simulated workers take job after job, with the reason why each waits.

Not here: the rule itself (order.py), time and workers (foresight.py).
"""

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipelines.messages import NOTHING, Message, join, say, say_count
from studio.jobs.line.order import NOBODY, Fleet, Line, Taker, Waiting, choose

PAUSED = say("paused")


@dataclass(frozen=True, kw_only=True)
class PlaceInLine:
    """A waiting job at its place in line, with the reason if it differs from the place of arrival.

    `together_with` is the id of the earlier job whose batch it joins.
    """

    job_id: str
    model: str
    reason: Message
    together_with: str | None = None


Join = Callable[[Waiting, Iterator[Waiting]], Sequence[Waiting]]
"""Chooses the jobs that join the first one's batch, from the others of its model in turn (batch_join.py)."""


class Plan:
    """Takes jobs out of a line, which it empties. Joining a batch delays nobody, so it does not count as overtaking."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._passed = _Passed()

    def __len__(self) -> int:
        return len(self._line)

    def serve(
        self,
        taker: Taker,
        fleet: Fleet = NOBODY,
        *,
        now: float = 0.0,
        switch_s: float | None = None,
        join: Join = lambda _first, _others: (),
        must_take: bool = False,
    ) -> list[PlaceInLine]:
        """Takes a worker's next job at `now`, and those that join it; empty when none waits or it keeps its model.

        `must_take`: it takes the first in turn rather than nothing. `switch_s` is the cost of a switch away from its
        model, for the reason.
        """
        chosen = choose(self._line, taker, fleet, now=now)
        if chosen is None and must_take and not taker.is_pinned:
            chosen = self._line.find_first_of_all()
        if chosen is None:
            return []
        overtakes = len(self._line.list_models()) > 1 and chosen.model == taker.model
        overtakes = overtakes and chosen is not self._line.find_first_of_all()
        first = self._passed.explain(chosen, switch_s=switch_s)
        self._take(chosen, at=now)
        along = join(chosen, self._line.take_turns(chosen.model))
        for job in along:
            self._take(job, at=now)
        self._passed.note(chosen, along, overtakes=overtakes)
        others = [PlaceInLine(job_id=job.id, model=job.model, reason=NOTHING, together_with=chosen.id) for job in along]
        return [first, *others]

    def list_paused(self) -> list[PlaceInLine]:
        """Returns the jobs of paused owners, in the order of the queue."""
        return [PlaceInLine(job_id=job.id, model=job.model, reason=PAUSED) for job in self._line.list_paused()]

    def _take(self, job: Waiting, *, at: float) -> None:
        self._line.remove(job.id)
        self._passed.starts += 1
        self._line.serve(job.owner, at + 1e-6 * self._passed.starts)  # after whoever started at the same moment


class _Passed:
    """Records which jobs ran before an earlier arrival, by their places in the queue."""

    def __init__(self) -> None:
        self.starts = 0
        self._in_turn: list[tuple[int, int]] = []
        self._in_turn_of: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._for_model: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def note(self, chosen: Waiting, along: Sequence[Waiting], *, overtakes: bool) -> None:
        """Records that `chosen` ran, with `along` in its batch, for its model's sake when it `overtakes`."""
        if overtakes:
            for job in (chosen, *along):
                insort(self._for_model[chosen.model], job.place)
        else:
            insort(self._in_turn, chosen.place)
            insort(self._in_turn_of[chosen.owner], chosen.place)

    def explain(self, job: Waiting, *, switch_s: float | None) -> PlaceInLine:
        """Returns the job's place, with the reason why it is not sooner."""
        reasons: list[Message] = []
        if of_others := _count_after(self._in_turn, job) - _count_after(self._in_turn_of[job.owner], job):
            reasons.append(
                say_count(
                    "everybody takes turns: {count} job by someone else first",
                    "everybody takes turns: {count} jobs by others first",
                    count=of_others,
                )
            )
        counts = {model: _count_after(places, job) for model, places in self._for_model.items() if model != job.model}
        if count := sum(counts.values()):
            model = max(counts, key=lambda one: counts[one])
            if switch_s and switch_s >= 1:
                reasons.append(
                    say_count(
                        "{count} {model} job first: saves a {time} s switch",
                        "{count} {model} jobs first: saves a {time} s switch",
                        count=count,
                        model=model,
                        time=f"{switch_s:.0f}",
                    )
                )
            else:
                reasons.append(
                    say_count(
                        "{count} {model} job first: saves a model switch",
                        "{count} {model} jobs first: saves a model switch",
                        count=count,
                        model=model,
                    )
                )
        return PlaceInLine(job_id=job.id, model=job.model, reason=join(reasons, ";"))


def _count_after(places: Sequence[tuple[int, int]], job: Waiting) -> int:
    """Counts the places of later arrivals."""
    return len(places) - bisect(places, job.place)
