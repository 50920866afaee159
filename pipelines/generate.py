"""The whole generation on one screen: prompt to embeddings to latents to pixels.

Everything that differs between models is behind `Family`; everything that differs between callers (command line,
worker, bench) is in `on_progress`.
"""

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines import batching, finite
from pipelines.catalog import Model
from pipelines.pictures import measure_picture
from pipelines.recipe import Recipe
from pipelines.references import References, choose_references
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

    `encode(n, recipe)` may replace the family's own encoding; if it returns None for a recipe, the others continue, and
    that recipe's pixels are meaningless. Raises as `generate` does, but outputs whose values are no numbers are only
    listed in `Outcome.broken`, unless all are.
    """
    recipe = batching.join(recipes)
    started = time.perf_counter()
    compiles_before = family.compile_count()
    timings = Timings(load_s=family.load_s)
    warm = functools.partial(
        family.warm,
        recipe.parsed_shape,
        batch_size=recipe.batch_size,
        uses_cfg=uses_cfg(recipe),
        references=find_references(family.model, recipe),
        on_progress=on_progress,
    )
    timings.compile_s = warm(stage="encode")

    clock = time.perf_counter()
    family.apply_loras(recipe.loras, on_progress=on_progress)
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
        timings.compile_s += warm()

    clock = time.perf_counter()
    latents = family.denoise(
        recipe,
        batching.stack_embeddings(recipes, embeddings),
        seeds=batching.list_seeds(recipes),
        on_progress=on_progress,
    )
    timings.denoise_s = time.perf_counter() - clock
    timings.step_ms = 1000 * timings.denoise_s / recipe.denoising_steps

    broken = finite.find_not_finite(latents, rows=recipe.batch_size)
    if len(broken) == recipe.batch_size:
        finite.refuse(broken, recipe)

    on_progress(Progress(phase="decoding", total=1))
    clock = time.perf_counter()
    pixels = family.decode(recipe, latents)
    timings.decode_s = time.perf_counter() - clock
    timings.total_s = time.perf_counter() - started
    compiles = family.compile_count() - compiles_before
    broken = tuple(sorted({*broken, *finite.find_black(pixels, recipe)}))
    return Outcome(pixels=pixels, timings=timings, compiles=compiles, revision=family.revision, broken=broken)


def find_references(model: Model, recipe: Recipe) -> References | None:
    """Returns number and size of the recipe's pictures, as programs need them; raises RecipeError for other files."""
    if not model.has_references:
        return None
    return choose_references(model, [measure_picture(Path(image)) for image in recipe.images])


def uses_cfg(recipe: Recipe) -> bool:
    """Returns whether classifier-free guidance (two forward passes per step) is on: for scales above 1 (diffusers)."""
    return (recipe.guidance_scale or 0.0) > 1.0
