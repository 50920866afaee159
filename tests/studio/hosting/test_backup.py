"""Backups while the studio runs, and what a restore refuses."""

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studio.database import MIGRATIONS_DIR, Database, DatabaseError, care, open_database
from studio.hosting.backup import ASIDE, MANIFEST, BackupError, backup, count_migrations, restore, restore_copy
from studio.jobs import claims, queue, workers
from studio.library.search import Filters, find_outputs
from studio.settings import Settings
from studio.worker.lock import AlreadyRunningError, hold_lock
from studio.worker.loop import Worker


@pytest.fixture
def used(settings: Settings, database: Database, submit: Callable[..., Any], worker: Worker) -> Settings:
    """A data directory with an output, a waiting job, a wildcard, a model and things that are made again."""
    submit("A boat that is done")
    worker.run_next()
    submit("A boat that waits")
    for name in ("wildcards/animals.txt", "models/mine/model.bin", "cache/jax/program", "logs/worker.log", ".x.part"):
        (settings.data_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (settings.data_dir / name).write_text(name, "utf-8")
    (settings.data_dir / "elsewhere").symlink_to("/etc")
    return settings


@pytest.fixture
def other(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return replace(settings, data_dir=tmp_path_factory.mktemp("other"))


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups") / "lumesh.tar"


def list_names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_what_is_restored_is_what_was_there(used: Settings, other: Settings, file: Path) -> None:
    written = backup(used, file)
    brought = restore(other, file)
    assert (written.files, written.bytes) == (brought.files, brought.bytes)
    assert brought.aside is None
    with closing(open_database(other.database_file)) as database:
        assert [job.recipe.prompt for job in queue.list_jobs(database, owner="local")] == [
            "A boat that waits",
            "A boat that is done",
        ]
        output = find_outputs(database, Filters(), owner="local").outputs[0]
    for name in (output.file, output.thumb):
        assert (other.outputs_dir / name).read_bytes() == (used.outputs_dir / name).read_bytes()
    assert list_names(other.data_dir) >= {"jobs.db", "outputs", "wildcards"}
    assert not list_names(other.data_dir) & {"models", "cache", "logs", "elsewhere", ".x.part", MANIFEST}


def test_a_backup_of_an_older_version_is_brought_up_to_date(settings: Settings, other: Settings, file: Path) -> None:
    """Version 15 had no table of workers."""
    with closing(sqlite3.connect(settings.database_file)) as old:
        for migration in sorted(MIGRATIONS_DIR.glob("0*_*.sql"))[:15]:
            old.executescript(migration.read_text("utf-8"))
        old.execute("PRAGMA user_version = 15")
        old.execute(
            "INSERT INTO jobs (id, owner, state, recipe, model, shape, created_at, queued_at, steps) VALUES "
            """('a', 'local', 'queued', '{"model": "m", "prompt": "A boat"}', 'm', '8x8', 1, 1, 2)"""
        )
        old.execute("UPDATE machine SET chips = 8")
        old.commit()
    backup(settings, file)
    restore(other, file)
    with closing(open_database(other.database_file)) as database:
        assert workers.read_worker(database).chips == 8
        assert claims.claim_next(database, resident=None).id == "a"


def test_models_come_along_when_they_are_asked_for(used: Settings, other: Settings, file: Path) -> None:
    backup(used, file.with_suffix(".tgz"), with_models=True)
    restore(other, file.with_suffix(".tgz"))
    assert (other.models_dir / "mine" / "model.bin").read_text("utf-8") == "models/mine/model.bin"


def test_a_snapshot_is_one_moment_while_others_write(used: Settings, database: Database, file: Path) -> None:
    with database.write() as tx:
        tx.execute("UPDATE jobs SET owner = 'nobody'")
        backup(used, file)  # in the middle of somebody's transaction
    with tarfile.open(file) as archive, closing(sqlite3.connect(":memory:")) as copy:
        content = archive.extractfile("jobs.db")
        assert content is not None
        copy.deserialize(content.read())
        assert copy.execute("SELECT DISTINCT owner FROM jobs").fetchall() == [("local",)]


def test_what_was_there_is_moved_aside(used: Settings, other: Settings, file: Path) -> None:
    backup(used, file)
    open_database(other.database_file).close()
    other.worker_log.parent.mkdir()
    (other.outputs_dir / "old.png").parent.mkdir()
    (other.outputs_dir / "old.png").write_text("old", "utf-8")
    aside = restore(other, file).aside
    assert aside is not None
    assert aside.name.startswith(ASIDE)
    assert list_names(aside) == {"jobs.db", "outputs"}
    assert (aside / "outputs" / "old.png").read_text("utf-8") == "old"
    assert other.worker_log.parent.is_dir()


def test_a_running_studio_is_not_restored_into(used: Settings, file: Path) -> None:
    backup(used, file)
    for lock in (used.app_lock, used.find_worker_lock("local"), used.find_worker_lock("local-2")):
        with hold_lock(lock, who="A test", timeout_s=0.0), pytest.raises(AlreadyRunningError, match="already uses"):
            restore(used, file)


@pytest.mark.parametrize("where", ["manifest", "database"])
def test_what_a_newer_lumesh_wrote_is_refused(
    used: Settings, database: Database, other: Settings, file: Path, where: str
) -> None:
    with database.write() as tx:
        tx.execute(f"PRAGMA user_version = {count_migrations() + 1}")
    backup(used, file)
    if where == "database":  # of which the manifest says nothing
        rewrite(file, {MANIFEST: json.dumps({"version": 1, "schema": 1}).encode()})
    with pytest.raises(BackupError, match="newer Lumesh"):
        restore(other, file)
    assert not other.database_file.exists()


def rewrite(file: Path, contents: dict[str, bytes]) -> None:
    """The same tar with other contents, and what is new at its end."""
    with tarfile.open(file) as old:
        members = {member.name: old.extractfile(member).read() for member in old if member.isfile()}
    with tarfile.open(file, "w") as new:
        for name, content in (members | contents).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))


