"""Sessions end by time, by logging out, and when anybody changes a letter of them."""

import stat
from pathlib import Path

import pytest

from studio.access.sessions import KeyFileError, Sessions, Signer, read_key
from studio.database import Database
from studio.settings import Settings


@pytest.fixture
def sessions(settings: Settings, database: Database) -> Sessions:
    return Sessions(read_key(settings.secret_file), database)


def test_a_session_is_read_until_it_is_ended(sessions: Sessions) -> None:
    cookie = sessions.open(owner="ada", name="Ada", stamp="s")
    session = sessions.read(cookie)
    assert session
    assert (session.owner, session.name, session.stamp) == ("ada", "Ada", "s")
    sessions.end(session)
    assert sessions.read(cookie) is None
    assert sessions.read(sessions.open(owner="ada", name="Ada")), "others of the same person go on"


def test_a_session_that_is_over_is_nobodys(sessions: Sessions) -> None:
    assert sessions.read(sessions.open(owner="ada", name="Ada", lasts_s=-1)) is None


def test_another_owner_cannot_be_written_into_it(sessions: Sessions, database: Database) -> None:
    mine = sessions.open(owner="bob", name="bob")
    forged = Sessions(b"another key" * 3, database).open(owner="ada", name="ada")
    assert sessions.read(forged) is None
    assert sessions.read(forged.partition(".")[0] + "." + mine.partition(".")[2]) is None
    for broken in ("", ".", "a.b", mine[:-1], mine + "0", "é.é"):
        assert sessions.read(broken) is None


def test_what_was_signed_for_another_purpose_is_no_session(settings: Settings, sessions: Sessions) -> None:
    values = Signer(read_key(settings.secret_file), purpose="session").read(sessions.open(owner="a", name="a"))
    assert values
    assert sessions.read(Signer(read_key(settings.secret_file), purpose="hub login").sign(values)) is None


def test_the_key_stays_and_is_its_owners_alone(settings: Settings) -> None:
    key = read_key(settings.secret_file)
    assert len(key) == 32
    assert read_key(settings.secret_file) == key
    assert stat.S_IMODE(settings.secret_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("stored", [b"", b"\n", b"ab" * 16, b"zz" * 32, b"\xff" * 64, b"ab" * 33])
def test_a_file_that_holds_no_key_is_refused_with_what_to_do_and_left_alone(tmp_path: Path, stored: bytes) -> None:
    file = tmp_path / "secret.key"
    file.write_bytes(stored)
    with pytest.raises(KeyFileError, match="Delete the file, or bring it back from a backup"):
        read_key(file)
    assert file.read_bytes() == stored


def test_nothing_is_ever_signed_with_an_empty_or_short_key() -> None:
    for key in (b"", b"short"):
        with pytest.raises(AssertionError):
            Signer(key, purpose="session")
