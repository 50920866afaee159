"""A damaged database is told with the way back, and never takes the place of a good copy."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from studio.database import Database, DatabaseError, care, open_database
from studio.settings import Settings


def make(settings: Settings, *, with_output: bool = False) -> bytes:
    """A database of some pages, whole in its one file; returns its bytes."""
    with closing(open_database(settings.database_file)) as database, database.write() as tx:
        tx.executemany(
            "INSERT INTO events (kind, owner, at, data) VALUES ('x', ?, 0, ?)",
            [(f"owner {number}", f'"{"x" * 500}"') for number in range(200)],
        )
    if with_output:
        (settings.outputs_dir / "2026-01-01").mkdir(parents=True)
        (settings.outputs_dir / "2026-01-01" / "abc-0.png").touch()
    return settings.database_file.read_bytes()


def damage(content: bytes, how: str) -> bytes:
    middle = len(content) // 8192 * 4096
    return {
        "cut at 100": content[:100],
        "cut in half": content[:middle],
        "a page less": content[:-4096],
        "another header": b"\xff" * 100 + content[100:],
        "text": b"hello" * 2000,
        "a page of zeros": content[:middle] + bytes(4096) + content[middle + 4096 :],
        "flipped bits": bytes(byte ^ (place % 997 == 5) for place, byte in enumerate(content)),
    }[how]


DAMAGE = ("cut at 100", "cut in half", "a page less", "another header", "text", "a page of zeros", "flipped bits")


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_database_is_refused_with_the_way_back_and_nothing_is_changed(settings: Settings, how: str) -> None:
    content = damage(make(settings), how)
    settings.database_file.write_bytes(content)
    with pytest.raises(DatabaseError, match=r"is damaged \(.*Nothing was changed.*restore --data-dir .* FILE"):
        care.require_sound(settings.database_file, settings.outputs_dir)
    assert settings.database_file.read_bytes() == content
    with pytest.raises(DatabaseError, match="is damaged"):
        care.keep_copy(settings.database_file)
    assert care.list_copies(settings.data_dir) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_or_missing_database_of_a_studio_in_use_is_no_new_studio(
    settings: Settings, *, is_there: bool
) -> None:
    make(settings, with_output=True)
    settings.database_file.unlink()
    if is_there:
        settings.database_file.touch()
    what = "empty" if is_there else "gone"
    with pytest.raises(DatabaseError, match=f"is {what}, but .* has 1 outputs"):
        care.require_sound(settings.database_file, settings.outputs_dir)


def test_a_new_studio_and_a_sound_one_start(settings: Settings) -> None:
    care.require_sound(settings.database_file, settings.outputs_dir)
    settings.database_file.touch()  # killed while it began
    care.require_sound(settings.database_file, settings.outputs_dir)
    make(settings, with_output=True)
    care.require_sound(settings.database_file, settings.outputs_dir)


def test_the_way_back_names_the_last_good_copy(settings: Settings) -> None:
    content = make(settings)
    copy = care.keep_copy(settings.database_file)
    assert copy is not None
    settings.database_file.write_bytes(content[:5000])
    with pytest.raises(DatabaseError, match=r"last good copy back, of 20.*--last-copy\. .* are lost"):
        care.require_sound(settings.database_file, settings.outputs_dir)
    copy.write_bytes(content[:5000])
    with pytest.raises(DatabaseError, match="Without any backup"):
        care.require_sound(settings.database_file, settings.outputs_dir)


def test_copies_rotate_and_hold_what_is_not_in_the_file_yet(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(care.KEPT_COPIES + 2):
        with database.write() as tx:
            tx.execute("INSERT INTO events (kind, owner, at, data) VALUES ('x', '', 0, '{}')")
        monkeypatch.setattr(care.time, "strftime", lambda *_, number=number: f"2026010{number}-000000")
        newest = care.keep_copy(settings.database_file)
    copies = care.list_copies(settings.data_dir)
    assert len(copies) == care.KEPT_COPIES
    assert newest in copies
    assert care.find_problem(newest, is_thorough=True) == ""
    with closing(sqlite3.connect(newest)) as copy:
        assert copy.execute("SELECT count(*) FROM events").fetchone()[0] == care.KEPT_COPIES + 2
    assert not [*(settings.data_dir / care.COPIES).glob(".*")]


def test_a_disk_without_room_keeps_the_copies_that_are_there(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = care.keep_copy(settings.database_file)
    monkeypatch.setattr(care, "count_free", lambda _: 1000)
    assert care.keep_copy(settings.database_file) is None
    assert care.list_copies(settings.data_dir) == [first]


def test_a_database_in_use_is_checked_beside_its_writer(settings: Settings, database: Database, tmp_path: Path) -> None:
    with database.write() as tx:
        tx.execute("INSERT INTO events (kind, owner, at, data) VALUES ('x', '', 0, '{}')")
        assert care.find_problem(settings.database_file) == ""
