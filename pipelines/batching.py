"""Recipes that run as one batch: what differs between them belongs to a row of its own, all else is the same.

Importable without jax, so that a queue can say what will run together.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.recipe import Recipe

# Prompts and seeds are rows of arrays; the frame rate only counts when a video is written.
_OWN = {"prompt": "", "negative_prompt": None, "seed": None, "batch_size": 1, "fps": None, "revision": None}


def find_kind(recipe: Recipe) -> Hashable:
    """Alike for resolved recipes that can share a batch; None for one that runs alone, as it starts from pictures."""
    return None if recipe.images else recipe.model_copy(update=_OWN).model_dump_json()


def join(recipes: Sequence[Recipe]) -> Recipe:
    """One recipe of the kind of all, for as many outputs; its prompt and seed are the first one's."""
    return recipes[0].model_copy(update={"batch_size": sum(recipe.batch_size for recipe in recipes)})


def list_seeds(recipes: Sequence[Recipe]) -> list[int]:
    """Of each output of the batch."""
    return [seed for recipe in recipes for seed in recipe.seeds]


def stack_embeddings(recipes: Sequence[Recipe], embeddings: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Name -> (B, ...), a row for each output, of each recipe's embeddings (one row, or one for each output).

    Where a recipe has none its rows are somebody else's.
    """
    spare = next(own for own in embeddings if own is not None)
    whole = [{name: np.asarray(spare[name])[:1] for name in spare} if own is None else own for own in embeddings]
    return {
        name: np.concatenate(
            [
                np.repeat(np.asarray(own[name]), recipe.batch_size // len(own[name]), axis=0)
                for recipe, own in zip(recipes, whole, strict=True)
            ]
        )
        for name in spare
    }
