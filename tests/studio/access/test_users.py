"""The users file: hashes and digests only, for its owner's eyes, noticed when it changes."""

import stat
from pathlib import Path

import pytest

from studio.access.users import Users, UsersError


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.json")


def test_only_the_right_password_of_the_right_name_passes(users: Users, tmp_path: Path) -> None:
    users.add("ada", password="lovelace-1815", is_admin=True)
    user = users.check_password("ada", "lovelace-1815")
    assert user
    assert user.is_admin
    assert users.check_password("ada", "lovelace-1816") is None
    assert users.check_password("bob", "lovelace-1815") is None
    content = (tmp_path / "users.json").read_text()
    assert "lovelace" not in content
    assert "scrypt" in content


def test_the_file_is_its_owners_alone_and_another_process_sees_changes(users: Users, tmp_path: Path) -> None:
    users.add("ada", password=None, is_admin=False)
    assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600
    other = Users(tmp_path / "users.json")
    token = other.add_token("ada")
    assert token not in (tmp_path / "users.json").read_text()
    found = users.find_token(token)
    assert found
    assert found[0] == "ada"
    assert users.find_token(token + "x") is None
    other.revoke_tokens("ada")
    assert users.find_token(token) is None


def test_who_has_no_password_cannot_log_in_with_none(users: Users) -> None:
    users.add("robot", password=None, is_admin=False)
    assert users.check_password("robot", "") is None


def test_a_new_password_has_another_stamp(users: Users) -> None:
    users.add("ada", password="lovelace-1815", is_admin=False)
    before = users.read()["ada"].stamp
    users.set_password("ada", "lovelace-1815")
    assert users.read()["ada"].stamp != before


def test_a_damaged_file_lets_nobody_in_and_is_not_quoted(users: Users, tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"users": {"ada": {"password": 17, "secret": "abc"}}}')
    with pytest.raises(UsersError, match="damaged") as caught:
        users.read()
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "Ada", "a b", "../a", "a" * 41, "-a"])
def test_names_are_plain(users: Users, name: str) -> None:
    with pytest.raises(UsersError, match="cannot be a name"):
        users.add(name, password=None, is_admin=False)


def test_nobody_is_added_twice_and_only_known_ones_are_removed(users: Users) -> None:
    users.add("ada", password=None, is_admin=False)
    with pytest.raises(UsersError, match="already"):
        users.add("ada", password=None, is_admin=True)
    users.remove("ada")
    with pytest.raises(UsersError, match="no user 'ada'"):
        users.remove("ada")
