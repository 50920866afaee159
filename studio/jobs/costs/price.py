"""The price of a sequence of different jobs if it ran now: model switches, compilations, seconds.

All figures were measured on this machine; an unmeasured one is None and makes the sum None.
Not here: the estimate for a single job (estimates.py), the wait of queued jobs (places.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from studio.database import Database
from studio.jobs.costs.estimates import estimate_job_s, read_shape_state
from studio.jobs.costs.fleet import read_fleet
from studio.jobs.line.batch_join import Company, Share
from studio.jobs.line.order import Waiting
from studio.jobs.queue import Wanted


@dataclass(frozen=True, kw_only=True)
class Warming:
    """Programs that must become warm first; `state` is disk or cold."""

    model: str
    programs: str
    state: str
    seconds: float | None


@dataclass(kw_only=True)
class Price:
    """The price of a sequence of jobs; `loads` maps each model that must be loaded to its seconds, the first too."""

    seconds: float | None = 0.0
    loads: dict[str, float | None] = field(default_factory=dict[str, float | None])
    warmings: list[Warming] = field(default_factory=list[Warming])

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "loads": [{"model": model, "seconds": seconds} for model, seconds in self.loads.items()],
            "warmings": [vars(warming) for warming in self.warmings],
        }


def price_line(database: Database, line: Sequence[Wanted]) -> Price:
    """Prices these jobs in this order, for the worker that suits the first one.

    Jobs that will run as one batch count once.
    """
    price = Price()
    if not line:
        return price
    one, _ = read_fleet(database).choose(line[0].recipe.model, line[0].programs)
    worker, history = one.worker, one.history
    resident = worker.model
    ready: set[tuple[str, str]] = set()
    company = Company({str(n): Share.of(wanted.kind, wanted.recipe, wanted.programs) for n, wanted in enumerate(line)})
    turns = [Waiting(id=str(n), model=wanted.recipe.model) for n, wanted in enumerate(line)]
    joined: set[str] = set()
    for n, wanted in enumerate(line):
        if turns[n].id in joined:
            continue
        others = (turn for turn in islice(turns, n + 1, None) if turn.id not in joined)
        room = worker.outputs_at_once if wanted.recipe.model == worker.model else 0
        joined.update(turn.id for turn in company.choose(turns[n], others, room=room))
        recipe, key = wanted.recipe, (wanted.recipe.model, wanted.programs)
        is_resident = recipe.model == resident
        if not is_resident:
            price.loads[recipe.model] = history.load_s(recipe.model)
            resident = recipe.model
        state = "warm" if key in ready else read_shape_state(worker, history, *key)
        if state != "warm":
            warm_s = history.warm_s(*key, shape_state=state)
            price.warmings.append(Warming(model=key[0], programs=key[1], state=state, seconds=warm_s))
        ready.add(key)
        own_s = estimate_job_s(history, recipe, programs=wanted.programs, shape_state=state, is_resident=is_resident)
        price.seconds = None if price.seconds is None or own_s is None else price.seconds + own_s
    return price
