"""One holder at a time, and the next one is told who."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from studio.worker.lock import AlreadyRunningError, hold_lock
from tests.places import ROOT


def test_a_second_holder_is_told_who_holds_it(tmp_path: Path) -> None:
    file = tmp_path / "app.lock"
    with (
        hold_lock(file, who="Another Lumesh", timeout_s=0),
        pytest.raises(AlreadyRunningError, match=rf"Another Lumesh \(process {os.getpid()}\)"),
        hold_lock(file, who="Another Lumesh", timeout_s=0),
    ):
        pass


def test_a_lock_that_was_left_is_free(tmp_path: Path) -> None:
    file = tmp_path / "app.lock"
    for _ in range(2):
        with hold_lock(file, who="Another Lumesh", timeout_s=0):
            assert file.read_text() == str(os.getpid())


@pytest.mark.process
def test_whoever_waits_gets_the_lock_of_a_holder_that_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "app.lock"
    code = f"""
import sys
from pathlib import Path
from studio.worker.lock import hold_lock
with hold_lock(Path({str(file)!r}), who="A", timeout_s=0):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        message = rf"A worker \(process {holder.pid}\) already uses"
        with pytest.raises(AlreadyRunningError, match=message), hold_lock(file, who="A worker", timeout_s=0.1):
            pass
        holder.kill()
        with hold_lock(file, who="A worker", timeout_s=20):
            assert file.read_text() == str(os.getpid())
