"""Backs up the data directory to one file, and restores it: `python app.py backup FILE`, `python app.py restore FILE`.

A backup is taken while the studio runs: first a consistent snapshot of the database through SQLite's own backup, then
the files that its rows name, which never change after they were written. A damaged database is refused, and the backup
that is there already stays. Restoring requires a stopped studio, refuses backups of a newer Lumesh, and deletes
nothing: existing files are moved aside. `restore --last-copy` brings the last copy of the database back
(database/care.py).
Left out: what can be compiled, downloaded or logged again, and models unless requested.
"""

import argparse
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rich.console import Console

from pipelines.errors import LumeshError
from pipelines.messages import english
from studio.database import MIGRATIONS_DIR
from studio.database.care import COPIES, find_good_copy, find_problem, take_snapshot
from studio.flags import read_settings
from studio.settings import Settings
from studio.storage import RESERVE
from studio.worker.lock import hold_lock

COMMANDS = ("backup", "restore")
MANIFEST = "lumesh-backup.json"
VERSION = 1
DATABASE = "jobs.db"
ASIDE = "before-restore-"
RESTORING = ".restoring-"
REMADE = frozenset(("cache", "logs", "packs", "app.lock", "worker.lock", COPIES, RESERVE))
MODELS = frozenset(("models", "loras"))


class BackupError(LumeshError):
    """The backup cannot be written, or the file cannot be restored."""

    title = english("The backup cannot be used")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A summary of what was backed up or restored."""

    files: int
    bytes: int
    aside: Path | None = None


def run(command: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs one of COMMANDS from the command line; the other flags are the studio's own."""
    parser = argparse.ArgumentParser(prog=f"app.py {command}", allow_abbrev=False)
    is_restore = command == "restore"
    parser.add_argument("file", type=Path, nargs="?" if is_restore else None, help="the backup: a tar file")
    if is_restore:
        parser.add_argument("--last-copy", action="store_true", help="bring back the last copy of the database instead")
    else:
        parser.add_argument("--with-models", action="store_true", help="take models/ and loras/ along, however large")
    found, rest = parser.parse_known_args(arguments)
    settings = read_settings(rest, environment)
    console = Console(highlight=False, soft_wrap=True)
    if is_restore and found.last_copy == (found.file is not None):
        parser.error("give the FILE of a backup, or --last-copy")
    file = None if found.file is None else found.file.expanduser().absolute()
    if command == "backup":
        assert file is not None, "argparse requires it"
        summary = backup(settings, file, with_models=found.with_models)
        console.print(f"{file}: {summary.files} files, {summary.bytes / 1e6:.1f} MB", markup=False)
        return 0
    summary = restore_copy(settings) if file is None else restore(settings, file)
    console.print(f"{settings.data_dir}: {summary.files} files, {summary.bytes / 1e6:.1f} MB", markup=False)
    if summary.aside is not None:
        console.print(f"What was there is now in {summary.aside}", markup=False)
    return 0


def backup(settings: Settings, file: Path, *, with_models: bool = False) -> Summary:
    """Writes the backup atomically, replacing an earlier file of that name; raises DatabaseError for a damaged one."""
    data_dir = settings.data_dir
    if not settings.database_file.is_file():
        raise BackupError(
            english(f"There is no studio in {data_dir}."), advice=english("Name its folder with --data-dir.")
        )
    if file.is_relative_to(data_dir):
        raise BackupError(
            english(f"{file} lies in the data directory itself."), advice=english("Choose a place outside of it.")
        )
    with tempfile.TemporaryDirectory(dir=_require_folder(file.parent), prefix=".lumesh-") as folder:
        snapshot, part = Path(folder) / DATABASE, Path(folder) / file.name
        schema = take_snapshot(settings.database_file, snapshot)
        manifest = Path(folder) / MANIFEST
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        manifest.write_text(json.dumps({"version": VERSION, "schema": schema, "created_at": stamp}), "utf-8")
        files = total = 0
        with tarfile.open(part, "w:gz" if file.suffix in (".gz", ".tgz") else "w") as archive:
            archive.add(manifest, MANIFEST)
            archive.add(snapshot, DATABASE)
            for source in _list_files(data_dir, skipped=REMADE if with_models else REMADE | MODELS):
                try:
                    archive.add(source, str(source.relative_to(data_dir)), recursive=False)
                except FileNotFoundError:  # purged, or a temporary file that was renamed meanwhile
                    continue
                files, total = files + 1, total + source.stat().st_size if source.exists() else total
        part.chmod(0o600)  # it contains addresses and secrets of webhooks
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(file)
        return Summary(files=files + 1, bytes=total + snapshot.stat().st_size)


def _hold_locks(stack: ExitStack, settings: Settings) -> None:
    """Makes sure that neither the app nor a worker runs; raises AlreadyRunningError."""
    for lock in (settings.app_lock, *settings.list_worker_locks()):
        who = "Lumesh" if lock == settings.app_lock else "A worker"
        stack.enter_context(hold_lock(lock, who=who, timeout_s=0.0))


