"""Which waiting job runs next.

Swapping models costs a reload; waiting costs a person's patience. This file holds that one trade: a job is overtaken
by at most `MAX_OVERTAKES` jobs of the resident model. Pure: rows in, job and reason out.
Not here: claiming (claims.py), showing (queue.py and the page).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_OVERTAKES = 4


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A waiting job as far as its order matters."""

    id: str
    model: str
    overtaken: int = 0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A waiting job at its place in line, with the reason when that is not its place of arrival."""

    job_id: str
    model: str
    reason: str


def choose_next(waiting: Sequence[Waiting], resident: str | None) -> Waiting | None:
    """The oldest job of the resident model, unless it would overtake somebody who waited long enough; else the oldest.

    `waiting` is in order of arrival.
    """
    for position, job in enumerate(waiting):
        if job.model == resident and all(other.overtaken < MAX_OVERTAKES for other in waiting[:position]):
            return job
    return waiting[0] if waiting else None


def plan_turns(waiting: Sequence[Waiting], resident: str | None, switch_s: float | None = None) -> list[Turn]:
    """The whole line in the order in which it will run if nobody joins; `switch_s` is what a model switch costs."""
    left = list(waiting)
    turns: list[Turn] = []
    overtakers: dict[str, list[str]] = {job.id: [] for job in left}
    while (chosen := choose_next(left, resident)) is not None:
        position = left.index(chosen)
        turns.append(
            Turn(job_id=chosen.id, model=chosen.model, reason=_explain(overtakers[chosen.id], switch_s=switch_s))
        )
        for other in left[:position]:
            overtakers[other.id].append(chosen.model)
        left = [replace(other, overtaken=other.overtaken + 1) for other in left[:position]] + left[position + 1 :]
        resident = chosen.model
    return turns


def _explain(overtakers: list[str], *, switch_s: float | None) -> str:
    if not overtakers:
        return ""
    count, model = len(overtakers), overtakers[0]
    saved = f": saves a {switch_s:.0f} s switch" if switch_s and switch_s >= 1 else ": saves a model switch"
    return f"{count} {model} job{'s' if count > 1 else ''} first{saved}"
