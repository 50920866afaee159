"""The disk space of trainings that have ended: what they would go on from, which somebody may still want.

A cancelled, failed or interrupted training keeps its state, gigabytes for a large model. Freed, it would begin anew;
its card, curve and samples stay. Paused ones are to go on, and are never touched; done ones have nothing left.
Not here: when it is freed (disk.py, api/routes/system.py), the files of one training (training_files.py).
"""

import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from studio import events
from studio.database import Database, Transaction
from studio.library.folders import empty_folder, measure_folder
from studio.library.training_files import SHOWN
from studio.notes import BEGINS_ANEW, read_notes, write_notes

KEPT_S = 7 * 24 * 3600.0
"""How long a failed or interrupted training may count on going on; a cancelled one was given up."""
GONE = ".gone-"
"""What the name of a folder begins with that is being deleted."""
_ENDED = "state IN ('cancelled', 'failed', 'interrupted')"
_GIVEN_UP = "state = 'cancelled'"


def measure_ended(database: Database, training_dir: Path) -> tuple[int, int]:
    """Returns the bytes and the number of files that all ended trainings keep to go on from."""
    rows = database.read(f"SELECT job_id FROM trainings JOIN jobs ON jobs.id = job_id WHERE {_ENDED}")
    folders = [training_dir / row["job_id"] for row in rows]
    whole, shown = map(measure_folder, folders), (measure_folder(folder / SHOWN) for folder in folders)
    sizes = [(all_[0] - seen[0], all_[1] - seen[1]) for all_, seen in zip(whole, shown, strict=True)]
    return sum(size for size, _ in sizes), sum(count for _, count in sizes)


def free_ended(database: Database, training_dir: Path) -> tuple[int, int]:
    """Deletes what all ended trainings would go on from; returns the bytes and the number of files."""
    with database.write() as tx:
        rows = tx.execute(f"SELECT job_id FROM trainings JOIN jobs ON jobs.id = job_id WHERE {_ENDED}").fetchall()
        gone = [_set_aside(tx, training_dir, row["job_id"]) for row in rows]
    return _delete(training_dir, gone)


def free_oldest(database: Database, training_dir: Path, *, now_s: float | None = None) -> tuple[str, int] | None:
    """Deletes what one training would go on from; returns the training's id and the bytes, None when none may go.

    Cancelled ones go first, the one that ended first of them; then those that ended otherwise, more than a week ago.
    """
    until_s = (time.time() if now_s is None else now_s) - KEPT_S
    with database.write() as tx:
        rows = tx.execute(
            f"SELECT job_id FROM trainings JOIN jobs ON jobs.id = job_id WHERE {_ENDED} AND ({_GIVEN_UP} OR "
            f"finished_at < ?) ORDER BY NOT {_GIVEN_UP}, finished_at",
            (until_s,),
        ).fetchall()
        job_id = next((row["job_id"] for row in rows if any(_list_work(training_dir / row["job_id"]))), None)
        if job_id is None:
            return None
        gone = _set_aside(tx, training_dir, job_id)
    return job_id, _delete(training_dir, [gone])[0]


def forget_strangers(database: Database, training_dir: Path) -> int:
    """Deletes folders of deleted trainings, and what a killed process was deleting; returns how many files went."""
    gone = 0
    for folder in training_dir.iterdir() if training_dir.is_dir() else ():
        row = database.read_one(
            "SELECT (SELECT 1 FROM trainings WHERE job_id = id) FROM jobs WHERE id = ?", (folder.name,)
        )
        is_deleted = row is not None and row[0] is None  # without a job, it may be of a newer database, which was lost
        if folder.is_dir() and not folder.is_symlink() and (is_deleted or folder.name.startswith(GONE)):
            gone += measure_folder(folder)[1]
            shutil.rmtree(folder, ignore_errors=True)
    return gone


def _list_work(folder: Path) -> Iterable[Path]:
    return [entry for entry in folder.iterdir() if entry.name != SHOWN] if folder.is_dir() else ()


def _set_aside(tx: Transaction, training_dir: Path, job_id: str) -> Path | None:
    """Moves a training's work out of its folder, which takes no time, and notes that it is gone; None without any."""
    tx.execute("UPDATE trainings SET saved_step = 0 WHERE job_id = ?", (job_id,))
    if not (work := [*_list_work(training_dir / job_id)]):
        return None
    aside = Path(tempfile.mkdtemp(prefix=GONE, dir=training_dir))  # a folder of before may still be there
    for entry in work:
        entry.rename(aside / entry.name)
    row = tx.execute("SELECT owner, notes FROM jobs WHERE id = ?", (job_id,)).fetchone()
    notes = write_notes([*read_notes(row["notes"]), BEGINS_ANEW])
    tx.execute("UPDATE jobs SET notes = ? WHERE id = ?", (notes, job_id))
    events.append(tx, kind="training.saved", owner=row["owner"], job_id=job_id, data={"step": 0})
    return aside


def _delete(training_dir: Path, folders: Iterable[Path | None]) -> tuple[int, int]:
    freed = [empty_folder(folder) for folder in folders if folder is not None]
    for folder in training_dir.glob(f"{GONE}*"):
        shutil.rmtree(folder, ignore_errors=True)
    return sum(size for size, _ in freed), sum(count for _, count in freed)
