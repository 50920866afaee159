"""Functions that the demo models' quality commands share: generating an output, and counting right attributes."""

from collections import Counter

import numpy as np

from pipelines.catalog import Catalog
from pipelines.generate import generate
from pipelines.recipe import read_recipe, resolve
from pipelines.stages import Family

Counts = Counter[tuple[str, bool]]
"""(attribute, is right) -> how often."""


def draw(family: Family, catalog: Catalog, prompt: str, *, shape: str, steps: int | None, seed: int) -> np.ndarray:
    """Generates a uint8 picture (height, width, 3) or video (F, height, width, 3); `steps` None is the default."""
    fields = {"model": family.model.id, "prompt": prompt, "shape": shape, "steps": steps, "seed": seed}
    return generate(family, resolve(read_recipe(fields), catalog)).pixels[0]


def tell_shares(counts: Counts) -> list[str]:
    """Returns a line for each attribute, and one for all together."""
    names = sorted({name for name, _ in counts})
    shares = [(name, _share(counts[name, True], counts[name, False])) for name in names]
    right = sum(count for (_, is_right), count in counts.items() if is_right)
    shares.append(("all attributes", _share(right, counts.total() - right)))
    return [f"{name:<24}{share:7.1%}" for name, share in shares]


def _share(right: int, wrong: int) -> float:
    return right / (right + wrong)
