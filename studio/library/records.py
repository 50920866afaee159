"""Finished outputs as rows: what they are, whose they are, and the recipe that makes each one again."""

import sqlite3
from dataclasses import dataclass
from typing import Any

from pipelines.recipe import Recipe
from studio.database import Database, Transaction
from studio.library.files import SavedFile


@dataclass(frozen=True, kw_only=True)
class Output:
    """One finished picture or video; `file` and `thumb` lie in the outputs folder, and never leave the server."""

    id: str
    job_id: str
    owner: str
    kind: str
    file: str
    thumb: str
    width: int
    height: int
    frames: int
    seed: int
    recipe: Recipe
    created_at: float

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "Output":
        """Reads a full row of the table `outputs`."""
        return cls(
            id=row["id"],
            job_id=row["job_id"],
            owner=row["owner"],
            kind=row["kind"],
            file=row["file"],
            thumb=row["thumb"],
            width=row["width"],
            height=row["height"],
            frames=row["frames"],
            seed=row["seed"],
            recipe=Recipe.model_validate_json(row["recipe"]),
            created_at=row["created_at"],
        )

    def link(self) -> dict[str, Any]:
        """The output as a job lists it."""
        poster = {"poster_url": f"/api/v1/outputs/{self.id}/poster"} if self.kind == "video" else {}
        return {
            "id": self.id,
            "kind": self.kind,
            "url": f"/api/v1/outputs/{self.id}/file",
            "thumb_url": f"/api/v1/outputs/{self.id}/thumb",
            **poster,
            "width": self.width,
            "height": self.height,
            "frames": self.frames,
            "seed": self.seed,
        }

    def to_json(self) -> dict[str, Any]:
        """The output as the library lists it: with its job, recipe and time."""
        return {
            **self.link(),
            "job_id": self.job_id,
            "recipe": self.recipe.to_json(),
            "created_at": self.created_at,
        }


def add(tx: Transaction, saved: SavedFile, *, job_id: str, owner: str, number: int, created_at: float) -> Output:
    """Stores output `number` of a job, in the transaction that ends the job."""
    assert saved.recipe.seed is not None, "outputs come from resolved recipes"
    row = tx.execute(
        "INSERT INTO outputs (id, job_id, owner, kind, file, thumb, width, height, frames, seed, model, prompt, "
        "recipe, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (
            f"{job_id}-{number}",
            job_id,
            owner,
            saved.kind,
            saved.file,
            saved.thumb,
            saved.width,
            saved.height,
            saved.frames,
            saved.recipe.seed,
            saved.recipe.model,
            saved.recipe.prompt,
            saved.recipe.model_dump_json(by_alias=True),
            created_at,
        ),
    ).fetchone()
    return Output.from_row(row)


def read_output(database: Database, output_id: str) -> Output | None:
    """The output; None when there is none."""
    row = database.read_one("SELECT * FROM outputs WHERE id = ?", (output_id,))
    return Output.from_row(row) if row else None
