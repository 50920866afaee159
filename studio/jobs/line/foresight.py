"""Simulation of the queue: which worker takes which job when, if no further jobs arrive.

The worker that is free first takes the next job for its loaded model, together with the jobs that join the batch, and
is free again after their estimated time. Pure: rows in, places out.
Not here: the order itself (order.py), reading the rows (places.py), the estimate for a single job (estimates.py).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelines.messages import NOTHING, Message, join, say, say_count
from pipelines.recipes.recipe import Recipe
from studio.jobs.costs.estimates import History, estimate_job_s, read_shape_state
from studio.jobs.costs.lessons import Prior, estimate_prior_s
from studio.jobs.line.batch_join import Company, Share
from studio.jobs.line.order import Fleet, Line, Taker, Waiting
from studio.jobs.line.plan import PlaceInLine, Plan
from studio.jobs.line.standing import make_taker
from studio.jobs.workers import WorkerRow


@dataclass(frozen=True, kw_only=True)
class Place:
    """A waiting job's `position` in the whole line (1 is next), and the `reason` why it waits.

    `eta_s` is the time until its outputs are done (None: never measured, or paused); `eta_error_s` is its likely
    error, judged by past estimates (None when there were none).
    """

    position: int
    reason: Message
    eta_s: float | None
    eta_error_s: float | None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The properties of a waiting job that its estimate depends on; `prior` is what a training makes first."""

    kind: str
    owner: str
    recipe: Recipe
    programs: str
    steps: int
    prior: Prior | None = None


@dataclass(frozen=True, kw_only=True)
class Running:
    """The job that a worker runs now; `eta_s` is None when it has only just begun."""

    recipe: Recipe
    programs: str
    steps: int
    eta_s: float | None
    prior: Prior | None = None


