"""Groups of processes that outlive whoever started them: a Ray node with its servers, which begins a session anew."""

import os
import signal
import time
from pathlib import Path

POLL_S = 0.05


def is_alive(pid: int) -> bool:
    """Tells whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end_group(pid: int, *, within_s: float) -> None:
    """Ends a group and its leader: all are told at once, since Ray's own order gives each a second of its own."""
    _tell(pid, signal.SIGTERM)
    deadline = time.monotonic() + within_s
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    _tell(pid, signal.SIGKILL)


def _tell(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
