"""Sweeps: one recipe that becomes many jobs, one for each prompt of its template and each seed.

A sweep is counted and bounded before anything is queued: a typing error must not fill the queue for a week.
Not here: reading the prompt (templates.py), queueing (queue.submit_all).
"""

import random
import secrets
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pipelines.errors import RecipeError
from pipelines.messages import Message, say
from pipelines.recipes.recipe import MAX_DRAWN_SEED, Recipe
from studio.jobs.many.templates import ReadList, Template, read_template

MAX_JOBS = 100
SHOWN_PROMPTS = 5


class Sweep(BaseModel):
    """A requested sweep: `draws` random prompts, or all, each with `seeds` seeds from the recipe's or a random one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: Recipe
    draws: int | None = Field(default=None, ge=1, le=MAX_JOBS)
    seeds: int = Field(default=1, ge=1, le=MAX_JOBS)


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """A sweep with its prompt parsed. `count` is the number of jobs, `combinations` that of all possible prompts."""

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
        """Returns the preview: the numbers, and the first prompts."""
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
        """Returns one recipe for each job; raises RecipeError when there are too many, or no seeds left."""
        recipe, seeds = self.sweep.recipe, self.sweep.seeds
        if self.count > MAX_JOBS:
            raise RecipeError({"prompt": self._refuse_count()})
        width = seeds * max(1, recipe.batch_size)
        first = recipe.seed if recipe.seed is not None or seeds == 1 else secrets.randbelow(MAX_DRAWN_SEED - width)
        rng = random.Random(recipe.seed if recipe.seed is not None else secrets.randbits(64))
        prompts = self.template.draw_prompts(self.prompts, rng)
        return [
            # A batch uses consecutive seeds from its own on, so the next job begins after them.
            recipe.model_copy(
                update={"prompt": prompt, "seed": None if first is None else first + number * recipe.batch_size}
            )
            for prompt in prompts
            for number in range(seeds)
        ]

    def _refuse_count(self) -> Message:
        count = f"{self.count:,}"
        if self.sweep.seeds == 1:
            return say(
                "stands for {count} prompts; at most {limit} are queued at a time: draw some at random",
                count=count,
                limit=MAX_JOBS,
            )
        return say(
            "stands for {count} jobs; at most {limit} are queued at a time: draw some at random",
            count=count,
            limit=MAX_JOBS,
        )


def expand(sweep: Sweep, read_list: ReadList) -> Expanded:
    """Parses the sweep's prompt; raises RecipeError when it is invalid."""
    return Expanded(sweep=sweep, template=read_template(sweep.recipe.prompt, read_list))
