"""Folders of trainings among the data, which are none: their samples and prior pictures were made by a model."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

SETTINGS = "settings.json"
_FIELDS = {"caption_dropout", "save_every_minutes"}
"""Settings by which a training's settings.json is known from other programs'."""


def find_trainings(place: Path) -> Iterator[Path]:
    """Yields each folder at or below a place that is a training's; hidden ones are left alone, and links followed."""
    seen: set[str] = set()
    for folder, folders, files in os.walk(place, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        seen.add(real)
        if SETTINGS in files and is_training(Path(folder)):
            yield Path(folder)
            folders.clear()


def is_training(folder: Path) -> bool:
    """Tells whether a training works, or has worked, in a folder."""
    try:
        fields = json.loads((folder / SETTINGS).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(fields, dict) and fields.keys() >= _FIELDS
