"""Which sizes can be learnt, of those that are asked for by hand: of a plan, of a pack. Importable without jax.

Not here: sizes of pictures that are there (data/cuts.py).
"""

from dataclasses import replace

from pipelines.errors import RecipeError
from pipelines.messages import Message, english
from pipelines.models.model import Model, Shape
from pipelines.training.settings import TrainingSettings

SMALLEST, LARGEST = 64, 4096
"""Sides in pixels, as of `--resolution`."""


def parse_size(text: str, model: Model) -> Shape:
    """Returns the size of a text; raises RecipeError for one that is none."""
    try:
        return Shape.parse(text)
    except ValueError as error:
        raise RecipeError({"shape": english(f"{text} is no size, such as {model.default_shape}")}) from error


def choose_size(settings: TrainingSettings, model: Model) -> Shape:
    """Returns the size of the settings' resolution and frames, where they are asked for, or the model's default."""
    shape = model.default_shape
    if settings.resolution is not None:
        shape = replace(shape, width=settings.resolution, height=settings.resolution)
    return shape if settings.frames is None else replace(shape, frames=settings.frames)


def find_size_problem(shape: Shape, model: Model, *, multiple: int) -> Message | None:
    """Returns why the model cannot learn from this size, None if it can; sides are multiples of `multiple`."""
    for side in (shape.width, shape.height):
        if side % multiple or not SMALLEST <= side <= LARGEST:
            near = min(max(round(side / multiple), -(-SMALLEST // multiple)), LARGEST // multiple) * multiple
            return english(
                f"{shape}: sides are multiples of {multiple} pixels from {SMALLEST} to {LARGEST}, such as {near}"
            )
    if shape.frames > 1 and not model.is_video:
        return english(f"{shape} has frames, and {model.id} makes pictures; leave them out")
    if shape.frames % 4 != 1:
        return english(f"{shape}: {shape.frames} frames are not 4n + 1, such as {shape.frames // 4 * 4 + 1}")
    return None
