"""What `python app.py` says when it cannot start or a command cannot work: one message, never a traceback."""

import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import app
from studio.access.users import Users
from studio.database import Database
from studio.jobs.job import Job
from studio.worker.loop import Worker


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Runs `main` in this process, which must not get as far as serving; returns its code and what it printed."""
    umask = os.umask(0o022)
    monkeypatch.setattr(app.signal, "signal", lambda *_: None)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["app.py", *arguments])
        code = app.main()
        return code, capsys.readouterr().err

    yield run
    os.umask(umask)


def fail_with(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def sqlite_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("said by SQLite")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        (
            "hold_lock",
            OSError(errno.EROFS, "Read-only file system", "/x/app.lock"),
            "/x/app.lock: Read-only file system",
        ),
        ("require_sound", sqlite_error("SQLITE_CANTOPEN"), "The disk cannot be used: The database cannot be opened"),
        ("require_sound", sqlite_error("SQLITE_FULL"), "The disk is full"),
        ("require_sound", sqlite_error("SQLITE_BUSY"), "The database is busy: Another program holds the database"),
        ("hold_lock", OSError(errno.ENOSPC, "No space left on device", "/x/a"), "The disk is full"),
        (
            "hold_lock",
            IsADirectoryError(errno.EISDIR, "Is a directory", "/x/users.json"),
            "/x/users.json: Is a directory",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_start_that_fails_for_the_disk_says_why(
    run: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    where: str,
    error: Exception,
    said: str,
) -> None:
    monkeypatch.setattr(app, where, fail_with(error))
    code, printed = run("--fake", "--data-dir", str(tmp_path))
    assert code == 2
    assert said in printed
    assert "Traceback" not in printed


def test_a_damaged_database_and_key_are_told_with_the_way_back(
    run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    (tmp_path / "jobs.db").write_bytes(b"no database" * 1000)
    code, printed = run("--fake", "--data-dir", str(tmp_path))
    assert code == 2
    assert "is damaged" in printed and "restore" in printed
    (tmp_path / "secret.key").write_bytes(b"")
    code, printed = run("--fake", "--data-dir", str(tmp_path))
    assert code == 2
    assert "is empty, so nobody's session can be trusted" in printed


def test_commands_that_the_disk_refuses_say_why(
    run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = OSError(errno.EROFS, "Read-only file system", str(tmp_path / "users.lock"))
    monkeypatch.setattr(Users, "add", fail_with(refused))
    code, printed = run("users", "add", "ada", "--no-password", "--data-dir", str(tmp_path))
    assert (code, "Traceback" in printed) == (2, False)
    assert "users.lock: Read-only file system" in printed
    (tmp_path / "jobs.db").touch()
    monkeypatch.setattr(app.backup, "take_snapshot", fail_with(sqlite_error("SQLITE_FULL")))
    code, printed = run("backup", str(tmp_path.parent / "lumesh.tar"), "--data-dir", str(tmp_path))
    assert code == 2
    assert "The disk is full" in printed


def test_whatever_a_process_of_ours_makes_is_its_accounts_alone(
    run: Callable[..., tuple[int, str]], database: Database, submit: Callable[..., Job], worker: Worker
) -> None:
    settings = worker.settings
    assert run("users", "add", "ada", "--no-password", "--data-dir", str(settings.data_dir))[0] == 0
    submit()
    worker.run_next()  # within the process whose umask `main` set
    made = [settings.users_file, *settings.outputs_dir.rglob("*")]
    assert len(made) > 3
    assert {path.stat().st_mode & 0o077 for path in made} == {0}
    database.file.chmod(0o644)
    app._warn_of_readable(settings)
    assert {path.stat().st_mode & 0o077 for path in settings.private_paths if path.exists()} == {0}
