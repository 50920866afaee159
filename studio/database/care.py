"""Checks that the database is sound, keeps rotating copies of it, and says the way back when it is damaged.

A database that is damaged, cut short, empty or gone is never taken for a new studio: `require_sound` refuses it before
anything is written, names the last good copy, and says what is lost with it. A copy is a snapshot through SQLite's own
backup, checked before it takes the place of an older one; so a damaged database never replaces a good copy.
Not here: backups of the whole data directory, and bringing a copy back (hosting/backup.py).
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from pipelines.files.whole import put_whole
from pipelines.messages import english
from studio.database import DatabaseError
from studio.storage import count_free, explain

COPIES = "copies"
KEPT_COPIES = 3
COPY_INTERVAL_S = 6 * 3600.0
LEFTOVERS = 3  # of the reasons that SQLite gives


def find_problem(file: Path, *, is_thorough: bool = False) -> str:
    """Returns what is wrong with a database, "" when it is sound; `is_thorough` compares indexes with tables too.

    Reads only. Raises sqlite3.OperationalError when the file cannot be read at all.
    """
    if not file.stat().st_size:
        return "it is empty"
    check = "integrity_check" if is_thorough else "quick_check"
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as opened:
            rows = opened.execute(f"PRAGMA {check}({LEFTOVERS})").fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.OperationalError) and explain(error) is not None:
            raise
        return str(error)
    problem = " ".join("; ".join(str(row[0]) for row in rows).split())
    return "" if problem == "ok" else problem[:300]


def take_snapshot(source: Path, target: Path) -> int:
    """Copies a consistent snapshot of the database, whatever is written meanwhile; returns its version.

    Raises DatabaseError, and leaves no copy, when the database is damaged.
    """
    try:
        with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copy:
            live.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, not three
            version = copy.execute("PRAGMA user_version").fetchone()[0]
        problem = find_problem(target, is_thorough=True)
        if not problem:
            return version
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        problem = str(error)
    target.unlink(missing_ok=True)
    raise DatabaseError(
        english(f"{source} is damaged: {problem}."),
        advice=english("Earlier backups were left as they are; restore the last one, or --last-copy."),
    )


def list_copies(data_dir: Path) -> list[Path]:
    """Returns the copies, the newest first."""
    found: list[tuple[float, Path]] = []
    for copy in (data_dir / COPIES).glob("jobs-*.db"):
        with suppress(FileNotFoundError):  # rotated away meanwhile
            found.append((copy.stat().st_mtime, copy))
    return [copy for _, copy in sorted(found, reverse=True)]


def find_good_copy(data_dir: Path) -> Path | None:
    """Returns the newest copy that is sound; None when there is none."""
    return next((copy for copy in list_copies(data_dir) if not find_problem(copy)), None)


def keep_copy(file: Path) -> Path | None:
    """Takes a new copy beside the database, and deletes the oldest; returns None when the disk has no room for it."""
    copies = file.parent / COPIES
    copies.mkdir(mode=0o700, exist_ok=True)
    if count_free(copies) < 2 * file.stat().st_size:
        return None
    new = copies / f"jobs-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.db"
    put_whole(new, lambda part: take_snapshot(file, part))
    for old in list_copies(file.parent)[KEPT_COPIES:]:
        old.unlink(missing_ok=True)
    return new


def require_sound(file: Path, outputs_dir: Path) -> None:
    """Raises DatabaseError, with the way back, for a damaged database, and for a missing one of a studio in use."""
    if file.exists() and file.stat().st_size:
        problem = find_problem(file)
        if not problem:
            return
        what = f"{file} is damaged ({problem})."
    else:
        outputs = _count_outputs(outputs_dir)
        if not outputs and find_good_copy(file.parent) is None:
            return  # a new studio
        what = f"{file} is {'empty' if file.exists() else 'gone'}"
        what += f", but {outputs_dir} has {outputs} outputs." if outputs else "."
    raise DatabaseError(english(f"{what} Nothing was changed."), advice=english(_name_way_back(file)))


def _name_way_back(file: Path) -> str:
    copy = find_good_copy(file.parent)
    restore = f"python app.py restore --data-dir {file.parent}"
    if copy is None:
        return (
            f"Bring a backup back: {restore} FILE; jobs, marks and presets since then are lost, outputs' files stay. "
            "Without any backup, move the data directory aside and start anew."
        )
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(copy.stat().st_mtime))
    return (
        f"Bring the last good copy back, of {at}: {restore} --last-copy. Jobs, marks and presets since then are lost, "
        f"outputs' files stay. Or bring a backup back: {restore} FILE."
    )


def _count_outputs(outputs_dir: Path) -> int:
    return sum(1 for _ in _list_outputs(outputs_dir))


def _list_outputs(outputs_dir: Path) -> Iterator[Path]:
    for pattern in ("*/*.png", "*/*.mp4"):
        yield from outputs_dir.glob(pattern)
