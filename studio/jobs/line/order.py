"""Which waiting job a worker runs next: a line of jobs, kept sorted as they come and go, and one rule.

A worker takes jobs of the model that it holds, because another one costs a reload. Among those, owners take turns:
whoever was served longest ago comes first, and an owner's jobs keep the order of the queue. It changes its model

- for one that nobody alive holds, when its own has no line, or other holders too;
- for one that others hold, when the work that waits for each of them takes longer than a switch, beyond what waits for
  each holder of its own; half a switch, when nothing does, and any work that has waited for too long;
- as the last holder of a model with a line only for one that nobody holds and a job has waited for too long
  (`patience_s`). It has then held its own as long, so that a long line is no reason to switch after every job.

So each model that is waited for gets a holder in time, every holder serves its line by turns, and nobody starves. That
others who hold a model do not rush to its late jobs is what keeps a few workers from switching all together
(tests/studio/jobs/line/simulation.py). A pinned worker never switches. A job that its owner placed by hand neither
overtakes nor is overtaken by that owner's other jobs. A paused owner's jobs stay.

Pure, and quick: a choice costs what there are models and owners, however many jobs wait.
Not here: reading the line (waiting_rows.py), following it (standing.py), claiming (claims.py), showing (foresight.py).
"""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

MIN_PATIENCE_S = 60.0
PATIENCE_IN_SWAPS = 2.0
IDLE_SHARE = 0.5  # of a switch, that a line is worth to a worker which has none of its own


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The properties of a waiting job that decide its order.

    `place` is that in the queue: of arrival, until somebody moves the job. `queued_at` is the time of its arrival.
    """

    id: str
    model: str
    owner: str = ""
    place: tuple[int, int] = (0, 0)
    queued_at: float = 0.0
    is_placed: bool = False


@dataclass(frozen=True, kw_only=True)
class Taker:
    """The worker that asks: the `model` that it holds ("": none) since `held_from`, and its seconds for a switch."""

    model: str = ""
    held_from: float = 0.0
    swap_s: float = 0.0
    is_pinned: bool = False

    @property
    def patience_s(self) -> float:
        """The seconds that a job waits, and that this worker keeps its model, before it switches whatever waits."""
        return max(MIN_PATIENCE_S, PATIENCE_IN_SWAPS * self.swap_s)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All workers that are alive: how many hold each model, or switch to it now; and a model's seconds for a job.

    A model whose jobs were never measured has no seconds: one job in line for each holder is then enough for a switch.
    """

    holders: Mapping[str, int] = field(default_factory=dict[str, int])
    job_s: Mapping[str, float] = field(default_factory=dict[str, float])


NOBODY = Fleet()


@dataclass(kw_only=True)
class _Own:
    """An owner's jobs in line, sorted by place, by model; the places of those that were placed by hand."""

    turn: float
    jobs: dict[str, list[Waiting]] = field(default_factory=dict[str, list[Waiting]])
    placed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def find_first(self, model: str) -> Waiting | None:
        """Returns the first job of a model, unless what was placed by hand keeps it from overtaking."""
        jobs = self.jobs.get(model)
        if not jobs:
            return None
        job = jobs[0]
        if self.placed and job.place >= self.placed[0] and job is not self.get_first():
            return None
        return job

    def get_first(self) -> Waiting:
        return min((jobs[0] for jobs in self.jobs.values()), key=_by_place)


