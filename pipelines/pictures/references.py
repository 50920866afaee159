"""The number of reference pictures, and the one size they are fitted to: both are compiled into the programs.

FLUX.2 sees references as tokens beside the new picture's. Their size is one of the model's own shapes, so that there
are few such programs. Importable without jax: the page says what a recipe costs before any model is loaded.
Not here: the pictures' pixels (flux2/references.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.models.catalog import Model, Shape

MAX_PIXELS = 1024 * 1024  # of one reference, as in diffusers


@dataclass(frozen=True, kw_only=True)
class References:
    """A number of pictures of one size."""

    count: int
    size: Shape

    def __str__(self) -> str:
        return f"{self.count} of {self.size}"


def choose_references(model: Model, sizes: Sequence[tuple[int, int]]) -> References | None:
    """Returns the references for pictures of these sizes (width, height); None if programs do not depend on them."""
    if not sizes or not model.has_references:
        return None
    return References(count=len(sizes), size=choose_size(sizes[0], model.shapes))


def choose_size(size: tuple[int, int], shapes: Sequence[Shape]) -> Shape:
    """Chooses the shape of nearest proportions; of several, the largest that the picture fills, else the smallest."""
    allowed = [shape for shape in shapes if shape.width * shape.height <= MAX_PIXELS] or [min(shapes)]
    width, height = size

    def judge(shape: Shape) -> tuple[float, bool, int]:
        distortion = abs(math.log(width / height * shape.height / shape.width))
        area = shape.width * shape.height
        is_filled = area <= width * height
        return round(distortion, 3), not is_filled, -area if is_filled else area

    return min(allowed, key=judge)


def choose_programs(entries: Sequence[str], model: Model) -> list[tuple[Shape, References | None]]:
    """Parses the values of `--prewarm` and `compile --shape` for a model, skipping shapes that it does not have.

    Examples are `512x512`, `512x512+2` (with two pictures of that size), `all` and `all+1`.
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


def name_programs(shape: Shape | str, references: References | None, text_chunks: int = 1) -> str:
    """Returns the name for the programs of a shape, shown to people: `512x512`, `512x512 with 2 of 768x512`.

    Those for a prompt of several encoder lengths are `512x512 for 2 texts`.
    """
    name = f"{shape} with {references}" if references else str(shape)
    return f"{name} for {text_chunks} texts" if text_chunks > 1 else name
