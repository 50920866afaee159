"""The secret of a cluster: made once, read by this account alone, never printed into an environment."""

from pathlib import Path

import pytest

from studio.cluster.token import TokenError, give_ray, make_token, read_token, write_token


def test_a_token_is_made_once_for_this_account_alone(tmp_path: Path) -> None:
    file = tmp_path / "data" / "ray.token"
    token = make_token(file)
    assert (len(token), make_token(file), read_token(file)) == (64, token, token)
    assert file.stat().st_mode & 0o777 == 0o600
    assert token not in give_ray(file).values()
    assert give_ray(file)["RAY_AUTH_MODE"] == "token"


def test_a_token_of_another_machine_replaces_the_one_here(tmp_path: Path) -> None:
    file = tmp_path / "ray.token"
    make_token(file)
    write_token(file, f"  {'a' * 64}\n")
    assert read_token(file) == "a" * 64


def test_what_is_no_token_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "ray.token"
    with pytest.raises(TokenError, match=r"There is no .*ray\.token"):
        give_ray(file)
    write_token(file, "short")
    with pytest.raises(TokenError, match="holds no token"):
        give_ray(file)
    write_token(file, "a" * 64)
    file.chmod(0o644)
    with pytest.raises(TokenError, match="Other accounts of this machine can read") as raised:
        give_ray(file)
    assert "chmod 600" in str(raised.value.advice)