def restore(settings: Settings, file: Path) -> Summary:
    """Restores a backup; raises AlreadyRunningError while the studio runs, BackupError for any other file."""
    data_dir = settings.data_dir
    data_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        _hold_locks(stack, settings)
        try:
            archive = stack.enter_context(tarfile.open(file, "r:*"))
            _check_manifest(archive, file)
            unpacked = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=data_dir, prefix=RESTORING)))
            _unpack(archive, unpacked)
        except FileNotFoundError as error:
            raise BackupError(english(f"There is no file {file}.")) from error
        except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
            raise BackupError(english(f"{file} cannot be read to its end: {error}.")) from error
        (unpacked / MANIFEST).unlink()
        _check_database(unpacked / DATABASE, file)
        files = [path for path in unpacked.rglob("*") if path.is_file()]
        total = sum(path.stat().st_size for path in files)
        aside = _put_in_place(data_dir, unpacked)
    return Summary(files=len(files), bytes=total, aside=aside)


def restore_copy(settings: Settings) -> Summary:
    """Puts the newest good copy of the database in the place of the present one, which is moved aside."""
    data_dir = settings.data_dir
    with ExitStack() as stack:
        _hold_locks(stack, settings)
        copy = find_good_copy(data_dir)
        if copy is None:
            raise BackupError(
                english(f"There is no good copy in {data_dir / COPIES}."),
                advice=english("Restore a backup: restore FILE."),
            )
        unpacked = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=data_dir, prefix=RESTORING)))
        shutil.copyfile(copy, unpacked / DATABASE)
        old = [*data_dir.glob(f"{DATABASE}*")]
        aside = _move_aside(data_dir, old)
        (unpacked / DATABASE).rename(data_dir / DATABASE)
    return Summary(files=1, bytes=copy.stat().st_size, aside=aside)


def count_migrations() -> int:
    """Returns the version of the database that this Lumesh writes."""
    return len(list(MIGRATIONS_DIR.glob("[0-9][0-9][0-9]_*.sql")))


def _require_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise BackupError(
            english(f"There is no folder {folder}."), advice=english("Make it first, or choose another one.")
        )
    return folder


def _list_files(data_dir: Path, *, skipped: frozenset[str]) -> Iterator[Path]:
    """Lists regular files; skips links, which lead elsewhere, and dotfiles, which are partial files."""
    for entry in sorted(data_dir.iterdir()):
        if entry.name in skipped or entry.name.startswith((DATABASE, ASIDE, ".")) or entry.is_symlink():
            continue
        found = sorted(entry.rglob("*")) if entry.is_dir() else [entry]
        yield from (path for path in found if path.is_file() and not path.is_symlink() and path.name[0] != ".")


def _check_manifest(archive: tarfile.TarFile, file: Path) -> None:
    first = archive.next()
    content = archive.extractfile(first) if first and first.name == MANIFEST and first.size < 10_000 else None
    try:
        manifest = json.load(content) if content else {}
        version, schema = int(manifest["version"]), int(manifest["schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(
            english(f"{file} is no backup of Lumesh."), advice=english("Backups are made by `app.py backup`.")
        ) from error
    if version > VERSION or schema > count_migrations():
        raise BackupError(
            english(
                f"{file} was written by a newer Lumesh: its database is at version {schema}, this one knows "
                f"{count_migrations()}."
            ),
            advice=english("Restore it with that version."),
        )


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Writes the archive's files below `folder`, which is empty.

    Python's own `filter="data"` came with 3.11.4, and Debian 12 has 3.11.2. A backup contains only files and folders
    below its root; raises BackupError for anything else, because we did not write it.
    """
    for member in archive:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
            raise BackupError(english(f"{archive.name} holds {member.name!r}, which no backup of Lumesh does."))
        target = folder / path
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None  # extractfile returns None only for what is no file
        with target.open("xb") as file:
            shutil.copyfileobj(content, file)
        target.chmod(member.mode & 0o700 | 0o600)  # its owner's alone, also from a backup of before that
        os.utime(target, (member.mtime, member.mtime))


def _check_database(database: Path, file: Path) -> None:
    try:
        with closing(sqlite3.connect(database)) as opened:
            if opened.execute("PRAGMA user_version").fetchone()[0] > count_migrations():
                raise BackupError(
                    english(f"{file} holds the database of a newer Lumesh."),
                    advice=english("Restore it with that one."),
                )
        problem = find_problem(database)
    except sqlite3.DatabaseError as error:
        problem = str(error)
    if problem:
        raise BackupError(
            english(f"The database in {file} is damaged: {problem}."), advice=english("Take another backup.")
        )


def _put_in_place(data_dir: Path, unpacked: Path) -> Path | None:
    """Moves the files into place by renaming, which needs no disk space; returns where the old files went."""
    brought = {entry.name for entry in unpacked.iterdir()}
    kept = REMADE | MODELS - brought
    old = [
        entry
        for entry in data_dir.iterdir()
        if entry.name not in kept and not entry.name.startswith((ASIDE, RESTORING))
    ]
    aside = _move_aside(data_dir, old)
    for entry in list(unpacked.iterdir()):
        shutil.move(entry, data_dir / entry.name)
    return aside


def _move_aside(data_dir: Path, entries: Sequence[Path]) -> Path | None:
    """Moves entries into a folder of their own, and returns it; None when there are none."""
    if not entries:
        return None
    aside = data_dir / f"{ASIDE}{time.strftime('%Y%m%d-%H%M%S')}"
    aside.mkdir(mode=0o700, exist_ok=True)
    for entry in entries:
        entry.rename(aside / entry.name)
    return aside
