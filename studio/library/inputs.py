"""Finds the files of a recipe's input pictures: uploads and outputs, named by id, and only the owner's own.

The database view `inputs` defines which ids are valid, and `lessons` those that a training may learn from; it is
checked before a job is queued (jobs/queue.py, jobs/trainings.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pipelines.errors import LumeshError
from pipelines.messages import say
from pipelines.models.catalog import Model
from pipelines.pictures.references import References, choose_references
from pipelines.recipes.recipe import Recipe
from studio.database import Database
from studio.settings import Settings


class InputGoneError(LumeshError):
    """An input picture was deleted after the job was queued."""

    title = say("An input picture is gone")


def find_references(database: Database, model: Model, recipe: Recipe, *, owner: str) -> References | None:
    """Returns how the recipe's pictures affect its programs; unknown pictures are left to jobs/queue.py."""
    rows = [
        database.read_one("SELECT width, height FROM inputs WHERE id = ? AND owner = ?", (image, owner))
        for image in recipe.images
    ]
    return choose_references(model, [(row["width"], row["height"]) for row in rows if row])


def find_files(
    database: Database,
    settings: Settings,
    images: Sequence[str],
    *,
    owner: str,
    view: Literal["inputs", "lessons"] = "inputs",
) -> tuple[Path, ...]:
    """Returns the file of each image, or of what is learnt, in order; raises InputGoneError."""
    folders = {"uploads": settings.uploads_dir, "outputs": settings.outputs_dir}
    files: list[Path] = []
    for image in images:
        row = database.read_one(f"SELECT folder, file FROM {view} WHERE id = ? AND owner = ?", (image, owner))
        file = folders[row["folder"]] / row["file"] if row else None
        if file is None or not file.is_file():
            raise InputGoneError(
                say("This job starts from {picture}, whose file is not in the data directory any more.", picture=image),
                advice=say("Add the same picture again and retry, or use these settings with another picture."),
            )
        files.append(file)
    return tuple(files)


def is_known(database: Database, image: str, *, owner: str) -> bool:
    """Tells whether a recipe of this owner may use the picture."""
    return database.read_one("SELECT 1 FROM inputs WHERE id = ? AND owner = ?", (image, owner)) is not None
