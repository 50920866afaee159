"""Which waiting jobs join a batch: one pure rule, used both to claim jobs and to predict their places.

`choose_company` is the rule. claims.claim_others applies it to the current rows; `Company` applies it to all waiting
jobs in advance. No job joins where a run makes one output, or with a model that is not loaded, because the number of
outputs that such a model makes at once is not known yet.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from pipelines.program_sets import drop_count
from pipelines.recipes.batching import find_kind
from pipelines.recipes.recipe import Recipe
from studio.jobs.job import GENERATE
from studio.jobs.line.order import Waiting

LOOK_AHEAD = 200  # waiting jobs of the same model that are considered for a batch


@dataclass(frozen=True, kw_only=True)
class Share:
    """A waiting job's contribution to a batch: its number of `outputs`, and the `kind` that all of a batch must share.

    A job whose `kind` is None runs alone.
    """

    kind: Hashable | None
    outputs: int

    @classmethod
    def of(cls, job_kind: str, recipe: Recipe, programs: str) -> "Share":
        """Returns a job's contribution; only pictures and videos are batched."""
        kind = find_kind(recipe) if job_kind == GENERATE else None
        return cls(kind=None if kind is None else (drop_count(programs), kind), outputs=recipe.batch_size)


def choose_company(
    first: Waiting,
    kind: Hashable | None,
    turns: Iterable[Waiting],
    *,
    room: int,
    look: Callable[[Waiting], Share],
    has_more: Callable[[int], bool] = bool,
) -> list[Waiting]:
    """Returns the jobs, in turn, of this kind that join the `first` one, for at most `room` more outputs.

    `look` returns a job's contribution; only the next LOOK_AHEAD jobs of the same model are considered.
    `has_more` may end the search early: it tells whether any remaining job fits into that much room.
    """
    chosen: list[Waiting] = []
    if kind is None:
        return chosen
    for job in islice((job for job in turns if job.model == first.model), LOOK_AHEAD):
        if room <= 0 or not has_more(room):
            break
        share = look(job)
        if share.kind == kind and share.outputs <= room:
            chosen.append(job)
            room -= share.outputs
    return chosen


ALONE = Share(kind=None, outputs=1)


class Company:
    """Predicts which waiting jobs, given by id, will join which batch. Each job must be passed or chosen only once.

    Jobs with unknown ids run alone.
    """

    def __init__(self, shares: Mapping[str, Share]) -> None:
        self._shares = shares
        self._left = Counter((share.kind, share.outputs) for share in shares.values() if share.kind is not None)

    def choose(self, first: Waiting, turns: Iterable[Waiting], *, room: int) -> list[Waiting]:
        """Returns the jobs, in turn, that join the `first` one in a run of `room` outputs in all."""
        share = self._shares.get(first.id, ALONE)
        self._left[share.kind, share.outputs] -= 1

        def has_more(room: int) -> bool:
            return any(self._left[share.kind, outputs] > 0 for outputs in range(1, room + 1))

        chosen: list[Waiting] = []
        if room > share.outputs:
            chosen = choose_company(
                first,
                share.kind,
                turns,
                room=room - share.outputs,
                look=lambda job: self._shares.get(job.id, ALONE),
                has_more=has_more,
            )
        for job in chosen:
            self._left[share.kind, self._shares[job.id].outputs] -= 1
        return chosen