class Line:
    """The waiting jobs of all owners; `served` maps an owner to the time of their last start.

    Owners whose turn it is sooner were served longer ago, or else arrived earlier.
    """

    def __init__(
        self, jobs: Iterable[Waiting] = (), *, served: Mapping[str, float] | None = None, paused: Iterable[str] = ()
    ) -> None:
        self._jobs: dict[str, Waiting] = {}
        self._own: dict[str, _Own] = {}
        self._owners: dict[str, dict[str, _Own]] = {}  # model -> its owners
        self._counts: dict[str, int] = {}
        self._oldest: dict[
            str, list[tuple[float, tuple[int, int], str]]
        ] = {}  # model -> heap; may hold those that left
        self._served: dict[str, float] = dict(served or {})
        self._paused: dict[str, dict[str, Waiting]] = {owner: {} for owner in paused}
        for job in jobs:
            self.add(job)

    def __len__(self) -> int:
        """Returns how many jobs wait for a turn, without those of paused owners."""
        return len(self._jobs)

    def list_paused(self) -> list[Waiting]:
        """Returns the jobs of paused owners, by place."""
        return sorted((job for jobs in self._paused.values() for job in jobs.values()), key=_by_place)

    def add(self, job: Waiting) -> None:
        """Adds a job, in place of the one with the same id."""
        self.remove(job.id)
        if job.owner in self._paused:
            self._paused[job.owner][job.id] = job
            return
        self._jobs[job.id] = job
        own = self._own.get(job.owner)
        if own is None:
            own = self._own[job.owner] = _Own(turn=max(job.queued_at, self._served.get(job.owner, -math.inf)))
        insort(own.jobs.setdefault(job.model, []), job, key=_by_place)
        if job.is_placed:
            insort(own.placed, job.place)
        self._owners.setdefault(job.model, {})[job.owner] = own
        self._counts[job.model] = self._counts.get(job.model, 0) + 1
        heapq.heappush(self._oldest.setdefault(job.model, []), (job.queued_at, job.place, job.id))

    def remove(self, job_id: str) -> None:
        """Removes a job, if it is in line."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            for jobs in self._paused.values():
                jobs.pop(job_id, None)
            return
        own = self._own[job.owner]
        jobs = own.jobs[job.model]
        del jobs[bisect_left(jobs, job.place, key=_by_place)]
        if job.is_placed:
            own.placed.remove(job.place)
        if not jobs:
            del own.jobs[job.model], self._owners[job.model][job.owner]
            if not own.jobs:
                del self._own[job.owner]
        self._counts[job.model] -= 1
        if not self._counts[job.model]:
            del self._counts[job.model], self._owners[job.model], self._oldest[job.model]

    def serve(self, owner: str, at: float) -> None:
        """Notes that a job of this owner started: others come first now."""
        self._served[owner] = max(at, self._served.get(owner, -math.inf))
        if (own := self._own.get(owner)) is not None:
            own.turn = max(own.turn, at)

    def pause(self, owner: str) -> None:
        """Takes an owner's jobs out of the line, until `resume`."""
        if owner in self._paused:
            return
        jobs = [job for job in self._jobs.values() if job.owner == owner]
        for job in jobs:
            self.remove(job.id)
        self._paused[owner] = {job.id: job for job in jobs}

    def resume(self, owner: str) -> None:
        """Puts a paused owner's jobs back."""
        for job in self._paused.pop(owner, {}).values():
            self.add(job)

    def list_models(self) -> list[str]:
        """Returns the models that jobs wait for."""
        return [*self._counts]

    def count(self, model: str) -> int:
        """Returns how many jobs wait for a model."""
        return self._counts.get(model, 0)

    def find_first(self, model: str) -> Waiting | None:
        """Returns the job of a model whose turn it is; None when there is none that may run."""
        able = (
            (own.turn, job.place, job) for own in self._owners.get(model, {}).values() if (job := own.find_first(model))
        )
        return min(able, key=_by_turn, default=(0.0, (0, 0), None))[2]

    def find_first_of_all(self, models: Iterable[str] | None = None) -> Waiting | None:
        """Returns the job whose turn it is, of these models or of all."""
        if models is None:
            able = ((own.turn, (job := own.get_first()).place, job) for own in self._own.values())
            return min(able, key=_by_turn, default=(0.0, (0, 0), None))[2]
        found = (job for model in models if (job := self.find_first(model)))
        return min(found, key=lambda job: (self._own[job.owner].turn, job.place), default=None)

    def find_oldest_at(self, model: str) -> float:
        """Returns when the job that has waited longest for a model arrived; infinity when none waits."""
        heap = self._oldest.get(model)
        while heap:
            at, place, job_id = heap[0]
            job = self._jobs.get(job_id)
            if job is not None and job.model == model and (job.queued_at, job.place) == (at, place):
                return at
            heapq.heappop(heap)
        return math.inf

    def take_turns(self, model: str) -> Iterator[Waiting]:
        """Yields a model's jobs: the first of each owner, then the second of each, and so on."""
        owners = sorted(self._owners.get(model, {}).values(), key=lambda own: (own.turn, own.jobs[model][0].place))
        return (job for turn in zip_longest(*(own.jobs[model] for own in owners)) for job in turn if job is not None)


def choose(line: Line, taker: Taker, fleet: Fleet = NOBODY, *, now: float) -> Waiting | None:
    """Returns the job that this worker runs next; None when none waits, or when it does better to keep its model."""
    own = line.find_first(taker.model) if taker.model else None
    models: list[str] = [] if taker.is_pinned else line.list_models()
    others = [model for model in models if model != taker.model or not model]
    if not others:
        return own
    unheld = [model for model in others if not (model and fleet.holders.get(model))]
    if own is not None and fleet.holders.get(taker.model, 0) <= 1:
        has_kept = now - taker.held_from >= taker.patience_s
        return (_find_late(line, taker, unheld, now=now) if has_kept else None) or own
    if found := line.find_first_of_all(unheld):
        return found
    if own is None:
        paying = _find_paying(line, fleet, others, cost_s=IDLE_SHARE * taker.swap_s)
        return paying or _find_late(line, taker, others, now=now)
    spare_s = _estimate_line_s(line, fleet, taker.model)
    return own if spare_s is None else _find_paying(line, fleet, others, cost_s=taker.swap_s + spare_s) or own


def _find_paying(line: Line, fleet: Fleet, models: list[str], *, cost_s: float) -> Waiting | None:
    """Returns a job of the model with the longest line for each holder, if that is more seconds than a switch costs."""
    seconds = {model: _estimate_line_s(line, fleet, model) for model in models}
    paying = {model: math.inf if known is None else known for model, known in seconds.items()}
    paying = {model: found_s for model, found_s in paying.items() if found_s > cost_s}
    longest_first = sorted(paying, key=lambda model: paying[model], reverse=True)
    return next((job for model in longest_first if (job := line.find_first(model))), None)


def _find_late(line: Line, taker: Taker, models: list[str], *, now: float) -> Waiting | None:
    """Returns the job to run of the model that a job has waited for longest, if that is too long."""
    late = sorted((at, model) for model in models if now - (at := line.find_oldest_at(model)) > taker.patience_s)
    return next((job for _, model in late if (job := line.find_first(model))), None)


def _estimate_line_s(line: Line, fleet: Fleet, model: str) -> float | None:
    """Returns the seconds of work that wait for each holder of a model; None when its jobs were never measured."""
    seconds = fleet.job_s.get(model)
    return None if seconds is None else line.count(model) * seconds / max(1, fleet.holders.get(model, 0))


def _by_place(job: Waiting) -> tuple[int, int]:
    return job.place


def _by_turn(one: tuple[float, tuple[int, int], Waiting | None]) -> tuple[float, tuple[int, int]]:
    return one[:2]
