"""Nothing of values that are no numbers is saved: a black picture is never what a job was done for.

A LoRA that is too strong, or damaged weights, make latents NaN or infinite, and a decoder turns those into black. Both
are looked at on the host, after denoising and after decoding, so that no program changes.
Not here: previews, which may fail without anything else (families/learnt_preview.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import LumeshError
from pipelines.messages import say
from pipelines.pictures.reading import open_picture
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts

DARK = 16  # of 255: a picture to start from that is no brighter may well become black


class NotFiniteError(LumeshError):
    """The model computed values that are no numbers, or only black."""

    title = say("No picture came out of this")


def find_not_finite(latents: Any, *, rows: int) -> tuple[int, ...]:
    """Returns which of the first `rows` outputs have latents (B, ...) with NaN or infinite values."""
    values = hosts.fetch(latents)[:rows]
    return tuple(row for row, own in enumerate(values) if not np.isfinite(own).all())


def find_black(pixels: np.ndarray, recipe: Recipe) -> tuple[int, ...]:
    """Returns which outputs of uint8 pixels (B, ...) are black everywhere, and did not start from a black picture."""
    black = tuple(row for row, own in enumerate(pixels) if not own.any())
    starts_black = bool(black and recipe.images) and all(_is_dark(Path(image)) for image in recipe.images)
    return () if starts_black else black


def refuse(rows: Sequence[int], recipe: Recipe) -> None:
    """Raises NotFiniteError, which says what is likely, if any output of the recipe is among `rows`."""
    if not rows:
        return
    names = ", ".join(f"{lora.ref} ({lora.scale:g})" for lora in recipe.loras)
    if names:
        advice = say("Most likely a LoRA is too strong: give it a lower scale, or leave it out: {names}.", names=names)
    else:
        advice = say("Most likely the weights are damaged: start with --verify-weights, or download them again.")
    detail = say(
        "The values that {model} computed for {broken} of {all} are not finite, so that all would be black.",
        model=recipe.model,
        broken=len(rows),
        all=recipe.batch_size,
    )
    raise NotFiniteError(detail, advice=advice)


def _is_dark(file: Path) -> bool:
    return int(np.asarray(open_picture(file)).max()) < DARK
