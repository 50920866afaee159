"""`python app.py users`: what is refused, what is said, and what a change ends."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from studio.access import commands, passwords
from studio.access.users import Users, UsersError
from studio.database import Database
from studio.jobs import webhooks
from studio.jobs.job import Job
from studio.worker.loop import Worker


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs one command, with a password from a pipe if one is given; returns what it printed."""

    monkeypatch.setattr(passwords, "LOG2_N", 4)  # a quick hash

    def run(*arguments: str, password: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{password}\n"))
        piped = ["--password-stdin"] if password else []
        assert commands.run([*arguments, *piped, "--data-dir", str(tmp_path)], {}) == 0
        return capsys.readouterr().out

    return run


def test_a_weak_password_is_refused_and_changes_nothing(run: Callable[..., str], tmp_path: Path) -> None:
    for password in ("password", "12345678", "ada12345"):
        with pytest.raises(UsersError, match="among the first that anybody tries"):
            run("add", "ada", password=password)
    assert Users(tmp_path / "users.json").read() == {}
    run("add", "ada", password="lovelace-1815")
    with pytest.raises(UsersError, match="among the first"):
        run("password", "ada", password="password1")
    assert Users(tmp_path / "users.json").check_password("ada", "lovelace-1815")


def test_a_new_password_ends_the_tokens_and_says_so(run: Callable[..., str], tmp_path: Path) -> None:
    run("add", "ada", password="lovelace-1815")
    token = run("token", "ada").strip()
    users = Users(tmp_path / "users.json")
    assert users.find_token(token)
    assert "tokens are void" in run("password", "ada", password="lovelace-1852")
    assert users.find_token(token) is None


def test_who_gets_anothers_name_is_told_before_what_is_theirs_then(
    run: Callable[..., str], database: Database, submit: Callable[..., Job], worker: Worker
) -> None:
    assert "NOTICE" not in run("add", "eve", "--no-password")
    submit(owner="bob", batch_size=2)
    worker.run_next()
    webhooks.set_webhook(database, owner="bob", url="https://example.com/told")
    run("add", "bob", "--no-password")
    run("remove", "bob")
    printed = run("add", "bob", "--no-password")
    assert printed.splitlines()[0] == (
        "NOTICE  An earlier bob left 2 outputs, 1 job, 1 webhook, which bob gets back now. "
        "For somebody else choose another name."
    )


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_a_database_that_cannot_be_read_keeps_nobody_out(
    run: Callable[..., str], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "jobs.db").write_bytes(content)
    assert run("add", "ada", "--no-password") == "ada is there; `users token ada` makes a token\n"


def test_nobody_is_called_as_the_owner_of_what_was_made_without_a_login(run: Callable[..., str]) -> None:
    for name in ("local", "LOCAL"):
        with pytest.raises(UsersError, match="owns what was made before anybody logged in"):
            run("add", name, "--no-password")
