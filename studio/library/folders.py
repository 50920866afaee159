"""Measures folders, and empties those whose content can be made again."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.constants import HF_HUB_CACHE

from studio.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the data directory, or the Hugging Face Hub's cache."""

    name: str
    holds: str
    path: Path
    bytes: int
    files: int

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


def measure_parts(settings: Settings) -> list[Part]:
    """Measures what the studio keeps on disk, the most important parts first; links are not followed."""
    data_dir = settings.data_dir
    parts = (
        ("outputs", "pictures and videos", settings.outputs_dir),
        ("database", "jobs, gallery and presets", settings.database_file),
        ("uploads", "pictures and clips to start or learn from", settings.uploads_dir),
        ("presets", "thumbnails of your presets", settings.presets_dir),
        ("trainings", "samples, and states to go on from", settings.training_dir),
        ("wildcards", "text files of options for prompts", settings.wildcards_dir),
        ("models", "your own checkpoints", settings.models_dir),
        ("loras", "your own LoRAs", settings.loras_dir),
        ("packs", "compiled programs to load", data_dir / "packs"),
        ("compile cache", "compiled programs", settings.cache_dir),
        ("plan cache", "what the compiler said about other machines", data_dir / "cache" / "plan"),
        ("training cache", "what models read of training pictures", settings.training_cache_dir),
        ("layouts", "weights as they lie on the mesh", settings.layouts_dir),
        ("logs", "what the worker wrote", settings.worker_log.parent),
        ("hub", "weights from the hub, in the hub's own folder", Path(HF_HUB_CACHE)),
    )
    found: list[Part] = []
    for name, holds, path in parts:
        # SQLite's write-ahead log and its index are in the same folder as the database.
        sizes = list(_sizes(path) if path.is_dir() else _sizes_of_files(path.parent.glob(f"{path.name}*")))
        found.append(Part(name=name, holds=holds, path=path, bytes=sum(sizes), files=len(sizes)))
    return found


def measure_folder(folder: Path) -> tuple[int, int]:
    """Returns the bytes and the number of files in a folder and below; zeros when it does not exist."""
    sizes = list(_sizes(folder))
    return sum(sizes), len(sizes)


def empty_folder(folder: Path) -> tuple[int, int]:
    """Deletes a folder's content, but not the folder; returns the bytes and the number of deleted files."""
    before = measure_folder(folder)
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    after = measure_folder(folder)
    return before[0] - after[0], before[1] - after[1]


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _folders, files in os.walk(folder):
        yield from _sizes_of_files(Path(parent, name) for name in files)


def _sizes_of_files(files: Iterator[Path]) -> Iterator[int]:
    for file in files:
        with suppress(OSError):  # deleted since it was listed
            yield file.lstat().st_size
