"""Which waiting job runs next.

Three rules, in this order. Owners take turns (round robin), whoever was served longest ago first. An owner's jobs keep
the order of the queue, which is that of arrival until somebody moves a job. Swapping models costs a reload, so a job
may be overtaken by at most `MAX_OVERTAKES` jobs of the resident model; but a job that its owner placed by hand neither
overtakes nor is overtaken by that owner's other jobs. A paused owner's jobs stay. Pure: rows in, job and reason out.
Not here: claiming (claims.py), showing (queue.py and the page).
"""

from bisect import bisect, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pipelines.messages import NOTHING, Message, join, say, say_count

MAX_OVERTAKES = 4
PAUSED = say("paused")


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The properties of a waiting job that decide its order."""

    id: str
    model: str
    owner: str = ""
    overtaken: int = 0
    is_placed: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """All waiting `jobs` in the order of the queue, and their `owners` in the order in which they are served next.

    An owner who is not in `owners` is paused.
    """

    jobs: Sequence[Waiting]
    owners: Sequence[str] = ("",)


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
"""Chooses the jobs that join the first one's batch, from all others in turn (batch_join.py)."""


def choose_next(line: Line, resident: str | None) -> Waiting | None:
    """Returns the first job of the resident model that may overtake all jobs before it, else the first in turn."""
    own = _group(line)
    overtaken = {job.id: job.overtaken for job in line.jobs}
    *_, chosen = _choose(_take_turns(own), resident, overtaken, owners=len(own)) or (None,)
    return chosen


def take_turns(line: Line) -> list[Waiting]:
    """Returns the first job of each owner, then the second of each, and so on, without those of paused owners."""
    return list(_take_turns(_group(line)))


def plan_turns(
    line: Line,
    resident: str | None,
    switch_s: float | None = None,
    *,
    join: Join = lambda _first, _others: (),
) -> list[PlaceInLine]:
    """Returns the line in the order in which one worker runs it if no further jobs arrive; paused jobs come last."""
    plan = Plan(line)
    planned: list[PlaceInLine] = []
    while served := plan.serve(resident, switch_s, join=join):
        planned += served
        resident = served[0].model
    return planned + plan.list_paused()


class Plan:
    """The line from which workers take job after job.

    Joining a batch delays nobody, so it does not count as overtaking. A line may have a thousand jobs, so nothing here
    is quadratic in their number.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._own = _group(line)
        self._overtaken = {job.id: job.overtaken for job in line.jobs}
        self._passed = _Passed({job.id: place for place, job in enumerate(line.jobs)})

    def serve(
        self, resident: str | None, switch_s: float | None = None, *, join: Join = lambda _first, _others: ()
    ) -> list[PlaceInLine]:
        """Takes the next job for a worker with this model, and the jobs that join it; empty when no job waits.

        `switch_s` is the cost of a switch away from that model, for the reason.
        """
        ran = _choose(_take_turns(self._own), resident, self._overtaken, owners=len(self._own))
        if not ran:
            return []
        *waited, chosen = ran
        first = self._passed.explain(chosen, switch_s=switch_s)
        for job in waited:
            self._overtaken[job.id] += 1
        _serve(self._own, chosen)
        along = join(chosen, _take_turns(self._own))
        self._passed.note(chosen, waited, along=len(along))
        for job in sorted(along, key=lambda job: job.owner):  # all are served at the same moment
            _serve(self._own, job)
        others = [PlaceInLine(job_id=job.id, model=job.model, reason=NOTHING, together_with=chosen.id) for job in along]
        return [first, *others]

    def list_paused(self) -> list[PlaceInLine]:
        """Returns the jobs of paused owners, in the order of the queue."""
        served = set(self._line.owners)
        paused = (job for job in self._line.jobs if job.owner not in served)
        return [PlaceInLine(job_id=job.id, model=job.model, reason=PAUSED) for job in paused]


def _serve(own: dict[str, list[Waiting]], job: Waiting) -> None:
    """Removes a job; its owner then stands behind the other owners."""
    jobs = own.pop(job.owner)
    jobs.remove(job)
    if jobs:
        own[job.owner] = jobs


def _group(line: Line) -> dict[str, list[Waiting]]:
    """Groups the jobs by owner, in the order in which owners are served next; leaves out paused owners."""
    own: dict[str, list[Waiting]] = {owner: [] for owner in line.owners}
    for job in line.jobs:
        if job.owner in own:
            own[job.owner].append(job)
    return {owner: jobs for owner, jobs in own.items() if jobs}


def _take_turns(own: Mapping[str, Sequence[Waiting]]) -> Iterator[Waiting]:
    return (job for turn in zip_longest(*own.values()) for job in turn if job is not None)


def _choose(
    turns: Iterator[Waiting], resident: str | None, overtaken: Mapping[str, int], *, owners: int
) -> list[Waiting]:
    """Returns the jobs that are overtaken, then the job that runs next; empty when no job waits."""
    placing: set[str] = set()  # owners of an earlier job that was placed by hand
    seen: set[str] = set()
    before: list[Waiting] = []
    for job in turns:
        before.append(job)
        if job.model == resident and job.owner not in placing and not (job.is_placed and job.owner in seen):
            return before
        if overtaken[job.id] >= MAX_OVERTAKES:
            break
        seen.add(job.owner)
        if job.is_placed:
            placing.add(job.owner)
            if len(placing) == owners:  # nobody is left who could overtake
                break
    return before[:1]


class _Passed:
    """Records which jobs ran before an earlier arrival; `places` are the places of arrival."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places
        self._ran: list[int] = []  # places of those that ran, sorted
        self._ran_of: defaultdict[str, list[int]] = defaultdict(list)  # the same for each owner
        self._for_model: defaultdict[str, list[Waiting]] = defaultdict(list)
        self._along: Counter[str] = Counter()  # number of jobs that ran in the batches of those

    def note(self, chosen: Waiting, waited: Sequence[Waiting], *, along: int) -> None:
        """Records that `chosen` ran, with `along` others in its batch, and overtook the `waited` jobs for its model."""
        place = self._places[chosen.id]
        insort(self._ran, place)
        insort(self._ran_of[chosen.owner], place)
        for job in waited:
            self._for_model[job.id].append(chosen)
            self._along[job.id] += along

    def explain(self, job: Waiting, *, switch_s: float | None) -> PlaceInLine:
        """Returns the job's place, with the reason why it is not sooner."""
        for_model = self._for_model[job.id]
        reasons: list[Message] = []
        if of_others := self._count_others(job, for_model):
            reasons.append(
                say_count(
                    "everybody takes turns: {count} job by someone else first",
                    "everybody takes turns: {count} jobs by others first",
                    count=of_others,
                )
            )
        if for_model:
            count, model = len(for_model) + self._along[job.id], for_model[0].model
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

    def _count_others(self, job: Waiting, for_model: Sequence[Waiting]) -> int:
        """Counts other owners' jobs that arrived later but ran before, except those that did so for their model."""
        place, own = self._places[job.id], self._ran_of[job.owner]
        later = len(self._ran) - bisect(self._ran, place) - (len(own) - bisect(own, place))
        return later - sum(one.owner != job.owner and self._places[one.id] > place for one in for_model)
