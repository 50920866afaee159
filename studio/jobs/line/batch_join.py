"""Who will run together with whom: what claims.claim_others will choose, as far as it can be known beforehand.

Nobody where a run makes one output, nor with a model that is not loaded: how many that makes at once is not known yet.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Self

from pipelines.batching import find_kind
from pipelines.recipe import Recipe
from studio.database import Database
from studio.jobs.engine import Engine
from studio.jobs.line.order import Waiting
from studio.jobs.states import JobState

LOOK_AHEAD = 200  # jobs of the model that may join a batch


class Company:
    """Of waiting jobs, by id their recipe and programs."""

    def __init__(self, engine: Engine, jobs: Mapping[str, tuple[Recipe, str]]) -> None:
        self._at_once = engine.outputs_at_once
        self._outputs = {job_id: recipe.batch_size for job_id, (recipe, _) in jobs.items()}
        self._kinds = (
            {job_id: (programs, find_kind(recipe)) for job_id, (recipe, programs) in jobs.items() if not recipe.images}
            if self._at_once > 1
            else {}
        )
        self._model = engine.model
        self._left = Counter((kind, self._outputs[job_id]) for job_id, kind in self._kinds.items())

    @classmethod
    def read(cls, database: Database, engine: Engine) -> Self:
        """Of all that wait."""
        if engine.outputs_at_once <= 1:
            return cls(engine, {})
        rows = database.read("SELECT id, recipe, programs FROM jobs WHERE state = ?", (JobState.QUEUED,))
        return cls(engine, {row["id"]: (Recipe.model_validate_json(row["recipe"]), row["programs"]) for row in rows})

    def choose(self, first: Waiting, turns: Iterable[Waiting]) -> list[Waiting]:
        """Those in turn that join the job whose turn it is; each job is asked for and chosen once."""
        kind = self._kinds.get(first.id)
        if kind is None or first.model != self._model:
            return []
        self._left[kind, self._outputs[first.id]] -= 1
        room = self._at_once - self._outputs[first.id]
        chosen: list[Waiting] = []
        for job in islice((job for job in turns if job.model == first.model), LOOK_AHEAD):
            if not any(self._left[kind, outputs] for outputs in range(1, room + 1)):
                break
            if self._kinds.get(job.id) == kind and self._outputs[job.id] <= room:
                chosen.append(job)
                room -= self._outputs[job.id]
                self._left[kind, self._outputs[job.id]] -= 1
        return chosen
