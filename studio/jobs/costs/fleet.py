"""The workers that take jobs, each with what was measured on its device: which of them would make a job soonest.

Estimates for people are of the best one: a size is warm where a worker has it in memory, whatever others have. That is
where the queue sends the job, unless others wait there (jobs/line).
Not here: the estimates themselves (estimates.py).
"""

from dataclasses import dataclass

from studio.database import Database
from studio.jobs.costs.estimates import History, read_history, read_shape_state
from studio.jobs.workers import LOCAL, WorkerRow, read_worker, read_workers

RANK = {"warm": 0, "disk": 1, "cold": 2}


@dataclass(frozen=True, kw_only=True)
class Member:
    """A worker, and the measurements of its device."""

    worker: WorkerRow
    history: History

    def holds(self, model: str) -> bool:
        return self.worker.model == model

    def read_state(self, model: str, programs: str) -> str:
        """Returns `warm`, `disk` or `cold`, of these programs on this worker."""
        return read_shape_state(self.worker, self.history, model, programs)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Workers, at least one, in the order in which they came."""

    members: tuple[Member, ...]

    def list_able(self, model: str) -> list[Member]:
        """Returns the workers that make this model's jobs, one of those that would take the same time.

        A pinned worker makes those of its own model. Where nobody would, all are returned.
        """
        able = [one for one in self.members if one.holds(model) or not one.worker.is_pinned] or self.members
        kinds: dict[tuple[int, frozenset[tuple[str, str]] | None], Member] = {}
        for one in able:
            shapes = frozenset(one.worker.shapes.items()) if one.holds(model) else None
            kinds.setdefault((id(one.history), shapes), one)
        return [*kinds.values()]

    def choose(self, model: str, programs: str) -> tuple[Member, str]:
        """Returns the worker on which these programs are nearest to warm, and their state there."""
        states = [(one, one.read_state(model, programs)) for one in self.list_able(model)]
        return min(states, key=lambda found: (RANK[found[1]], not found[0].holds(model)))


def read_fleet(database: Database) -> Fleet:
    """Reads the workers that are alive and not drained; before any is, the first one stands for them."""
    rows = [row for row in read_workers(database) if row.is_alive and not row.is_draining]
    histories: dict[tuple[str, float, bool], History] = {}
    members: list[Member] = []
    for row in rows or [read_worker(database)]:
        device = (row.device, row.cache_cleared_at, row.id == LOCAL)
        if device not in histories:
            histories[device] = read_history(database, row.id)
        members.append(Member(worker=row, history=histories[device]))
    return Fleet(members=tuple(members))
