"""The first noise and that of every ancestral step: torch's own, so that a seed gives diffusers' picture."""

import numpy as np
import torch


class NoiseSource:
    """The noise diffusers would draw: one CPU generator per image, the first picture and then one draw a step."""

    def __init__(self, *, seed: int, images: int, shape: tuple[int, ...]) -> None:
        self._generators = [torch.Generator("cpu").manual_seed(seed + index) for index in range(images)]
        self._shape = shape

    def draw(self) -> np.ndarray:
        """fp32 (B, *shape)."""
        draws = [torch.randn((1, *self._shape), generator=generator) for generator in self._generators]
        return torch.cat(draws).numpy()
