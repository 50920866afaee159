"""Runs one measurement in a process of its own: its memory, imports and caches are then nobody else's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError


def measure(runner: str, task: dict[str, Any], *, what: str) -> Any:
    """What the module `runner` prints last, as JSON, for the task it reads on stdin; raises LumeshError."""
    done = subprocess.run(
        [sys.executable, "-m", runner],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise LumeshError(f"The bench of {what} failed: {last}", advice="An exit code of -9 is out of memory.")
    return json.loads(done.stdout.splitlines()[-1])
