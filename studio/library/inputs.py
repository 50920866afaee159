"""Pictures that a recipe starts from, as files: uploads and pictures made here, by id and only their owner's.

The view `inputs` of the database says what may be named; jobs/queue.py asks it before a job is queued.
"""

from collections.abc import Sequence
from pathlib import Path

from pipelines.catalog import Model
from pipelines.errors import LumeshError
from pipelines.recipe import Recipe
from pipelines.references import References, choose_references
from studio.database import Database
from studio.settings import Settings


class InputGoneError(LumeshError):
    """A picture that was there when the job was queued."""

    title = "An input picture is gone"


def find_references(database: Database, model: Model, recipe: Recipe, *, owner: str) -> References | None:
    """What the recipe's pictures mean for the programs it needs; unknown pictures are left to jobs/queue.py."""
    rows = [
        database.read_one("SELECT width, height FROM inputs WHERE id = ? AND owner = ?", (image, owner))
        for image in recipe.images
    ]
    return choose_references(model, [(row["width"], row["height"]) for row in rows if row])


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


def is_known(database: Database, image: str, *, owner: str) -> bool:
    """Whether a recipe of this owner may name the picture."""
    return database.read_one("SELECT 1 FROM inputs WHERE id = ? AND owner = ?", (image, owner)) is not None
