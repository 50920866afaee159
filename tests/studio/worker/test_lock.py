"""One holder at a time, and the next one is told who."""

import os
from pathlib import Path

import pytest

from studio.worker.lock import AlreadyRunningError, hold_lock


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
