"""Errors of the disk and of SQLite become one sentence each, and a reserve makes room where there is none."""

import errno
import sqlite3
import stat
from pathlib import Path

import pytest

from studio import storage
from studio.storage import RESERVE, Reserve, StorageFullError, close_to_others, explain, passes


def sqlite_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("said by SQLite")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "title", "status", "may_pass"),
    [
        (OSError(errno.ENOSPC, "No space"), "The disk is full", 507, True),
        (OSError(errno.EDQUOT, "Quota"), "The disk is full", 507, True),
        (sqlite_error("SQLITE_FULL"), "The disk is full", 507, True),
        (sqlite_error("SQLITE_BUSY"), "The database is busy", 503, True),
        (sqlite_error("SQLITE_IOERR_WRITE"), "The disk cannot be used", 503, True),
        (sqlite_error("SQLITE_READONLY_DBMOVED"), "The disk cannot be used", 503, True),
        (sqlite_error("SQLITE_CANTOPEN"), "The disk cannot be used", 503, True),
        (sqlite_error("SQLITE_CORRUPT_INDEX"), "The database is damaged", 503, False),
        (OSError(errno.EROFS, "Read-only file system"), "The disk cannot be used", 503, True),
        (OSError(errno.EIO, "Input/output error"), "The disk cannot be used", 503, True),
    ],
)
def test_an_error_of_the_system_becomes_a_sentence_with_what_to_do(
    error: Exception, title: str, status: int, *, may_pass: bool
) -> None:
    told = explain(error)
    assert told is not None and told.advice
    assert (told.title, told.status, passes(error)) == (title, status, may_pass)


def test_a_mistake_of_ours_stays_one() -> None:
    for error in (FileNotFoundError(errno.ENOENT, "x"), sqlite_error("SQLITE_ERROR"), ValueError("disk is full")):
        assert explain(error) is None


def test_the_reserve_is_spent_once_and_kept_again(tmp_path: Path) -> None:
    reserve, tries = Reserve(tmp_path), list[bool]()

    def write() -> str:
        tries.append((tmp_path / RESERVE).exists())
        if tries[-1]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return "written"

    reserve.keep()
    assert (tmp_path / RESERVE).stat().st_size == storage.RESERVE_BYTES
    assert reserve.do(write) == "written"
    assert tries == [True, False]
    reserve.keep()
    assert (tmp_path / RESERVE).exists()


def test_without_a_reserve_a_full_disk_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(StorageFullError):
        Reserve(tmp_path).do(lambda: (_ for _ in ()).throw(storage.full()))


def test_what_was_open_to_others_is_its_owners_alone(tmp_path: Path) -> None:
    file, folder = tmp_path / "jobs.db", tmp_path / "outputs"
    file.touch(mode=0o644)
    folder.mkdir(mode=0o755)
    assert close_to_others([file, folder, tmp_path / "gone"]) == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, folder)] == [0o600, 0o700]
