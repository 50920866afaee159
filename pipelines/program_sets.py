"""Which programs a run needs: those of its size, input pictures, length of prompts, number of outputs and guidance.

A set of programs is compiled once and has a name, by which the worker tells what is warm, and the studio what a job
would cost. Importable without jax.
Not here: the programs themselves (families), references and the first half of the name (references.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from pipelines.generate import uses_cfg
from pipelines.models.catalog import Model, Shape
from pipelines.pictures.references import References, choose_programs, name_programs
from pipelines.recipes.cache_kinds import MAGCACHE, SUFFIXES
from pipelines.recipes.recipe import Recipe

USUAL_COUNTS = (1, 2, 4, 8)  # outputs of a run, as static/js/create/controls.js offers them

_COUNT = re.compile(r" ×\d+")


@dataclass(frozen=True, kw_only=True)
class ProgramSet:
    """The programs of one model for runs of one kind; `is_guided` tells whether classifier-free guidance is on.

    With a `cache_kind` (recipes/cache_kinds.py) steps may reuse earlier ones; how much is no matter of programs.
    """

    shape: Shape
    references: References | None = None
    text_chunks: int = 1
    batch_size: int = 1
    is_guided: bool
    cache_kind: str = ""

    @classmethod
    def usual(cls, model: Model, shape: Shape) -> "ProgramSet":
        """Returns the set for one output of a short prompt, with the model's default guidance."""
        return cls(shape=shape, is_guided=model.guidance_scale > 1)

    @classmethod
    def of(cls, recipe: Recipe, *, references: References | None, text_chunks: int) -> "ProgramSet":
        """Returns the set that a resolved recipe runs with."""
        return cls(
            shape=recipe.parsed_shape,
            references=references,
            text_chunks=text_chunks,
            batch_size=recipe.batch_size,
            is_guided=uses_cfg(recipe),
            cache_kind=recipe.cache_kind,
        )

    def name_for(self, model: Model) -> str:
        """Returns the name, shown to people: that of the usual set is the size alone.

        Others are `512x512 with 2 of 768x512`, `512x512 ×4` (outputs at once), `512x512 without guidance`,
        `512x512 with a step cache`, `512x512 with TaylorSeer`.
        """
        name = name_programs(self.shape, self.references, self.text_chunks)
        if self.batch_size > 1:
            name += f" ×{self.batch_size}"
        if self.is_guided != (model.guidance_scale > 1):
            name += " with guidance" if self.is_guided else " without guidance"
        return name + SUFFIXES[self.cache_kind]


def drop_count(name: str) -> str:
    """Returns the name of a set without its number of outputs, which runs that are made as one do not share."""
    return _COUNT.sub("", name)


def list_variants(model: Model, shape: Shape, counts: Sequence[int] | None = None) -> list[ProgramSet]:
    """Lists the sets of a size for short prompts without pictures, other than the usual one.

    They are for each of `counts`, by default all numbers of outputs that the model allows, with and without guidance.
    """
    usual = ProgramSet.usual(model, shape)
    numbers = range(1, model.max_batch_size + 1) if counts is None else counts
    found = (
        ProgramSet(shape=shape, batch_size=count, is_guided=is_guided)
        for count, is_guided in product(numbers, (True, False))
        if count <= model.max_batch_size
    )
    return [one for one in found if one != usual]


def choose_prewarmed(entries: Sequence[str], model: Model) -> list[ProgramSet]:
    """Returns the sets that the values of `--prewarm` name for a model, skipping what it does not have.

    Examples are `512x512`, `512x512+2` (with two pictures), `512x512*4` (four at once), `all`, and `all+1*2`; one that
    begins with a model's id and a colon is for that model only. `512x512~` are those with a step cache,
    `512x512~taylor` those of TaylorSeer, for models that have them.
    """
    found: list[ProgramSet] = []
    for entry in entries:
        owner, _, sizes = entry.rpartition(":")
        sizes, mark, kind = sizes.partition("~")
        cache_kind = (kind or MAGCACHE) if mark else ""
        if cache_kind and cache_kind not in model.cache_kinds:
            continue
        sizes, _, count = sizes.partition("*")
        if owner not in ("", model.id) or int(count or 1) > model.max_batch_size:
            continue
        found += [
            ProgramSet(
                shape=shape,
                references=references,
                batch_size=int(count or 1),
                is_guided=model.guidance_scale > 1,
                cache_kind=cache_kind,
            )
            for shape, references in choose_programs([sizes], model)
        ]
    return found
