"""Functions that the demo models' quality commands share: generating an output, and counting right attributes."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pipelines.generate import generate
from pipelines.models.catalog import Catalog
from pipelines.recipes.recipe import read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.stages import Family

Counts = Counter[tuple[str, bool]]
"""(attribute, is right) -> how often."""


def draw(
    family: Family,
    catalog: Catalog,
    prompt: str,
    *,
    shape: str,
    steps: int | None,
    seed: int,
    step_cache: str | None = None,
) -> np.ndarray:
    """Generates a uint8 picture (height, width, 3) or video (F, height, width, 3); `steps` None is the default."""
    fields = {"model": family.model.id, "prompt": prompt, "shape": shape, "steps": steps, "seed": seed}
    recipe = resolve(read_recipe(fields | {"step_cache": step_cache}), catalog)
    return generate(family, recipe).pixels[0]


def tell_likeness(
    family: Family, catalog: Catalog, prompts: Sequence[str], *, shape: str, steps: int | None, step_cache: str
) -> str:
    """Returns a line with the mean PSNR in dB between outputs with a step cache and without, of the same seeds."""
    decibels: list[float] = []
    for seed, prompt in enumerate(prompts):
        plain, cached = (
            draw(family, catalog, prompt, shape=shape, steps=steps, seed=seed, step_cache=own)
            for own in (None, step_cache)
        )
        decibels.append(find_psnr(plain, cached))
    fields = {"model": family.model.id, "prompt": prompts[0], "shape": shape, "steps": steps, "step_cache": step_cache}
    recipe = resolve(read_recipe(fields), catalog)
    computed = f"{recipe.computed_steps} of {recipe.denoising_steps} steps"
    return f"{'as without a cache':<24}{np.mean(decibels):7.1f} dB, at worst {min(decibels):.1f} dB, {computed}"


def find_psnr(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the peak signal-to-noise ratio of two uint8 outputs in dB: 138 for the same."""
    error = np.square(one.astype(np.float64) - other.astype(np.float64)).mean()
    return float(10 * np.log10(255**2 / max(1e-9, error)))


def tell_shares(counts: Counts) -> list[str]:
    """Returns a line for each attribute, and one for all together."""
    names = sorted({name for name, _ in counts})
    shares = [(name, _share(counts[name, True], counts[name, False])) for name in names]
    right = sum(count for (_, is_right), count in counts.items() if is_right)
    shares.append(("all attributes", _share(right, counts.total() - right)))
    return [f"{name:<24}{share:7.1%}" for name, share in shares]


def _share(right: int, wrong: int) -> float:
    return right / (right + wrong)
