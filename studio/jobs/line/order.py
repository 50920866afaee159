"""Which waiting job runs next.

Three wishes, in this order. Owners take turns, whoever was served longest ago first; within an owner the order of the
queue counts, which is that of arrival until somebody moves a job. Swapping models costs a reload, so a job may be
overtaken by at most `MAX_OVERTAKES` jobs of the resident model; but what an owner placed by hand neither overtakes nor
is overtaken by that owner's other jobs. A paused owner's jobs stay. Pure: rows in, job and reason out.
Not here: claiming (claims.py), showing (queue.py and the page).
"""

from bisect import bisect, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

MAX_OVERTAKES = 4
PAUSED = "paused"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A waiting job as far as its order matters."""

    id: str
    model: str
    owner: str = ""
    overtaken: int = 0
    is_placed: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """Everybody who waits: `jobs` in the order of the queue, `owners` with whoever is to be served first in front.

    An owner who is not in `owners` is paused.
    """

    jobs: Sequence[Waiting]
    owners: Sequence[str] = ("",)


@dataclass(frozen=True, kw_only=True)
class PlaceInLine:
    """A waiting job at its place in line, with the reason when that is not its place of arrival.

    `together_with` is the job before it whose batch it joins.
    """

    job_id: str
    model: str
    reason: str
    together_with: str | None = None


Join = Callable[[Waiting, Iterator[Waiting]], Sequence[Waiting]]
"""Who joins the first one's batch, of all others in turn (batch_join.py)."""


def choose_next(line: Line, resident: str | None) -> Waiting | None:
    """The first job of the resident model that may overtake everybody before it; else the first in turn."""
    own = _group(line)
    overtaken = {job.id: job.overtaken for job in line.jobs}
    *_, chosen = _choose(_take_turns(own), resident, overtaken, owners=len(own)) or (None,)
    return chosen


def take_turns(line: Line) -> list[Waiting]:
    """The first job of each owner, then the second of each, and so on; without those of paused owners."""
    return list(_take_turns(_group(line)))


def plan_turns(
    line: Line,
    resident: str | None,
    switch_s: float | None = None,
    *,
    join: Join = lambda _first, _others: (),
) -> list[PlaceInLine]:
    """The whole line in the order in which one worker runs it if nobody else comes; paused jobs come last."""
    plan = Plan(line)
    planned: list[PlaceInLine] = []
    while served := plan.serve(resident, switch_s, join=join):
        planned += served
        resident = served[0].model
    return planned + plan.list_paused()


class Plan:
    """The line as workers take job after job from it.

    Who joins a batch makes nobody wait longer, so it overtakes nobody. A line may have a thousand jobs: nothing here
    looks at all of them for each of them.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._own = _group(line)
        self._overtaken = {job.id: job.overtaken for job in line.jobs}
        self._passed = _Passed({job.id: place for place, job in enumerate(line.jobs)})

    def serve(
        self, resident: str | None, switch_s: float | None = None, *, join: Join = lambda _first, _others: ()
    ) -> list[PlaceInLine]:
        """The job that a worker with this model takes now, and behind it those who join; empty when nobody waits.

        `switch_s` is what a switch from that model costs.
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
        others = [PlaceInLine(job_id=job.id, model=job.model, reason="", together_with=chosen.id) for job in along]
        return [first, *others]

    def list_paused(self) -> list[PlaceInLine]:
        """Jobs that nobody takes, in the order of the queue."""
        served = set(self._line.owners)
        paused = (job for job in self._line.jobs if job.owner not in served)
        return [PlaceInLine(job_id=job.id, model=job.model, reason=PAUSED) for job in paused]


def _serve(own: dict[str, list[Waiting]], job: Waiting) -> None:
    """Its owner then stands behind the other owners."""
    jobs = own.pop(job.owner)
    jobs.remove(job)
    if jobs:
        own[job.owner] = jobs


def _group(line: Line) -> dict[str, list[Waiting]]:
    """The jobs of each owner who is not paused, whoever is to be served first in front."""
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
    """The job that runs next, behind those it overtakes; empty when nobody waits."""
    placing: set[str] = set()  # owners of a job placed by hand that stands before
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
    """Who ran before a job although it arrived first; `places` are those of arrival."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places
        self._ran: list[int] = []  # places of those that ran, sorted
        self._ran_of: defaultdict[str, list[int]] = defaultdict(list)  # of one owner
        self._for_model: defaultdict[str, list[Waiting]] = defaultdict(list)
        self._along: Counter[str] = Counter()  # jobs that ran together with those

    def note(self, chosen: Waiting, waited: Sequence[Waiting], *, along: int) -> None:
        """`chosen` ran, with so many others `along`, and overtook those who `waited` for the sake of its model."""
        place = self._places[chosen.id]
        insort(self._ran, place)
        insort(self._ran_of[chosen.owner], place)
        for job in waited:
            self._for_model[job.id].append(chosen)
            self._along[job.id] += along

    def explain(self, job: Waiting, *, switch_s: float | None) -> PlaceInLine:
        """The job's turn, with the reason why it comes no sooner."""
        for_model = self._for_model[job.id]
        reasons: list[str] = []
        if of_others := self._count_others(job, for_model):
            reasons.append(f"everybody takes turns: {_count(of_others, 'job')} by others first")
        if for_model:
            saved = f"saves a {switch_s:.0f} s switch" if switch_s and switch_s >= 1 else "saves a model switch"
            count = len(for_model) + self._along[job.id]
            reasons.append(f"{_count(count, f'{for_model[0].model} job')} first: {saved}")
        return PlaceInLine(job_id=job.id, model=job.model, reason="; ".join(reasons))

    def _count_others(self, job: Waiting, for_model: Sequence[Waiting]) -> int:
        """Jobs of other owners that arrived later and ran before, but for those that did so for their model."""
        place, own = self._places[job.id], self._ran_of[job.owner]
        later = len(self._ran) - bisect(self._ran, place) - (len(own) - bisect(own, place))
        return later - sum(one.owner != job.owner and self._places[one.id] > place for one in for_model)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
