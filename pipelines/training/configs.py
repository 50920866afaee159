"""The configs of what is learnt from, by which a training is checked before its weights are here.

Those of a shipped model and of a folder are always at hand; those of another hub repository once they were fetched.
Importable without jax.
Not here: fetching them (runtime/weights/hub.py).
"""

import json
from pathlib import Path

from pipelines.models.catalog import Model, find_folder
from pipelines.models.own_models import INDEX
from pipelines.runtime.weights.hub_pins import choose_revision

_READ = ("unet", "transformer", "transformer_2", "vae")
"""Components whose configs checks read."""


def find_known_configs(model: Model) -> Path | None:
    """Returns a folder with the model's configs that is on this machine; None where there is none yet."""
    place = model.in_place
    if (folder := find_folder(model)) is not None or place.path is not None or not place.repo:
        return folder
    from huggingface_hub import try_to_load_from_cache  # slow to import

    index = try_to_load_from_cache(place.repo, INDEX, revision=choose_revision(place))
    folder = Path(index).parent if isinstance(index, str) else None
    return folder if folder is not None and _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    """Tells whether the configs are here, and not their list alone."""
    named = json.loads((folder / INDEX).read_text("utf-8"))
    return all((folder / name / "config.json").is_file() for name in _READ if (named.get(name) or [None])[0])
