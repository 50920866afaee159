"""One SQLite file: the only door between the app and the worker.

Write-ahead logging lets both read while one writes; every write is one short `BEGIN IMMEDIATE` transaction, and a
connection belongs to one thread. `open_database` applies the numbered files in `migrations/` in order, each in one
transaction, and keeps the number in `PRAGMA user_version`.
Not here: what the rows mean (jobs/, library/).
"""

import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError

MIGRATIONS_DIR = Path(__file__).parent / "migrations"
# People wait longer for a page than this; our own transactions hold the lock for well under a millisecond.
BUSY_TIMEOUT_MS = 10_000
# Of each thread's own pages: 45 threads with the usual 2 MB would grow to 90 MB, and the system keeps the file once for
# all of them anyway.
CACHE_KB = 500

Values = Sequence[Any] | Mapping[str, Any]
Transaction = sqlite3.Connection
"""What `Database.write` yields: statements run on it are committed together, or not at all."""


class DatabaseError(LumeshError):
    """A database that this version cannot use."""

    title = "The database cannot be used"


class _Connection(sqlite3.Connection):
    """Ends with the thread it belongs to: a server's threads come and go."""

    def __del__(self) -> None:
        self.close()


class Database:
    """Connections to one file, one for each thread that asks."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._local = threading.local()
        self._open = weakref.WeakSet[_Connection]()
        self._lock = threading.Lock()
        # SQLite's own waiting is by looks that grow rarer, so among many threads some would never get their turn.
        self._writing = threading.RLock()  # the same thread once more is a mistake, and SQLite says so

    def read(self, sql: str, values: Values = ()) -> list[sqlite3.Row]:
        """All rows of one SELECT, as one consistent snapshot."""
        return self._connect().execute(sql, values).fetchall()

    def read_one(self, sql: str, values: Values = ()) -> sqlite3.Row | None:
        """The first row of one SELECT."""
        return self._connect().execute(sql, values).fetchone()

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """One transaction: committed at the end of the block, undone when it raises."""
        connection = self._connect()
        with self._writing:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def close(self) -> None:
        """Closes every thread's connection; no thread may use the database afterwards."""
        with self._lock:
            for connection in self._open:
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False, factory=_Connection)
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # safe in WAL: a power cut loses the last moments, whole
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            self._local.connection = connection
            with self._lock:
                self._open.add(connection)
        return connection


def open_database(file: Path) -> Database:
    """The database at `file`, created or brought up to date; raises DatabaseError when a newer version wrote it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    database = Database(file)
    migrations = sorted(MIGRATIONS_DIR.glob("[0-9][0-9][0-9]_*.sql"))
    with database.write() as tx:
        applied = tx.execute("PRAGMA user_version").fetchone()[0]
        if applied > len(migrations):
            raise DatabaseError(
                f"{file} is at version {applied}; this Lumesh knows {len(migrations)}.",
                advice="Start the newer Lumesh that wrote it, or choose another --data-dir.",
            )
        for number, migration in enumerate(migrations[applied:], start=applied + 1):
            for statement in _split(migration.read_text("utf-8")):
                tx.execute(statement)
            tx.execute(f"PRAGMA user_version = {number}")
    return database


def _split(script: str) -> Iterator[str]:
    """One statement at a time: `executescript` would commit the transaction that holds the migration together."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
