"""A forked studio is what the command is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.studio_processes import Process, fork_app, start_app


@pytest.mark.parametrize("start", [start_app, fork_app])
def test_either_refuses_wrong_flags_and_prints_into_its_file(start: Callable[..., Process], tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    process = start(["--no-such-flag"], log)
    assert process.wait(120) == process.returncode == 2
    assert "--no-such-flag" in log.read_text()


@pytest.mark.parametrize("start", [start_app, fork_app])
def test_either_reads_what_the_environment_says_when_it_starts(
    start: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the fork server started before."""
    fork_app(["--no-such-flag"], tmp_path / "first.log").wait(120)
    monkeypatch.setenv("LUMESH_PORT", "harbour")
    process = start([], tmp_path / "app.log")
    assert process.wait(120) == 2
    assert "harbour" in (tmp_path / "app.log").read_text()
