"""The method on one screen: prompt to embeddings to latents to pixels.

Everything that differs between models is behind `Family`; everything that differs between callers (command line,
worker, bench) is in `on_progress`.
"""

import time
from collections.abc import Callable

from pipelines.recipe import Recipe
from pipelines.stages import Embeddings, Family, OnProgress, Outcome, Progress, Timings, ignore_progress


def generate(
    family: Family,
    recipe: Recipe,
    *,
    on_progress: OnProgress = ignore_progress,
    encode: Callable[[Recipe], Embeddings] | None = None,
) -> Outcome:
    """Runs a resolved recipe; raises Cancelled when `on_progress` does, LumeshError when the recipe cannot run.

    `encode` takes the place of the family's own text encoder, which then need not be loaded.
    """
    started = time.perf_counter()
    compiles_before = family.compile_count()
    timings = Timings(load_s=family.load_s)
    timings.compile_s = family.warm(
        recipe.parsed_shape,
        batch_size=recipe.batch_size,
        uses_cfg=uses_cfg(recipe),
        on_progress=on_progress,
    )

    on_progress(Progress(phase="encoding", total=1))
    clock = time.perf_counter()
    embeddings = (encode or family.encode)(recipe)
    timings.encode_s = time.perf_counter() - clock

    clock = time.perf_counter()
    latents = family.denoise(recipe, embeddings, on_progress=on_progress)
    timings.denoise_s = time.perf_counter() - clock
    timings.step_ms = 1000 * timings.denoise_s / (recipe.steps or 1)

    on_progress(Progress(phase="decoding", total=1))
    clock = time.perf_counter()
    pixels = family.decode(recipe, latents)
    timings.decode_s = time.perf_counter() - clock
    timings.total_s = time.perf_counter() - started
    return Outcome(pixels=pixels, timings=timings, compiles=family.compile_count() - compiles_before)


def uses_cfg(recipe: Recipe) -> bool:
    """Classifier-free guidance runs two forwards a step; at a scale of 1 or less one is enough (diffusers' rule)."""
    return (recipe.guidance_scale or 0.0) > 1.0
