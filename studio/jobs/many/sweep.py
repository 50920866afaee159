"""One recipe that becomes many jobs: every prompt its prompt stands for, each with several seeds.

Counted before anything is queued, and bounded: a slip of the finger must not fill the queue for a week.
Not here: reading the prompt (templates.py), queueing (queue.submit_all).
"""

import random
import secrets
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pipelines.errors import RecipeError
from pipelines.recipe import MAX_SEED, Recipe
from studio.jobs.many.templates import ReadList, Template, read_template

MAX_JOBS = 100
SHOWN_PROMPTS = 5


class Sweep(BaseModel):
    """What is asked for: `draws` prompts at random, or all; `seeds` from the recipe's on, or from a drawn one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: Recipe
    draws: int | None = Field(default=None, ge=1, le=MAX_JOBS)
    seeds: int = Field(default=1, ge=1, le=MAX_JOBS)


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """A sweep whose prompt was read. `count` is the number of jobs, `combinations` that of all prompts there are."""

    sweep: Sweep
    template: Template

    @property
    def combinations(self) -> int:
        return self.template.count

    @property
    def prompts(self) -> int:
        return min(self.combinations, self.sweep.draws or self.combinations)

    @property
    def count(self) -> int:
        return self.prompts * self.sweep.seeds

    def describe(self) -> dict[str, Any]:
        """For the preview: numbers, and the first prompts."""
        return {
            "count": self.count,
            "prompts": self.prompts,
            "combinations": self.combinations,
            "seeds": self.sweep.seeds,
            "images": self.count * self.sweep.recipe.batch_size,
            "examples": self.template.list_prompts(SHOWN_PROMPTS),
            "is_plain": self.template.is_plain,
            "limit": MAX_JOBS,
        }

    def list_recipes(self) -> list[Recipe]:
        """One recipe for each job; raises RecipeError when there are too many, or no seeds left."""
        recipe, seeds = self.sweep.recipe, self.sweep.seeds
        if self.count > MAX_JOBS:
            raise RecipeError({"prompt": self._refuse_count()})
        width = seeds * max(1, recipe.batch_size)
        first = recipe.seed if recipe.seed is not None or seeds == 1 else secrets.randbelow(MAX_SEED - width)
        rng = random.Random(recipe.seed if recipe.seed is not None else secrets.randbits(64))
        prompts = self.template.draw_prompts(self.prompts, rng)
        return [
            # A batch takes the seeds that follow its own, so the next job begins behind them.
            recipe.model_copy(
                update={"prompt": prompt, "seed": None if first is None else first + number * recipe.batch_size}
            )
            for prompt in prompts
            for number in range(seeds)
        ]

    def _refuse_count(self) -> str:
        what = "prompts" if self.sweep.seeds == 1 else "jobs"
        return f"stands for {self.count:,} {what}; at most {MAX_JOBS} are queued at a time: draw some at random"


def expand(sweep: Sweep, read_list: ReadList) -> Expanded:
    """Reads the sweep's prompt; raises RecipeError when it cannot be read."""
    return Expanded(sweep=sweep, template=read_template(sweep.recipe.prompt, read_list))
