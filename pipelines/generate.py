"""The whole generation on one screen: prompt to embeddings to latents to pixels.

Everything that differs between models is behind `Family`; everything that differs between callers (command line,
worker, bench) is in `on_progress`.
"""

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import batching
from pipelines.catalog import Model
from pipelines.recipe import Recipe
from pipelines.references import References, choose_references
from pipelines.runtime.sampling.pictures import measure_picture
from pipelines.stages import Embeddings, Family, OnProgress, Outcome, Progress, Timings, ignore_progress


def generate(
    family: Family,
    recipe: Recipe,
    *,
    on_progress: OnProgress = ignore_progress,
) -> Outcome:
    """Runs a resolved recipe; raises Cancelled if `on_progress` does, LumeshError if the recipe cannot run."""
    return generate_together(family, [recipe], on_progress=on_progress)


def generate_together(
    family: Family,
    recipes: Sequence[Recipe],
    *,
    on_progress: OnProgress = ignore_progress,
    encode: Callable[[int, Recipe], Embeddings | None] | None = None,
) -> Outcome:
    """Runs resolved recipes of one kind (batching.py) as one batch; its pixels are in the recipes' order.

    Recipes whose prompts take different numbers of encoder lengths run one group after the other, as their
    programs differ.

    `encode(n, recipe)` may replace the family's own encoding; if it returns None for a recipe, the others continue, and
    that recipe's pixels are meaningless. Raises as `generate` does.
    """
    recipe = batching.join(recipes)
    lengths = [family.count_text_chunks(one) for one in recipes]
    groups = batching.group_by(lengths)
    started = time.perf_counter()
    compiles_before = family.compile_count()
    timings = Timings(load_s=family.load_s)
    warm = functools.partial(
        family.warm,
        recipe.parsed_shape,
        uses_cfg=uses_cfg(recipe),
        references=find_references(family.model, recipe),
        on_progress=on_progress,
    )
    warm_first = functools.partial(
        warm, batch_size=batching.join([recipes[n] for n in groups[0]]).batch_size, text_chunks=lengths[0]
    )
    timings.compile_s = warm_first(stage="encode")

    clock = time.perf_counter()
    notes = family.apply_loras(recipe.loras, on_progress=on_progress)
    timings.load_s += time.perf_counter() - clock

    others = family.count_compiling()
    meanwhile = f"while {others} programs get ready" if others else ""
    on_progress(Progress(phase="encoding", total=1, detail=meanwhile))
    clock = time.perf_counter()
    if encode is None:
        embeddings = [family.encode(one, on_progress=on_progress) for one in recipes]
    else:
        embeddings = [encode(number, one) for number, one in enumerate(recipes)]
    timings.encode_s = time.perf_counter() - clock
    if timings.compile_s:  # something was missing
        timings.compile_s += warm_first()

    pixels: list[Any] = [None] * len(recipes)
    for number, group in enumerate(groups):
        own, own_embeddings = [recipes[n] for n in group], [embeddings[n] for n in group]
        if number and any(given is not None for given in own_embeddings):
            joined = batching.join(own)
            timings.compile_s += warm(batch_size=joined.batch_size, text_chunks=lengths[group[0]])
        for n, made in zip(group, _make(family, own, own_embeddings, timings, on_progress=on_progress), strict=True):
            pixels[n] = made
    timings.step_ms = 1000 * timings.denoise_s / recipe.denoising_steps
    timings.total_s = time.perf_counter() - started
    compiles = family.compile_count() - compiles_before
    missing = next(made for made in pixels if made is not None)[:1]
    rows = [
        np.repeat(missing, one.batch_size, axis=0) if made is None else made
        for one, made in zip(recipes, pixels, strict=True)
    ]
    whole = rows[0] if len(rows) == 1 else np.concatenate(rows)
    return Outcome(pixels=whole, timings=timings, compiles=compiles, revision=family.revision, notes=tuple(notes))


def _make(
    family: Family,
    recipes: Sequence[Recipe],
    embeddings: Sequence[Embeddings | None],
    timings: Timings,
    *,
    on_progress: OnProgress,
) -> list[np.ndarray | None]:
    """Denoises and decodes recipes whose prompts are of one length; returns each one's pixels, None without any."""
    if all(given is None for given in embeddings):
        return [None] * len(recipes)
    recipe = batching.join(recipes)
    clock = time.perf_counter()
    latents = family.denoise(
        recipe,
        batching.stack_embeddings(recipes, embeddings),
        seeds=batching.list_seeds(recipes),
        on_progress=on_progress,
    )
    timings.denoise_s += time.perf_counter() - clock

    on_progress(Progress(phase="decoding", total=1))
    clock = time.perf_counter()
    pixels = family.decode(recipe, latents)
    timings.decode_s += time.perf_counter() - clock
    ends = np.cumsum([one.batch_size for one in recipes])
    return list(np.split(pixels, ends[:-1]))


def find_references(model: Model, recipe: Recipe) -> References | None:
    """Returns number and size of the recipe's pictures, as programs need them; raises RecipeError for other files."""
    if not model.has_references:
        return None
    return choose_references(model, [measure_picture(Path(image)) for image in recipe.images])


def uses_cfg(recipe: Recipe) -> bool:
    """Returns whether classifier-free guidance (two forward passes per step) is on: for scales above 1 (diffusers)."""
    return (recipe.guidance_scale or 0.0) > 1.0
