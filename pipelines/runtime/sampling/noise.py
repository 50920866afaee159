"""The first noise and that of every ancestral step: torch's own, so that a seed gives diffusers' picture."""

from collections.abc import Sequence

import numpy as np
import torch


class NoiseSource:
    """The noise diffusers would draw: one CPU generator per image, the first picture and then one draw a step.

    Images beyond the `seeds`, which nobody asked for, are drawn from those that follow the last one.
    """

    def __init__(self, *, seeds: Sequence[int], images: int, shape: tuple[int, ...]) -> None:
        drawn = [*seeds, *range(seeds[-1] + 1, seeds[-1] + 1 + images - len(seeds))]
        self._generators = [torch.Generator("cpu").manual_seed(seed) for seed in drawn]
        self._shape = shape

    def draw(self) -> np.ndarray:
        """fp32 (B, *shape)."""
        draws = [torch.randn((1, *self._shape), generator=generator) for generator in self._generators]
        return torch.cat(draws).numpy()
