"""Many workers and many models at one line, by the real choice and a clock that jumps from event to event.

Jobs arrive at random (Poisson), their models follow Zipf's law, and one owner asks for half of them. Nothing here
decides who takes what: `order.choose` does, as it does for a claim.
"""

import heapq
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from studio.jobs.line.order import Fleet, Line, Taker, Waiting, choose

HEAVY = "heavy"
RESTLESS = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is simulated; `load` is the share of the workers' seconds that jobs ask for."""

    workers: int
    models: int
    load: float
    jobs: int
    job_s: float = 10.0
    swap_s: float = 90.0
    owners: int = 50
    seed: int = 7


@dataclass(kw_only=True)
class Outcome:
    """What came of it: seconds that each job waited, by owner, and how many jobs needed a switch."""

    waits_s: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    swaps: int = 0
    decisions: int = 0
    took_s: float = 0.0

    @property
    def all_waits_s(self) -> list[float]:
        return [wait for waits in self.waits_s.values() for wait in waits]

    @property
    def light_waits_s(self) -> list[float]:
        return [wait for owner, waits in self.waits_s.items() if owner != HEAVY for wait in waits]


def find_p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def simulate(case: Case) -> Outcome:
    """Runs a case until every job has run. Workers begin with the models that are asked for, in proportion."""
    draw = random.Random(case.seed)
    weights = [1 / (number + 1) for number in range(case.models)]
    models = [f"m{number}" for number in range(case.models)]
    takers = [Taker(model=model, swap_s=case.swap_s) for model in draw.choices(models, weights, k=case.workers)]
    holders = Counter(taker.model for taker in takers)
    line, outcome = Line(), Outcome()
    job_s = dict.fromkeys(models, case.job_s)
    rate = case.load * case.workers / case.job_s
    arrivals: list[Waiting] = []
    at = now = 0.0
    for number in range(case.jobs):
        at += draw.expovariate(rate)
        owner = HEAVY if draw.random() < 0.5 else f"o{draw.randrange(case.owners)}"
        (model,) = draw.choices(models, weights)
        arrivals.append(Waiting(id=str(number), model=model, owner=owner, place=(number, 0), queued_at=at))
    events: list[tuple[float, int]] = []  # when a worker is free
    idle = set(range(case.workers))
    began_s = time.perf_counter()
    arrivals.reverse()
    while arrivals or len(line):
        next_free = events[0][0] if events else float("inf")
        if arrivals and arrivals[-1].queued_at <= next_free:
            now = arrivals[-1].queued_at
            job = arrivals.pop()
            line.add(job)
            asking = [one for one in idle if takers[one].model == job.model][:1]
        elif events:
            now, worker = heapq.heappop(events)
            idle.add(worker)
            asking = [worker]
        else:  # nobody works and nobody arrives: time passes until somebody's patience ends
            now += case.swap_s
            asking = [*idle]
        asking += draw.sample([*idle], min(len(idle), RESTLESS))  # all of them ask many times a second
        for one in dict.fromkeys(asking):
            outcome.decisions += 1
            taker = takers[one]
            found = choose(line, taker, Fleet(holders=holders, job_s=job_s), now=now)
            if found is None:
                continue
            idle.discard(one)
            line.remove(found.id)
            line.serve(found.owner, now)
            outcome.waits_s.setdefault(found.owner, []).append(now - found.queued_at)
            busy_s = case.job_s * draw.uniform(0.5, 1.5)
            if found.model != taker.model:
                outcome.swaps += 1
                holders[taker.model] -= 1
                holders[found.model] += 1
                takers[one] = replace(taker, model=found.model, held_from=now)
                busy_s += case.swap_s
            heapq.heappush(events, (now + busy_s, one))
    outcome.took_s = time.perf_counter() - began_s
    return outcome
