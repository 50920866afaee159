"""Finished outputs as rows: their files, their owners, and the recipe that reproduces each one."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from pipelines.recipes.recipe import Recipe
from studio import events
from studio.database import Database, Transaction
from studio.library.files import SavedFile


@dataclass(frozen=True, kw_only=True)
class Output:
    """A finished picture or video. The paths `file` and `thumb` are in the outputs folder and never leave the server.

    `number` is its place in the order of arrival; `made_with` names what besides the recipe determined its pixels;
    `trashed_at` is None while it is in the gallery; `grid` has the axes if it is the sheet of a grid; `chip_seconds` is
    None if they were not counted, `cost_usd` if no price was set.
    """

    number: int
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
    made_with: dict[str, str]
    is_favourite: bool
    tags: tuple[str, ...]
    trashed_at: float | None
    grid: dict[str, Any] | None
    chip_seconds: float | None
    cost_usd: float | None

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "Output":
        """Reads a full row of the table `outputs`."""
        return cls(
            number=row["number"],
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
            made_with=_read_making(row["made_with"]),
            is_favourite=bool(row["is_favourite"]),
            tags=tuple(json.loads(row["tags"])),
            trashed_at=row["trashed_at"],
            grid=json.loads(row["grid"]) if row["grid"] else None,
            chip_seconds=row["chip_seconds"],
            cost_usd=row["cost_usd"],
        )

    def link(self) -> dict[str, Any]:
        """Returns the output as a job lists it."""
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
        """Returns the output as the gallery lists it, with its job, recipe, time, favourite mark and tags."""
        return {
            **self.link(),
            "owner": self.owner,
            "job_id": self.job_id,
            "recipe": self.recipe.to_json(),
            "created_at": self.created_at,
            "made_with": self.made_with,
            "favourite": self.is_favourite,
            "tags": list(self.tags),
            "trashed_at": self.trashed_at,
            "grid": self.grid,
            "chip_seconds": self.chip_seconds,
            "cost_usd": self.cost_usd,
        }


def _read_making(text: str) -> dict[str, str]:
    """Reads what an output was made with; of a folder of weights, which older ones name whole, only its name."""
    making: dict[str, str] = json.loads(text)
    weights = making.get("weights", "")
    return {**making, "weights": PurePath(weights).name} if weights.startswith("/") else making


def add(
    tx: Transaction,
    saved: SavedFile,
    *,
    job_id: str,
    owner: str,
    number: int,
    created_at: float,
    made_with: Mapping[str, str],
    grid: str | None = None,
    chip_seconds: float | None = None,
    cost_usd: float | None = None,
) -> Output:
    """Stores output `number` of a job, in the transaction that ends the job; `grid` is a grid sheet's axes as JSON."""
    assert saved.recipe.seed is not None, "outputs come from resolved recipes"
    row = tx.execute(
        "INSERT INTO outputs (id, job_id, owner, kind, file, thumb, width, height, frames, seed, model, shape, "
        "prompt, recipe, created_at, made_with, grid, chip_seconds, cost_usd) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
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
            saved.recipe.shape,
            saved.recipe.prompt,
            saved.recipe.model_dump_json(by_alias=True),
            created_at,
            json.dumps(made_with),
            grid,
            chip_seconds,
            cost_usd,
        ),
    ).fetchone()
    return Output.from_row(row)


def count_by_owner(database: Database) -> dict[str, int]:
    """Counts each owner's outputs, those in the trash too."""
    return dict(map(tuple, database.read("SELECT owner, count(*) FROM outputs GROUP BY owner")))


def read_output(database: Database, output_id: str) -> Output | None:
    """Reads an output; None when the id is unknown."""
    row = database.read_one("SELECT * FROM outputs WHERE id = ?", (output_id,))
    return Output.from_row(row) if row else None


def change(
    database: Database, output_id: str, *, is_favourite: bool | None = None, tags: Sequence[str] | None = None
) -> Output:
    """Changes the given values; the output must exist."""
    with database.write() as tx:
        row = tx.execute(
            "UPDATE outputs SET is_favourite = coalesce(:is_favourite, is_favourite), tags = coalesce(:tags, tags) "
            "WHERE id = :id RETURNING *",
            {
                "id": output_id,
                "is_favourite": is_favourite,
                "tags": None if tags is None else json.dumps(tags, ensure_ascii=False),
            },
        ).fetchone()
        output = Output.from_row(row)
        tell_changed(tx, [output], change="marked")
    return output


def tell_changed(
    tx: Transaction, outputs: Sequence[Output], *, change: Literal["marked", "trashed", "restored", "purged"]
) -> None:
    """Appends an event for each owner's pages, in the transaction of the change."""
    for owner in sorted({output.owner for output in outputs}):
        theirs = [output for output in outputs if output.owner == owner]
        jobs = sorted({output.job_id for output in theirs})
        data = {"ids": [output.id for output in theirs], "job_ids": jobs, "change": change}
        events.append(tx, kind="outputs.changed", owner=owner, job_id=None, data=data)