def add_link(file: Path) -> None:
    """A link that leads out of the data directory, and a file behind it."""
    with tarfile.open(file, "a") as archive:
        link = tarfile.TarInfo("outputs/way-out")
        link.type, link.linkname = tarfile.SYMTYPE, "../.."
        archive.addfile(link)
        entry = tarfile.TarInfo("outputs/way-out/outside")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"no tar"),
        lambda file: file.write_bytes(file.read_bytes()[:6000]),
        lambda file: rewrite(file, {"jobs.db": b"no database" * 1000}),
        lambda file: rewrite(file, {MANIFEST: b"[]"}),
        lambda file: rewrite(file, {"../outside": b"evil"}),
        lambda file: rewrite(file, {"/tmp/outside": b"evil"}),
        lambda file: add_link(file),
        lambda file: file.unlink(),
    ],
)
def test_a_file_that_is_no_whole_backup_changes_nothing(
    used: Settings, other: Settings, file: Path, spoil: Callable[[Path], None]
) -> None:
    backup(used, file)
    spoil(file)
    (other.outputs_dir).mkdir()
    with pytest.raises(BackupError):
        restore(other, file)
    assert list_names(other.data_dir) <= {"outputs", "app.lock", "worker.lock"}
    assert not (other.data_dir.parent / "outside").exists()


def test_places_that_cannot_be_meant_are_named(used: Settings, other: Settings, file: Path) -> None:
    with pytest.raises(BackupError, match="no studio in"):
        backup(other, file)
    with pytest.raises(BackupError, match="lies in the data directory"):
        backup(used, used.data_dir / "backup.tar")
    with pytest.raises(BackupError, match="no folder"):
        backup(used, file.parent / "nowhere" / "backup.tar")


def damage(database_file: Path) -> None:
    """Flips bits in the middle of the file; nobody has it open."""
    content = bytearray(database_file.read_bytes())
    for place in range(5000, len(content), 997):
        content[place] ^= 1
    database_file.write_bytes(content)


def test_a_damaged_database_never_takes_the_place_of_a_good_backup(
    used: Settings, database: Database, file: Path
) -> None:
    backup(used, file)
    before = file.read_bytes()
    database.close()
    damage(used.database_file)
    with pytest.raises(DatabaseError, match="is damaged"):
        backup(used, file)
    assert file.read_bytes() == before
    assert list_names(file.parent) == {file.name}


def test_the_last_good_copy_takes_the_place_of_a_damaged_database(used: Settings, database: Database) -> None:
    with pytest.raises(BackupError, match="no good copy"):
        restore_copy(used)
    care.keep_copy(used.database_file)
    database.close()
    damage(used.database_file)
    aside = restore_copy(used).aside
    assert aside is not None and (aside / "jobs.db").is_file()
    with closing(open_database(used.database_file)) as brought:
        assert [job.recipe.prompt for job in queue.list_jobs(brought, owner="local")] == [
            "A boat that waits",
            "A boat that is done",
        ]


def test_what_is_restored_is_its_owners_alone_also_from_a_backup_that_was_not(
    used: Settings, other: Settings, file: Path
) -> None:
    for path in (used.database_file, *used.outputs_dir.rglob("*.png")):
        path.chmod(0o644)
    backup(used, file)
    rewrite(file, {})  # with every right that tar gives by default
    umask = os.umask(0o022)
    try:
        restore(other, file)
    finally:
        os.umask(umask)
    files = [path for path in other.data_dir.rglob("*") if path.is_file() and path.suffix in (".db", ".png", ".webp")]
    assert len(files) >= 3
    assert {path.stat().st_mode & 0o077 for path in files} == {0}
