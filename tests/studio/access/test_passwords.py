"""Which passwords are refused because anybody would try them first, and which are not."""

import pytest

from studio.access.passwords import is_weak

COMMON = (
    *("12345678", "password", "Password1!", "passw0rd", "p@ssw0rd1", "qwerty123", "1q2w3e4r", "zaq12wsx", "trustno1"),
    *("abcdefgh", "87654321", "aaaaaaaa", "abababab", "passwordpassword", "letmein1", "lumesh2026", "Summer2026!"),
    *("a1b2c3d4", "1qaz2wsx", "1234qwer", "adm1n123", "12345678!!", "zyxwvuts"),
)


@pytest.mark.parametrize("password", COMMON)
def test_what_anybody_tries_first_is_weak(password: str) -> None:
    assert is_weak(password)


@pytest.mark.parametrize("password", ["lovelace", "Lovelace1815", "lovelacelovelace", "l0velace!"])
def test_ones_own_name_is_weak_for_oneself_alone(password: str) -> None:
    assert is_weak(password, "lovelace")
    assert not is_weak(password, "ada")


@pytest.mark.parametrize(
    "password", ["lovelace-1815", "x7Kp9qLm", "my dog barks", "passwords are fun", "8842190377461123"]
)
def test_others_are_taken(password: str) -> None:
    assert not is_weak(password)
    assert not is_weak(password, "ada")