@dataclass(kw_only=True)
class Server:
    """A worker and its simulated state: it is free in `free_s`, give or take `error_s`.

    `resident` is the model that its next job finds loaded; `ready` holds the model's programs that became warm in the
    simulation. Seconds are None from the first job on whose programs were never measured on this device.
    """

    row: WorkerRow
    history: History
    running: Running | None = None
    resident: str = field(init=False)
    free_s: float | None = field(init=False, default=0.0)
    error_s: float | None = field(init=False, default=0.0)
    ready: set[tuple[str, str]] = field(init=False, default_factory=set[tuple[str, str]])
    _switch_s: float | None = field(init=False)
    _taker: Taker = field(init=False)
    _held_from: float = field(init=False)
    _known: dict[tuple[object, ...], tuple[float | None, float | None]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.resident = self.row.model
        if now := self.running:
            own_s, _ = self._estimate(now.recipe, now.programs, now.steps, now.prior)
            self.resident = now.recipe.model
            self.ready.add((now.recipe.model, now.programs))
            self.free_s = own_s if now.eta_s is None else now.eta_s
            self.error_s = _multiply(self.free_s, self.history.estimate_error(now.recipe, now.programs))
        self._switch_s = self.history.load_s(self.resident)
        self._taker = make_taker(self.row, model=self.resident)
        self._held_from = self._taker.held_from

    def take(self, plan: Plan, company: Company, fleet: Fleet, *, now: float, must_take: bool) -> list[PlaceInLine]:
        """Takes from the plan the jobs that this worker would run next, as one batch; `now` is when all this begins."""

        def join(first: Waiting, others: Iterator[Waiting]) -> list[Waiting]:
            room = self.row.outputs_at_once if first.model == self.row.model else 0
            return company.choose(first, others, room=room)

        taker = replace(self._taker, model=self.resident, held_from=self._held_from)
        then = now + (self.free_s or 0.0)
        return plan.serve(taker, fleet, now=then, switch_s=self._switch_s, join=join, must_take=must_take)

    def run(self, job: Asked, *, now: float) -> None:
        """Advances the simulated state to the end of such a job."""
        recipe, programs = job.recipe, job.programs
        own_s, own_error_s = self._estimate(recipe, programs, job.steps, job.prior)
        self.free_s = _add(self.free_s, own_s)
        self.error_s = None if self.free_s is None else _add(self.error_s, own_error_s)
        if self.resident != recipe.model:
            self.resident = recipe.model
            self._held_from = now + (self.free_s or 0.0)
            self.ready.clear()
        self.ready.add((recipe.model, programs))

    def _estimate(
        self, recipe: Recipe, programs: str, steps: int, prior: Prior | None
    ) -> tuple[float | None, float | None]:
        """Estimates a job's seconds and their error. Cached, because jobs of a long line are mostly alike."""
        key = (recipe.model, programs)
        state = "warm" if key in self.ready else read_shape_state(self.row, self.history, *key)
        is_resident = self.resident == recipe.model
        kind = (*key, recipe.batch_size, steps, prior and prior.count, state, is_resident)
        if kind not in self._known:
            own_s = estimate_job_s(
                self.history, recipe, programs=programs, shape_state=state, is_resident=is_resident, steps=steps
            )
            own_s = _add(own_s, estimate_prior_s(self.history, prior))
            self._known[kind] = own_s, _multiply(own_s, self.history.estimate_error(recipe, programs))
        return self._known[kind]


def foresee(
    line: Line, asked: Mapping[str, Asked], servers: Sequence[Server], *, job_s: Mapping[str, float], now: float
) -> dict[str, Place]:
    """Returns the place of each `asked` job, in the order in which they run, seen at `now`.

    `job_s` are a model's average seconds for a job. Empties the line, and advances the servers' simulated state.
    """
    plan = Plan(line)
    makes_many = any(server.row.outputs_at_once > 1 for server in servers)
    shares = {name: Share.of(job.kind, job.recipe, job.programs) for name, job in asked.items()} if makes_many else {}
    company = Company(shares)
    is_coming_up = all(server.row.state.is_coming_up for server in servers)
    activity = servers[0].row.activity if is_coming_up else NOTHING
    is_busy = all(server.running for server in servers)
    before: Counter[str] = Counter()  # owner -> number of that owner's jobs in front
    places: dict[str, Place] = {}
    for server, served in _simulate(plan, company, servers, job_s=job_s, now=now):
        for turn in served:
            if (job := asked.get(turn.job_id)) is None:
                continue
            position = len(places) + 1
            if first := places.get(turn.together_with or ""):
                reason = say("runs together with job {place} in line", place=first.position)
                places[turn.job_id] = replace(first, position=position, reason=reason)
            else:
                server.run(job, now=now)
                reason = turn.reason or activity
                if not reason:
                    reason = _say_place(before, owner=job.owner, is_busy=is_busy)
                if len(servers) > 1:
                    reason = join((reason, say("on {worker}", worker=server.row.id)), ";")
                places[turn.job_id] = Place(
                    position=position, reason=reason, eta_s=server.free_s, eta_error_s=server.error_s
                )
            before[job.owner] += 1
    for turn in plan.list_paused():
        if turn.job_id in asked:
            position = len(places) + 1
            places[turn.job_id] = Place(position=position, reason=turn.reason, eta_s=None, eta_error_s=None)
    return places


def _simulate(
    plan: Plan, company: Company, servers: Sequence[Server], *, job_s: Mapping[str, float], now: float
) -> Iterator[tuple[Server, list[PlaceInLine]]]:
    """Yields who takes which jobs, one batch after the other. Whoever is free first chooses first.

    A worker that would rather keep its model leaves the choice to the next one; where all would, the first one takes
    what it would take later.
    """
    while len(plan):
        free = sorted(servers, key=lambda server: (server.free_s is None, server.free_s or 0.0))  # unknown times last
        fleet = Fleet(holders=Counter(server.resident for server in servers if server.resident), job_s=job_s)
        for server, must_take in (*((one, False) for one in free), *((one, True) for one in free)):
            if served := server.take(plan, company, fleet, now=now, must_take=must_take):
                yield server, served
                break
        else:
            return  # nobody but pinned workers


def _say_place(before: Counter[str], *, owner: str, is_busy: bool) -> Message:
    """Words the reason of a job that waits for nothing but its turn."""
    count = before.total()
    if not count:
        return say("next, when the running job ends") if is_busy else say("next")
    of_others = count - before[owner]
    if of_others == count:
        return say_count("{count} job by someone else first", "{count} jobs by others first", count=count)
    if of_others:
        return say("{count} jobs before it, {of_others} by others", count=count, of_others=of_others)
    return say_count("{count} job before it", "{count} jobs before it", count=count)


def _add(one: float | None, other: float | None) -> float | None:
    """Adds two durations; the sum with an unknown one (None) is unknown."""
    return None if one is None or other is None else one + other


def _multiply(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one * other, 2)
