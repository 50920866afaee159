"""Nobody opens their machine to others by accident."""

from pathlib import Path

import pytest

from studio.access.safety import NO_USERS_WARNING, OPEN_WARNING, AccessError, check
from studio.access.users import Users
from studio.access_settings import Mode
from studio.flags import read_settings

SPACE = {"SPACE_ID": "me/lumesh", "SPACE_HOST": "me-lumesh.hf.space"}


def test_this_machine_alone_needs_nothing(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        assert check(read_settings(["--host", host, "--data-dir", str(tmp_path)], {})) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "studio.example.com"])
def test_other_machines_come_in_only_on_purpose(tmp_path: Path, host: str) -> None:
    flags = ["--host", host, "--data-dir", str(tmp_path)]
    with pytest.raises(AccessError, match="nobody has to log in"):
        check(read_settings(flags, {}))
    assert check(read_settings([*flags, "--open"], {})) == [OPEN_WARNING]
    assert check(read_settings(flags, {"LUMESH_OPEN": "1"})) == [OPEN_WARNING]
    assert check(read_settings([*flags, "--access", "password"], {})) == [NO_USERS_WARNING]


def test_where_there_are_users_they_log_in(tmp_path: Path) -> None:
    Users(tmp_path / "users.json").add("ada", password="lovelace-1815", is_admin=True)
    settings = read_settings(["--host", "0.0.0.0", "--data-dir", str(tmp_path)], {})
    assert settings.access.mode is Mode.PASSWORD
    assert check(settings) == []


def test_a_space_logs_in_with_the_hub_when_it_can(tmp_path: Path) -> None:
    flags = ["--data-dir", str(tmp_path)]
    with pytest.raises(AccessError, match=r"hf_oauth: true"):
        check(read_settings(flags, SPACE))
    login = {**SPACE, "OAUTH_CLIENT_ID": "id", "OAUTH_CLIENT_SECRET": "very secret"}
    settings = read_settings([*flags, "--admins", "Ada,bob"], login)
    assert settings.access.mode is Mode.HUGGINGFACE
    assert settings.access.admins == {"ada", "bob"}
    assert check(settings) == []
    assert "very secret" not in f"{settings}"


def test_a_proxy_must_be_named(tmp_path: Path) -> None:
    flags = ["--access", "proxy", "--data-dir", str(tmp_path)]
    with pytest.raises(AccessError, match="--trusted-proxies"):
        check(read_settings(flags, {}))
    settings = read_settings([*flags, "--trusted-proxies", "127.0.0.1, 10.0.0.0/8"], {})
    assert settings.access.is_trusted("10.1.2.3")
    assert not settings.access.is_trusted("11.1.2.3")
    assert not settings.access.is_trusted(None)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--access", "none"], "'none' is not one of open, password"),
        (["--trusted-proxies", "proxy.local"], "proxy.local"),
        (["--user-header", "X User"], "not the name of a header"),
        (["--submits-per-minute", "0"], "1 or more"),
        (["--prompt-hook", "filters.py"], "write module:function"),
    ],
)
def test_wrong_values_end_with_one_line(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(flags, {})
    assert message in capsys.readouterr().err


def test_the_worker_gets_the_image_hook(tmp_path: Path) -> None:
    settings = read_settings(["--data-dir", str(tmp_path), "--image-hook", "filters:check"], {})
    assert read_settings(settings.worker_flags(), {}).access.image_hook == "filters:check"
