"""The SQLite database, the only channel between the app and the worker.

Write-ahead logging lets both read while one writes; every write is one short `BEGIN IMMEDIATE` transaction, and a
connection belongs to one thread. `open_database` applies the numbered migrations in `migrations/` in order, each in one
transaction, and stores the number in `PRAGMA user_version`.
Not here: what the rows mean (jobs/, library/).
"""

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError
from pipelines.messages import english

MIGRATIONS_DIR = Path(__file__).parent / "migrations"
# Less than people wait for a page, and far above what our own transactions need: they hold the lock for well under a
# millisecond.
BUSY_TIMEOUT_MS = 10_000
# The page cache of each thread's connection: 45 threads with the default of 2 MB would grow to 90 MB, and the operating
# system caches the file for all of them anyway.
CACHE_KB = 500

Values = Sequence[Any] | Mapping[str, Any]
Transaction = sqlite3.Connection
"""The connection that `Database.write` yields: its statements are committed together, or not at all."""


class DatabaseError(LumeshError):
    """This version cannot use the database."""

    title = english("The database cannot be used")


class _Connection(sqlite3.Connection):
    """A thread's connection, which is closed when the thread ends: a server's threads come and go."""

    def __del__(self) -> None:
        self.close()


class Database:
    """The connections to one file, one for each thread."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._local = threading.local()
        self._open = weakref.WeakSet[_Connection]()
        self._lock = threading.Lock()
        # SQLite itself waits by polling with growing delays, so among many threads some would starve.
        self._writing = threading.RLock()  # reentrant, so that a nested write, which is a mistake, gets SQLite's error
        self.on_commit: Callable[[], None] | None = None
        """Called after each of this process's transactions, to wake whoever waits for changes; must be quick."""

    def read(self, sql: str, values: Values = ()) -> list[sqlite3.Row]:
        """Returns all rows of one SELECT, as one consistent snapshot."""
        return self._connect().execute(sql, values).fetchall()

    def read_one(self, sql: str, values: Values = ()) -> sqlite3.Row | None:
        """Returns the first row of one SELECT; None when there is none."""
        return self._connect().execute(sql, values).fetchone()

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Opens a transaction, which is committed at the end of the block and rolled back when it raises."""
        if getattr(self._local, "is_gathering", False):
            yield self._connect()  # within `gather`, which commits all or nothing
            return
        connection = self._connect()
        with self._writing:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite has undone some errors itself; a failed commit is still open
                    connection.execute("ROLLBACK")
                raise
        if self.on_commit is not None:
            self.on_commit()

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Makes one transaction of all that this thread writes until the end of the block; must not be nested.

        An error of any of them, if it leaves the block, undoes all. Nothing may be awaited within.
        """
        with self.write():
            self._local.is_gathering = True
            try:
                yield
            finally:
                self._local.is_gathering = False

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
            try:
                connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")  # safe in WAL: a power cut loses only recent commits
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            except sqlite3.Error:
                connection.close()
                raise
            self._local.connection = connection
            with self._lock:
                self._open.add(connection)
        return connection


def open_database(file: Path) -> Database:
    """Opens the database, creating or migrating it; raises DatabaseError when a newer version wrote it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    database = Database(file)
    migrations = sorted(MIGRATIONS_DIR.glob("[0-9][0-9][0-9]_*.sql"))
    with database.write() as tx:
        applied = tx.execute("PRAGMA user_version").fetchone()[0]
        if applied > len(migrations):
            raise DatabaseError(
                english(f"{file} is at version {applied}; this Lumesh knows {len(migrations)}."),
                advice=english("Start the newer Lumesh that wrote it, or choose another --data-dir."),
            )
        for number, migration in enumerate(migrations[applied:], start=applied + 1):
            for statement in _split(migration.read_text("utf-8")):
                tx.execute(statement)
            tx.execute(f"PRAGMA user_version = {number}")
    return database


def _split(script: str) -> Iterator[str]:
    """Splits a script into statements, because `executescript` would commit the migration's transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
