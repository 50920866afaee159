"""Transactions are whole, migrations come in order, and every thread has its own connection."""

import gc
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from studio.database import MIGRATIONS_DIR, Database, DatabaseError, open_database
from studio.jobs import claims, queue, webhooks, workers
from studio.jobs.costs import estimates
from studio.jobs.states import JobState
from studio.library import records
from studio.settings import Settings


def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    def write_half() -> None:
        with database.write() as tx:
            tx.execute("INSERT INTO events (kind, owner, at, data) VALUES ('x', '', 0, '{}')")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write_half()
    assert database.read("SELECT * FROM events") == []


def test_ids_of_events_have_no_gaps_after_an_undone_transaction(database: Database) -> None:
    insert = "INSERT INTO events (kind, owner, at, data) VALUES ('x', '', 0, '{}')"
    for is_undone in (False, True, False, True, False):
        try:
            with database.write() as tx:
                tx.execute(insert)
                if is_undone:
                    raise InterruptedError
        except InterruptedError:
            pass
    assert [row["id"] for row in database.read("SELECT id FROM events")] == [1, 2, 3]


def test_opening_again_keeps_rows_and_version(settings: Settings) -> None:
    first = open_database(settings.database_file)
    with first.write() as tx:
        tx.execute("UPDATE workers SET device = 'here'")
    first.close()
    second = open_database(settings.database_file)
    assert second.read("SELECT device FROM workers")[0]["device"] == "here"
    assert second.read("PRAGMA user_version")[0][0] == len(list(MIGRATIONS_DIR.glob("*.sql")))
    assert second.read("PRAGMA journal_mode")[0][0] == "wal"
    second.close()


def test_a_newer_database_is_refused_with_advice(settings: Settings) -> None:
    with sqlite3.connect(settings.database_file) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(DatabaseError, match=r"at version 999.*newer Lumesh"):
        open_database(settings.database_file)


def test_a_threads_connection_ends_with_it(database: Database) -> None:
    descriptors = Path("/proc/self/fd")
    database.read("SELECT 1")
    before = len(list(descriptors.iterdir()))
    gc.freeze()  # what other tests left would be searched twenty times
    for _ in range(20):
        thread = threading.Thread(target=database.read, args=("SELECT * FROM jobs",))
        thread.start()
        thread.join()
        gc.collect()  # sqlite3 ties a connection and its statement cache into a cycle
    gc.unfreeze()
    assert len(list(descriptors.iterdir())) <= before + 3


def test_threads_write_one_after_the_other(database: Database) -> None:
    def write() -> None:
        for _ in range(50):
            with database.write() as tx:
                tx.execute("INSERT INTO events (kind, owner, at, data) VALUES ('x', '', 0, '{}')")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row["id"] for row in database.read("SELECT id FROM events ORDER BY id")] == list(range(1, 201))


def test_threads_that_write_wait_for_their_turn_and_not_for_luck(database: Database) -> None:
    turns: list[int] = []
    everybody = threading.Barrier(9)

    def write(number: int) -> None:
        database.read("PRAGMA busy_timeout = 0")  # SQLite itself would give up at once
        everybody.wait()
        with database.write():
            turns.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    with database.write():
        everybody.wait()
    for thread in threads:
        thread.join()
    assert sorted(turns) == list(range(8))


def test_what_is_gathered_is_written_together_or_not_at_all(database: Database) -> None:
    told: list[int] = []

    def write() -> None:
        with database.write() as tx:
            tx.execute("INSERT INTO events (kind, owner, at, data) VALUES ('x', '', 0, '{}')")

    def count() -> int:
        return len(database.read("SELECT id FROM events"))

    database.on_commit = lambda: told.append(count())
    with database.gather():
        write()
        write()
    assert told == [2]
    with pytest.raises(ValueError, match="no"), database.gather():
        write()
        raise ValueError("no")
    assert (count(), told) == (2, [2])
    write()
    assert told == [2, 3]


def test_favourites_of_an_older_version_are_marked_in_their_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as old:
        for migration in sorted(MIGRATIONS_DIR.glob("0*_*.sql"))[:10]:
            old.executescript(migration.read_text("utf-8"))
        old.execute("PRAGMA user_version = 10")
        old.execute(
            "INSERT INTO jobs (id, owner, state, recipe, model, shape, created_at, queued_at, steps, outputs) VALUES "
            """('a', 'local', 'done', '{}', 'm', '8x8', 1, 1, 2, '[{"id": "a-0"}, {"id": "a-1"}]')"""
        )
        for output, is_favourite in (("a-0", 0), ("a-1", 1)):
            old.execute(
                "INSERT INTO outputs (id, job_id, owner, kind, file, thumb, width, height, frames, seed, model, shape, "
                "prompt, recipe, created_at, is_favourite) "
                "VALUES (?, 'a', 'local', 'image', 'f', 't', 8, 8, 1, 5, 'm', '8x8', 'A boat', '{}', 1, ?)",
                (output, is_favourite),
            )
        old.commit()
    with closing(open_database(file)) as database:
        row = database.read_one("SELECT outputs FROM jobs")
        assert row is not None
        assert json.loads(row["outputs"]) == [{"id": "a-0"}, {"id": "a-1", "favourite": True}]


