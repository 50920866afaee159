"""Pictures that a recipe starts from, as files: uploads and pictures made here, by id and only their owner's.

The view `inputs` of the database says what may be named; jobs/queue.py asks it before a job is queued.
"""

from collections.abc import Sequence
from pathlib import Path

from pipelines.errors import LumeshError
from studio.database import Database
from studio.settings import Settings


class InputGoneError(LumeshError):
    """A picture that was there when the job was queued."""

    title = "An input picture is gone"


def find_files(database: Database, settings: Settings, images: Sequence[str], *, owner: str) -> tuple[Path, ...]:
    """The file of each image, in order; raises InputGoneError."""
    folders = {"uploads": settings.uploads_dir, "outputs": settings.outputs_dir}
    files: list[Path] = []
    for image in images:
        row = database.read_one("SELECT folder, file FROM inputs WHERE id = ? AND owner = ?", (image, owner))
        file = folders[row["folder"]] / row["file"] if row else None
        if file is None or not file.is_file():
            raise InputGoneError(
                f"This job starts from {image}, whose file is not in the data directory any more.",
                advice="Add the same picture again and retry, or use these settings with another picture.",
            )
        files.append(file)
    return tuple(files)
