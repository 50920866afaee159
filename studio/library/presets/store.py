"""People's own presets, saved from an output or imported, with their origin.

A preset is a row; its thumbnail is a file named by the row's id, written in the same transaction.
"""

import hashlib
import logging
import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from pydantic import ValidationError

from pipelines.files.whole import write_whole
from pipelines.messages import say
from studio.database import Database
from studio.library.presets.files import take_thumbnail, write_document
from studio.library.presets.preset import Preset, PresetError

MAX_PRESETS = 1000
log = logging.getLogger(__name__)

Origin = Literal["shipped", "made", "file", "link", "hub"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A preset with this server's data about it; `preset` has no thumbnail inside, `thumb` is its file."""

    id: str
    owner: str
    preset: Preset
    origin: Origin
    origin_name: str = ""
    thumb: Path | None = None
    created_at: float = 0.0


def add(
    database: Database, presets_dir: Path, preset: Preset, *, owner: str, origin: Origin, origin_name: str = ""
) -> Entry:
    """Stores a checked preset unless it exists already; raises PresetError when there are too many."""
    sha = hashlib.sha256(write_document(preset)).hexdigest()
    webp = take_thumbnail(preset)
    with database.write() as tx:
        known = tx.execute("SELECT * FROM presets WHERE owner = ? AND sha = ?", (owner, sha)).fetchone()
        if known is not None:
            return _read_row(known, presets_dir)
        if tx.execute("SELECT count(*) FROM presets WHERE owner = ?", (owner,)).fetchone()[0] >= MAX_PRESETS:
            raise PresetError(
                say("You have {count} presets already.", count=MAX_PRESETS), advice=say("Delete some first.")
            )
        row = tx.execute(
            "INSERT INTO presets (id, owner, sha, document, origin, origin_name, has_thumb, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
            (
                f"preset-{secrets.token_hex(6)}",
                owner,
                sha,
                preset.without_thumbnail().model_dump_json(by_alias=True),
                origin,
                origin_name,
                int(webp is not None),
                time.time(),
            ),
        ).fetchone()
        if webp is not None:
            write_whole(_thumb_of(presets_dir, row["id"]), webp)
    return _read_row(row, presets_dir)


def replace(database: Database, presets_dir: Path, preset_id: str, preset: Preset) -> Entry:
    """Puts a checked preset in the place of this one, which keeps its id, its time and where it came from."""
    webp = take_thumbnail(preset)
    with database.write() as tx:
        row = tx.execute(
            "UPDATE presets SET sha = ?, document = ?, has_thumb = ? WHERE id = ? RETURNING *",
            (
                hashlib.sha256(write_document(preset)).hexdigest(),
                preset.without_thumbnail().model_dump_json(by_alias=True),
                int(webp is not None),
                preset_id,
            ),
        ).fetchone()
        if webp is not None:
            write_whole(_thumb_of(presets_dir, preset_id), webp)
        else:
            _thumb_of(presets_dir, preset_id).unlink(missing_ok=True)
    return _read_row(row, presets_dir)


def remove(database: Database, presets_dir: Path, preset_id: str) -> None:
    """Deletes a preset and its thumbnail."""
    with database.write() as tx:
        tx.execute("DELETE FROM presets WHERE id = ?", (preset_id,))
        _thumb_of(presets_dir, preset_id).unlink(missing_ok=True)


def list_own(database: Database, presets_dir: Path, *, owner: str) -> list[Entry]:
    """Lists the owner's presets, newest first; one that cannot be read any more is only logged."""
    rows = database.read("SELECT * FROM presets WHERE owner = ? ORDER BY created_at DESC, rowid DESC", (owner,))
    entries: list[Entry] = []
    for row in rows:
        try:
            entries.append(_read_row(row, presets_dir))
        except ValidationError as error:
            log.warning("the preset %s of %s cannot be read: %s", row["id"], owner, error)
    return entries


def read_entry(database: Database, presets_dir: Path, preset_id: str) -> Entry | None:
    """Reads the preset of this id, whoever owns it; None when there is none."""
    row = database.read_one("SELECT * FROM presets WHERE id = ?", (preset_id,))
    return _read_row(row, presets_dir) if row else None


def _thumb_of(presets_dir: Path, preset_id: str) -> Path:
    return presets_dir / f"{preset_id}.webp"


def _read_row(row: sqlite3.Row, presets_dir: Path) -> Entry:
    return Entry(
        id=row["id"],
        owner=row["owner"],
        preset=Preset.model_validate_json(row["document"]),
        origin=cast(Origin, row["origin"]),
        origin_name=row["origin_name"],
        thumb=_thumb_of(presets_dir, row["id"]) if row["has_thumb"] else None,
        created_at=row["created_at"],
    )
