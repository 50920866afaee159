"""Pictures of the catalogue's examples: `presets/examples/<model>/<name>.webp`, each made by that very model.

A picture's name holds a digest of what made it, so an example with another prompt or seed, or a model with other
defaults, has none rather than a false one. `python -m studio.library.presets redraw` makes them.
"""

import hashlib
import re
from pathlib import Path

from pipelines.models.catalog import PRESETS_DIR, Model
from pipelines.models.model import Example

EXAMPLES_DIR = PRESETS_DIR / "examples"
_MAX_NAME_CHARS = 40


def picture_of(model: Model, example: Example) -> Path:
    """Returns the path of an example's picture, which may not exist."""
    words = re.sub(r"[^a-z0-9]+", "-", example.prompt.lower())[:_MAX_NAME_CHARS].strip("-")
    settings = [getattr(model, name) for name in ("steps", "guidance_scale", "scheduler", "flow_shift")]
    made_from = repr((example.prompt, example.seed, str(model.default_shape), model.negative_prompt, *settings))
    return EXAMPLES_DIR / model.id / f"{words}-{hashlib.sha256(made_from.encode()).hexdigest()[:6]}.webp"


def has_picture(model: Model, example: Example) -> bool:
    """Returns whether a picture of it is there; one without a seed would be another each time."""
    return example.seed is not None and picture_of(model, example).is_file()
