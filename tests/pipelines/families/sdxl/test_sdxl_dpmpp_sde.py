"""An SDXL with DPM++ SDE gives the picture of diffusers' own pipeline and scheduler, where both draw the same noise."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline, DPMSolverSDEScheduler
from diffusers.schedulers import scheduling_dpmsolver_sde

from pipelines.generate import generate
from pipelines.recipes.recipe import Recipe
from pipelines.stages import Progress
from tests.pipelines.reference import ask

STEPS = 7  # 13 rows, more than a chunk


class OwnMotion:
    """A Brownian motion as diffusers asks for it, from the generator that drew the first noise."""

    def __init__(self, latents: torch.Tensor, *_limits: Any, seed: int = 5) -> None:
        self._generator = torch.Generator("cpu").manual_seed(seed)
        self._shape = latents.shape
        self._draw()
        self._last: tuple[float, float, torch.Tensor] | None = None

    def _draw(self) -> torch.Tensor:
        return torch.randn(self._shape, generator=self._generator)

    def __call__(self, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        noise = self._draw()
        if self._last is not None and self._last[0] == float(start):  # the longer one contains the shorter
            _, middle, shorter = self._last
            share = math.sqrt((float(start) - middle) / (float(start) - float(end)))
            noise = share * shorter + math.sqrt(1 - share**2) * noise
        self._last = float(start), float(end), noise
        return noise


def test_the_picture_is_diffusers_own(
    family: Any,
    draw_recipe: Callable[..., Recipe],
    find_difference: Callable[[np.ndarray, np.ndarray], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = draw_recipe(scheduler="dpmpp_sde", steps=STEPS, guidance_scale=4.0, seed=5)
    torch.set_num_threads(1)
    pipeline: Any = DiffusionPipeline.from_pretrained(family.model.path, dtype=torch.float32)
    pipeline.scheduler = DPMSolverSDEScheduler.from_config(dict(pipeline.scheduler.config))
    monkeypatch.setattr(scheduling_dpmsolver_sde, "BrownianTreeNoiseSampler", OwnMotion)
    expected = ask(pipeline, recipe)
    told: list[Progress] = []
    made = generate(family, recipe, on_progress=told.append).pixels
    assert find_difference(made, expected) <= 2
    steps = [progress for progress in told if progress.phase == "denoising"]
    assert {progress.total for progress in steps} == {STEPS}
    assert steps[-1].done == STEPS
