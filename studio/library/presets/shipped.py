"""The shipped presets: `presets/gallery/<id>.json`, and `<id>.webp` if a demo model made its picture.

A preset for a model whose weights are not in this repository has no picture: the gallery shows the model's name.
"""

import functools
from pathlib import Path

from pipelines.models.catalog import PRESETS_DIR
from studio.library.presets.preset import Preset, read_preset

GALLERY_DIR = PRESETS_DIR / "gallery"


def thumb_of(preset_id: str) -> Path:
    """Returns the path of a shipped preset's thumbnail, which may not exist."""
    return GALLERY_DIR / f"{preset_id}.webp"


@functools.cache
def read_shipped() -> dict[str, Preset]:
    """Reads every shipped preset, by id, which is the file's name."""
    return {file.stem: read_preset(file.read_bytes()) for file in sorted(GALLERY_DIR.glob("*.json"))}
