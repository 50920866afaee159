"""Who joins whose batch: one pure rule, which claiming obeys and places foretell.

`choose_company` is the rule. claims.claim_others gives it the rows as they stand; `Company` gives it every waiting job
beforehand, and knows as much: nobody joins where a run makes one output, nor with a model that is not loaded, as how
many that one makes at once is not known yet.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from pipelines.batching import find_kind
from pipelines.recipe import Recipe
from studio.jobs.job import GENERATE
from studio.jobs.line.order import Waiting

LOOK_AHEAD = 200  # jobs of the model that may join a batch


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a waiting job would bring into a batch: so many `outputs`, of a `kind` that only its equals may join.

    A `kind` of None runs alone.
    """

    kind: Hashable | None
    outputs: int

    @classmethod
    def of(cls, job_kind: str, recipe: Recipe, programs: str) -> "Share":
        """What a job of this kind brings: batches are of pictures and videos alone."""
        kind = find_kind(recipe) if job_kind == GENERATE else None
        return cls(kind=None if kind is None else (programs, kind), outputs=recipe.batch_size)


def choose_company(
    first: Waiting,
    kind: Hashable | None,
    turns: Iterable[Waiting],
    *,
    room: int,
    look: Callable[[Waiting], Share],
    has_more: Callable[[int], bool] = bool,
) -> list[Waiting]:
    """The jobs in turn that join the `first` one, of this kind, for at most `room` outputs more.

    `look` tells what a job would bring; only jobs of the first one's model are looked at, and LOOK_AHEAD of them.
    `has_more` may end the search early: it says whether any job is left that fits into that much room.
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
    """Waiting jobs by id, of which it foretells who will join whom. Each job is asked for, and chosen, once.

    Jobs that it does not know run alone.
    """

    def __init__(self, shares: Mapping[str, Share]) -> None:
        self._shares = shares
        self._left = Counter((share.kind, share.outputs) for share in shares.values() if share.kind is not None)

    def choose(self, first: Waiting, turns: Iterable[Waiting], *, room: int) -> list[Waiting]:
        """The jobs in turn that join the job whose turn it is, into a run of `room` outputs in all."""
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
