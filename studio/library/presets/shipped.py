"""Our own presets: `presets/gallery/<id>.json`, and beside it `<id>.webp` where a model of ours made the picture.

A preset for a model whose weights are not in this repository has no picture: the gallery shows the model's name.
"""

import functools
from pathlib import Path

from pipelines.catalog import PRESETS_DIR
from studio.library.presets.preset import Preset, read_preset

GALLERY_DIR = PRESETS_DIR / "gallery"


def thumb_of(preset_id: str) -> Path:
    """Where the thumbnail of a shipped preset is, or would be."""
    return GALLERY_DIR / f"{preset_id}.webp"


@functools.cache
def read_shipped() -> dict[str, Preset]:
    """Every shipped preset by its id, which is its file's name."""
    return {file.stem: read_preset(file.read_bytes()) for file in sorted(GALLERY_DIR.glob("*.json"))}
