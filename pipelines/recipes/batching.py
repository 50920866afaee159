"""Joins recipes into one batch: they may differ only in fields that are per row, and all other fields are the same.

Importable without jax, so that a queue can tell what will run together.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.recipes.recipe import Recipe

# Prompts and seeds are rows of arrays; the frame rate only counts when a video is written.
_OWN = {"prompt": "", "negative_prompt": None, "seed": None, "batch_size": 1, "fps": None, "revision": None}


def find_kind(recipe: Recipe) -> Hashable:
    """Returns a key that resolved recipes have in common if they can share a batch; None for a recipe with pictures."""
    return None if recipe.images else recipe.model_copy(update=_OWN).model_dump_json()


def group_by(lengths: Sequence[int]) -> list[list[int]]:
    """Groups the recipes' numbers by the length of their prompts, the first recipe's group first."""
    return [[n for n, own in enumerate(lengths) if own == length] for length in dict.fromkeys(lengths)]


def join(recipes: Sequence[Recipe]) -> Recipe:
    """Returns one recipe for the outputs of all recipes, which are of one kind; prompt and seed are the first one's."""
    return recipes[0].model_copy(update={"batch_size": sum(recipe.batch_size for recipe in recipes)})


def list_seeds(recipes: Sequence[Recipe]) -> list[int]:
    """Lists the seed of each output of the batch."""
    return [seed for recipe in recipes for seed in recipe.seeds]


def stack_embeddings(recipes: Sequence[Recipe], embeddings: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Stacks the recipes' embeddings, of one row or one per output each, to (B, ...) with a row for each output.

    A recipe without embeddings gets another recipe's rows as placeholders.
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
