"""Deletes outputs in two steps: into the trash, which can be undone, and for ever, only on request or for the quota.

In the trash an output keeps its file and its row, so undoing costs nothing. Purging deletes the files inside the
transaction that deletes the rows, so a crash leaves at worst a row in the trash that can be purged again.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from studio.database import Database
from studio.library.files import poster_of
from studio.library.records import Output, tell_changed

PURGED_AT_ONCE = 50  # limits how long other writers wait: deleting 150 files takes about 10 ms


def throw_away(database: Database, ids: Sequence[str], *, owner: str | None) -> list[str]:
    """Moves the owner's outputs (None: anybody's) to the trash; returns the ids of those that were not there yet."""
    return _set_trashed(database, ids, owner=owner, trashed_at=time.time())


def restore(database: Database, ids: Sequence[str], *, owner: str | None) -> list[str]:
    """Takes the owner's outputs (None: anybody's) out of the trash again; returns the ids of those that were in it."""
    return _set_trashed(database, ids, owner=owner, trashed_at=None)


def purge(database: Database, outputs_dir: Path, ids: Sequence[str] | None, *, owner: str | None) -> list[str]:
    """Deletes these ids (None: all) for ever from the owner's (None: anybody's) trash; returns the deleted ids."""
    gone: list[str] = []
    while batch := _purge_some(database, outputs_dir, ids, owner=owner):
        gone += batch
    return gone


def purge_oldest(database: Database, outputs_dir: Path, *, needed_bytes: int) -> list[str]:
    """Deletes the oldest entries of anybody's trash for ever, until enough is freed or a batch is done."""
    gone: list[str] = []
    freed_bytes = 0
    with database.write() as tx:
        rows = tx.execute(
            "SELECT * FROM outputs WHERE trashed_at IS NOT NULL ORDER BY trashed_at, number LIMIT ?", (PURGED_AT_ONCE,)
        ).fetchall()
        for output in map(Output.from_row, rows):
            if freed_bytes >= needed_bytes:
                break
            files = [file for name in _name_files(output) if (file := outputs_dir / name).is_file()]
            freed_bytes += sum(file.stat().st_size for file in files)
            tx.execute("DELETE FROM outputs WHERE number = ?", (output.number,))
            for file in files:
                file.unlink()
            tell_changed(tx, [output], change="purged")
            gone.append(output.id)
    return gone


def _name_files(output: Output) -> tuple[str, ...]:
    return output.file, output.thumb, poster_of(output.file)


def _set_trashed(database: Database, ids: Sequence[str], *, owner: str | None, trashed_at: float | None) -> list[str]:
    with database.write() as tx:
        rows = tx.execute(
            "UPDATE outputs SET trashed_at = :trashed_at WHERE (:owner IS NULL OR owner = :owner) "
            "AND id IN (SELECT value FROM json_each(:ids)) AND (trashed_at IS NULL) <> (:trashed_at IS NULL) "
            "RETURNING *",
            {"trashed_at": trashed_at, "owner": owner, "ids": json.dumps(ids)},
        ).fetchall()
        outputs = [Output.from_row(row) for row in rows]
        tell_changed(tx, outputs, change="restored" if trashed_at is None else "trashed")
    return [output.id for output in outputs]


def _purge_some(database: Database, outputs_dir: Path, ids: Sequence[str] | None, *, owner: str | None) -> list[str]:
    with database.write() as tx:
        rows = tx.execute(
            "DELETE FROM outputs WHERE number IN (SELECT number FROM outputs WHERE (:owner IS NULL OR owner = :owner) "
            "AND trashed_at IS NOT NULL AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids))) LIMIT :limit) "
            "RETURNING *",
            {"owner": owner, "ids": None if ids is None else json.dumps(ids), "limit": PURGED_AT_ONCE},
        ).fetchall()
        outputs = [Output.from_row(row) for row in rows]
        for output in outputs:
            for name in _name_files(output):
                (outputs_dir / name).unlink(missing_ok=True)
        tell_changed(tx, outputs, change="purged")
    return [output.id for output in outputs]