def test_loras_of_an_older_version_belong_to_whoever_trained_them_last(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as old:
        for migration in sorted(MIGRATIONS_DIR.glob("0*_*.sql"))[:23]:
            old.executescript(migration.read_text("utf-8"))
        old.execute("PRAGMA user_version = 23")
        trained = (("ada", "done", '["a", "b"]', 1), ("bob", "done", '["a"]', 2), ("ada", "failed", '["c"]', 3))
        for number, (owner, state, loras, at) in enumerate(trained):
            old.execute(
                "INSERT INTO jobs (id, kind, owner, state, recipe, model, shape, created_at, queued_at, steps, "
                "programs, finished_at) VALUES (?, 'train', ?, ?, '{}', 'm', '8x8', 1, 1, 2, 'train', ?)",
                (str(number), owner, state, at),
            )
            old.execute(
                "INSERT INTO trainings (job_id, name, asked, loras) VALUES (?, 'a', '{}', ?)", (str(number), loras)
            )
        old.commit()
    with closing(open_database(file)) as database:
        rows = database.read("SELECT ref, owner FROM lora_owners ORDER BY ref")
        assert [tuple(row) for row in rows] == [("a", "bob"), ("b", "ada")]


def test_outputs_of_an_older_version_are_kept_and_searchable(tmp_path: Path) -> None:
    """Version 4 named its outputs by text alone; 5 gives them numbers, in the order of time."""
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as old:
        for migration in sorted(MIGRATIONS_DIR.glob("00[1-4]_*.sql")):
            old.executescript(migration.read_text("utf-8"))
        old.execute("PRAGMA user_version = 4")
        old.execute(
            "INSERT INTO jobs (id, owner, state, recipe, model, shape, created_at, queued_at, steps) "
            "VALUES ('a', 'local', 'done', '{}', 'm', '8x8', 1, 1, 2)"
        )
        for output, made_at, recipe in (("a-1", 2.0, '{"shape": "8x8"}'), ("a-0", 1.0, "{}")):
            old.execute(
                "INSERT INTO outputs (id, job_id, owner, kind, file, thumb, width, height, frames, seed, model, prompt,"
                " recipe, created_at) VALUES (?, 'a', 'local', 'image', 'f', 't', 8, 8, 1, 5, 'm', 'A boat', ?, ?)",
                (output, recipe, made_at),
            )
        old.commit()
    with closing(open_database(file)) as database:
        rows = database.read("SELECT number, id, shape, tags, trashed_at FROM outputs ORDER BY number")
        assert [tuple(row) for row in rows] == [(1, "a-0", "8x8", "[]", None), (2, "a-1", "8x8", "[]", None)]
        found = database.read("SELECT rowid FROM outputs_text WHERE outputs_text MATCH 'boat'")
        assert [row["rowid"] for row in found] == [1, 2]
        assert len(database.read("SELECT * FROM inputs WHERE folder = 'outputs'")) == 2


def test_a_studio_of_one_worker_loses_nothing_when_there_may_be_several(tmp_path: Path) -> None:
    """Version 15 had one row for its one worker and one for its machine."""
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as old:
        for migration in sorted(MIGRATIONS_DIR.glob("0*_*.sql"))[:15]:
            old.executescript(migration.read_text("utf-8"))
        old.execute("PRAGMA user_version = 15")
        old.execute(
            "UPDATE engine SET state = 'busy', activity = 'running a job', pid = 7, device = 'v6e', model = 'm', "
            """shapes = '{"8x8": "warm"}', heartbeat_at = 5, outputs_at_once = 4, swap = '{"model": "m"}'"""
        )
        old.execute(
            "UPDATE machine SET chips = 8, chip_price = 2.5, mesh = 'dp=8', devices = '[{}]', host = '{\"a\": 1}', "
            "compiling = 1, measured_at = 6, cache_cleared_at = 3"
        )
        for name, state, started_at in (("q", "queued", None), ("r", "running", 2.0), ("d", "done", 1.0)):
            old.execute(
                "INSERT INTO jobs (id, owner, state, recipe, model, shape, created_at, queued_at, steps, started_at, "
                """position, programs) VALUES (?, 'local', ?, '{"model": "m", "prompt": "A boat", "shape": "8x8"}', """
                "'m', '8x8', 1, 1, 2, ?, 1, '8x8')",
                (name, state, started_at),
            )
        old.execute("INSERT INTO timings (model, shape, batch_size, step_s, at) VALUES ('m', '8x8', 1, 0.5, 4)")
        old.commit()
    with closing(open_database(file)) as database:
        worker = workers.read_worker(database)
        assert (worker.id, worker.state, worker.activity, worker.pid) == ("local", "busy", "running a job", 7)
        assert (worker.device, worker.model, worker.shapes) == ("v6e", "m", {"8x8": "warm"})
        assert (worker.outputs_at_once, worker.swap) == (4, {"model": "m"})
        assert (worker.chips, worker.chip_price, worker.mesh, worker.devices) == (8, 2.5, "dp=8", [{}])
        assert (worker.host, worker.compiling) == ({"a": 1}, 1)
        assert (worker.heartbeat_at, worker.measured_at, worker.cache_cleared_at) == (5, 6, 3)
        held = [(job.id, job.kind, job.worker, job.attempt) for job in queue.read_jobs(database, ["q", "r", "d"])]
        assert held == [("q", "generate", None, 0), ("r", "generate", "local", 1), ("d", "generate", "local", 1)]
        assert [row.step_s for row in estimates.read_history(database).rows] == [0.5]

        claims.interrupt_running(database)  # as the server does that comes up
        assert queue.read_job(database, "r").state is JobState.INTERRUPTED
        claimed = claims.claim_next(database, resident=None)
        assert (claimed.id, claimed.worker, claimed.attempt) == ("q", "local", 1)


def test_a_database_of_before_codes_notes_and_the_clock_that_nobody_sets_loses_nothing(tmp_path: Path) -> None:
    """Version 16; 17 to 19 add codes of texts, a job's notes, and what lasts by a monotonic clock."""
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as old:
        for migration in sorted(MIGRATIONS_DIR.glob("0*_*.sql"))[:16]:
            old.executescript(migration.read_text("utf-8"))
        old.execute("PRAGMA user_version = 16")
        old.execute("UPDATE workers SET state = 'busy', activity = 'running a job', device = 'v6e', heartbeat_at = 5")
        old.execute(
            "INSERT INTO webhooks (owner, url, secret, cursor, told_at, told) "
            "VALUES ('ada', 'https://example.com', 'whsec_AAAA', 3, 4, 'it answered 500')"
        )
        for name, state, started_at, shared_at in (
            ("q", "queued", None, None),
            ("r", "running", 2.0, 3.0),
            ("d", "done", 1.0, 1.5),
        ):
            old.execute(
                "INSERT INTO jobs (id, owner, state, recipe, model, shape, created_at, queued_at, steps, started_at, "
                "shared_at, position, programs, worker, attempt, chip_seconds) VALUES (?, 'ada', ?, "
                """'{"model": "m", "prompt": "A boat", "shape": "8x8"}', 'm', '8x8', 1, 1, 2, ?, ?, 1, '8x8', """
                "CASE WHEN ? IS NULL THEN NULL ELSE 'local' END, 1, 7.5)",
                (name, state, started_at, shared_at, started_at),
            )
        old.execute(
            "INSERT INTO outputs (id, job_id, owner, kind, file, thumb, width, height, frames, seed, model, shape, "
            "prompt, recipe, created_at) "
            "VALUES ('d-0', 'd', 'ada', 'image', 'f', 't', 8, 8, 1, 5, 'm', '8x8', 'A boat', "
            """'{"model": "m", "prompt": "A boat", "shape": "8x8"}', 1)"""
        )
        old.commit()
        tables = [row[0] for row in old.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        before = {name: old.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    with closing(open_database(file)) as database:
        for name, count in before.items():
            assert database.read(f"SELECT count(*) AS n FROM {name}")[0]["n"] == count, name
        worker = workers.read_worker(database)
        assert (worker.state, worker.activity, worker.device, worker.heartbeat_at) == (
            "busy",
            "running a job",
            "v6e",
            5,
        )
        webhook = webhooks.read_webhook(database, owner="ada")
        assert (webhook.url, webhook.secret, webhook.cursor, webhook.told) == (
            *("https://example.com", "whsec_AAAA", 3),
            "it answered 500",
        )
        for job in queue.read_jobs(database, ["q", "r", "d"]):
            assert (job.owner, job.recipe.prompt, list(job.notes), job.chip_seconds) == ("ada", "A boat", [], 7.5)
        assert records.read_output(database, "d-0").recipe.prompt == "A boat"

        claims.interrupt_running(database)  # as the server does that comes up
        interrupted = queue.read_job(database, "r")
        assert (interrupted.state, interrupted.chip_seconds) == (JobState.INTERRUPTED, 7.5), "charged until it ended"
        assert claims.claim_next(database, resident=None).id == "q"
