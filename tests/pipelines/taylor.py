"""diffusers' own TaylorSeer, for tests of every family, and recipes that foresee the same steps."""

from typing import Any

import torch
from diffusers import TaylorSeerCacheConfig, apply_taylorseer_cache
from diffusers.hooks.hooks import CacheContext, _set_cache_context

from pipelines.recipes.recipe import Recipe
from pipelines.recipes.taylor import Foresight

FORESIGHT = Foresight(interval=3, first=2)


def configure(foresight: Foresight = FORESIGHT, **kind: Any) -> TaylorSeerCacheConfig:
    """The configuration that diffusers takes, in fp32 as the programs have it; lite mode if `kind` names no layers."""
    return TaylorSeerCacheConfig(
        cache_interval=foresight.interval,
        disable_cache_before_step=foresight.first,
        taylor_factors_dtype=torch.float32,
        **(kind or {"use_lite_mode": True}),
    )


def put_on(module: Any, foresight: Foresight = FORESIGHT, **kind: Any) -> None:
    """Puts the hook on a denoiser whose pipeline does not tell its rows apart, as it would for guidance in two runs."""
    apply_taylorseer_cache(module, configure(foresight, **kind))
    _set_cache_context(module, CacheContext("all rows"))


def foresee(recipe: Recipe, *shares: int, foresight: Foresight = FORESIGHT) -> Recipe:
    """The recipe with TaylorSeer; `shares` are the steps of each expert, all those of one if left out."""
    assert recipe.steps is not None
    shares = shares or (recipe.steps,)
    assert sum(shares) == recipe.steps
    return recipe.model_copy(update={"step_cache": str(foresight), "reused_steps": foresight.list_foreseen(shares)})
