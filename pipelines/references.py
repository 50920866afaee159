"""Reference pictures as far as programs are concerned: how many there are, and the one size they are fitted to.

FLUX.2 sees references as tokens beside the new picture's, so both are part of what is compiled; the size is one of the
model's own shapes, so that there are few such programs. Without jax: the page says what a recipe costs before any model
is loaded.
Not here: the pictures' pixels (flux2/references.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.catalog import Model, Shape

MAX_PIXELS = 1024 * 1024  # of one reference, as in diffusers


@dataclass(frozen=True, kw_only=True)
class References:
    """So many pictures of one size."""

    count: int
    size: Shape

    def __str__(self) -> str:
        return f"{self.count} of {self.size}"


def choose_references(model: Model, sizes: Sequence[tuple[int, int]]) -> References | None:
    """What pictures of these sizes (width, height) become; None where they make no difference to the programs."""
    if not sizes or not model.has_references:
        return None
    return References(count=len(sizes), size=choose_size(sizes[0], model.shapes))


def choose_size(size: tuple[int, int], shapes: Sequence[Shape]) -> Shape:
    """The proportions nearest to the picture's; of several sizes the largest that it fills, else the smallest."""
    allowed = [shape for shape in shapes if shape.width * shape.height <= MAX_PIXELS] or [min(shapes)]
    width, height = size

    def judge(shape: Shape) -> tuple[float, bool, int]:
        distortion = abs(math.log(width / height * shape.height / shape.width))
        area = shape.width * shape.height
        is_filled = area <= width * height
        return round(distortion, 3), not is_filled, -area if is_filled else area

    return min(allowed, key=judge)


def choose_programs(entries: Sequence[str], model: Model) -> list[tuple[Shape, References | None]]:
    """What `--prewarm` and `compile --shape` mean for a model; what it has not is left out.

    `512x512`, `512x512+2` with two pictures as large, `all`, `all+1`.
    """
    found: list[tuple[Shape, References | None]] = []
    for entry in entries:
        name, _, pictures = entry.partition("+")
        count = int(pictures or 0)
        for shape in model.shapes:
            if name not in ("all", str(shape)) or count > model.max_images:
                continue
            references = choose_references(model, [(shape.width, shape.height)] * count)
            if references is not None or not count:
                found.append((shape, references))
    return found


def name_programs(shape: Shape | str, references: References | None) -> str:
    """What people, measurements and the page call the programs of a shape: `512x512`, `512x512 with 2 of 768x512`."""
    return f"{shape} with {references}" if references else str(shape)
