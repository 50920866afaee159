"""The whole generation on one screen: prompt to embeddings to latents to pixels.

Everything that differs between models is behind `Family`; everything that differs between callers (command line,
worker, bench) is in `on_progress`.
"""

import functools
import itertools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import finite
from pipelines.models.catalog import Model
from pipelines.pictures.reading import measure_picture
from pipelines.pictures.references import References, choose_references
from pipelines.recipes import batching
from pipelines.recipes.recipe import Recipe
from pipelines.stages import Embeddings, Family, OnProgress, Outcome, Progress, Timings, ignore_progress


def generate(
    family: Family,
    recipe: Recipe,
    *,
    on_progress: OnProgress = ignore_progress,
) -> Outcome:
    """Runs a resolved recipe; raises Cancelled if `on_progress` does, LumeshError if the recipe cannot run.

    Raises NotFiniteError if any of its outputs has values that are no numbers.
    """
    outcome = generate_together(family, [recipe], on_progress=on_progress)
    finite.refuse(outcome.broken, recipe)
    return outcome


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
    that recipe's pixels are meaningless. Raises as `generate` does, but outputs whose values are no numbers are only
    listed in `Outcome.broken`, unless all are.
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
        cache_kind=recipe.cache_kind,
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

    made: list[_Made | None] = [None] * len(recipes)
    for number, group in enumerate(groups):
        own, own_embeddings = [recipes[n] for n in group], [embeddings[n] for n in group]
        if number and any(given is not None for given in own_embeddings):
            joined = batching.join(own)
            timings.compile_s += warm(batch_size=joined.batch_size, text_chunks=lengths[group[0]])
        for n, one in zip(group, _make(family, own, own_embeddings, timings, on_progress=on_progress), strict=True):
            made[n] = one
    timings.step_ms = 1000 * timings.denoise_s / max(1, recipe.computed_steps)
    timings.total_s = time.perf_counter() - started
    compiles = family.compile_count() - compiles_before
    missing = next(one for one in made if one is not None).pixels[:1]
    rows = [
        np.repeat(missing, one.batch_size, axis=0) if own is None else own.pixels
        for one, own in zip(recipes, made, strict=True)
    ]
    starts = np.cumsum([0, *(one.batch_size for one in recipes)])
    broken = [start + row for start, own in zip(starts, made, strict=False) if own for row in own.broken]
    return Outcome(
        pixels=rows[0] if len(rows) == 1 else np.concatenate(rows),
        timings=timings,
        compiles=compiles,
        revision=family.revision,
        broken=tuple(sorted(map(int, broken))),
        notes=tuple(notes),
    )


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A recipe's pixels, and the places of its outputs whose values are no numbers."""

    pixels: np.ndarray
    broken: Collection[int]


def _make(
    family: Family,
    recipes: Sequence[Recipe],
    embeddings: Sequence[Embeddings | None],
    timings: Timings,
    *,
    on_progress: OnProgress,
) -> list[_Made | None]:
    """Denoises and decodes recipes whose prompts are of one length; returns what was made of each, None if nothing."""
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

    broken = finite.find_not_finite(latents, rows=recipe.batch_size)
    if len(broken) == recipe.batch_size:
        finite.refuse(broken, recipe)

    on_progress(Progress(phase="decoding", total=1))
    clock = time.perf_counter()
    pixels = family.decode(recipe, latents)
    timings.decode_s += time.perf_counter() - clock
    broken = (*broken, *finite.find_black(pixels, recipe))
    ends = [0, *np.cumsum([one.batch_size for one in recipes])]
    return [
        _Made(pixels=pixels[start:end], broken={row - start for row in broken if start <= row < end})
        for start, end in itertools.pairwise(ends)
    ]


def find_references(model: Model, recipe: Recipe) -> References | None:
    """Returns number and size of the recipe's pictures, as programs need them; raises RecipeError for other files."""
    if not model.has_references:
        return None
    return choose_references(model, [measure_picture(Path(image)) for image in recipe.images])


def uses_cfg(recipe: Recipe) -> bool:
    """Returns whether classifier-free guidance (two forward passes per step) is on: for scales above 1 (diffusers)."""
    return (recipe.guidance_scale or 0.0) > 1.0
