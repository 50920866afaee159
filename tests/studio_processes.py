"""Studios in processes of their own: started as people start them, or, in a sixth of the time, forked.

Importing the app takes most of a studio's start. A process that has imported it (multiprocessing's fork server, one of
each test process) becomes a studio at once, and is one in every other way: its own session, environment, files and
signals. Its worker is forked, too (forked_python.py). What the interpreter or the environment do to imports is only
seen by a studio that starts as a command.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

from tests.allocator import LOADS_IT
from tests.forked_python import find_forked_python
from tests.places import ROOT

START_DEADLINE_S = 120.0  # two interpreters and Gradio, on a machine that may be busy
END_DEADLINE_S = 60.0  # a second, where nothing else runs and writes
SHOWS_STACKS = {"PYTHONFAULTHANDLER": "1"}  # SIGABRT makes a process print where its threads are

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.imported_app"])


class Process(Protocol):
    """What tests need of either kind."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


def start_app(flags: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Runs `python app.py` with these flags; what it prints goes to the end of `log`."""
    with log.open("ab") as printed:
        return subprocess.Popen(
            [sys.executable, "app.py", *flags],
            cwd=ROOT,
            env={**os.environ, **SHOWS_STACKS, **(environment or {})},
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def fork_app(flags: Sequence[str], log: Path) -> Process:
    """The same in a process that has imported the app."""
    return ForkedApp(flags, log)


def run_app(flags: Sequence[str], log: Path) -> tuple[int, str]:
    """The exit code of a forked app that ends by itself, and what it says; `log` is a new file."""
    code = fork_app(flags, log).wait(START_DEADLINE_S)
    return code, log.read_text("utf-8")


def end_app(process: Process, log: Path, how: signal.Signals = signal.SIGTERM) -> None:
    """Ends a studio as a system or Ctrl+C does; one that goes on is killed and fails the test with where it was."""
    process.send_signal(how)
    try:
        process.wait(END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait(END_DEADLINE_S)
        said = log.read_text("utf-8", "replace")
        raise AssertionError(f"the studio has not ended in {END_DEADLINE_S:.0f} s:\n{said}") from None


class ForkedApp:
    """A forked studio, with the names of subprocess.Popen."""

    def __init__(self, flags: Sequence[str], log: Path) -> None:
        arguments = (list(flags), log, dict(os.environ), find_forked_python())
        self._process = _server.Process(target=_run, args=arguments, daemon=True)
        # The first studio starts the server, which finds what it imports there, and has this environment.
        with contextlib.chdir(ROOT), patch.dict(os.environ, LOADS_IT):
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a studio", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(flags: list[str], log: Path, environment: dict[str, str], python: str) -> None:
    """Makes this process what `start_app` starts; `python` starts its worker."""
    assert "app" in sys.modules, "tests/imported_app.py cannot be imported: every studio would import all of it anew"
    os.setsid()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    printed = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.close(printed)
    faulthandler.enable()
    sys.argv, sys.executable = ["app.py", *flags], python
    import app

    sys.exit(app.main())
