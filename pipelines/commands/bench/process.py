"""Runs one measurement in a process of its own: its memory, imports and caches are then nobody else's.

Both ends are here: `measure` starts a runner and gives it a task, and the runner gives it to `answer`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError, MeshError

MESH_REFUSED = 2  # as the command line ends
REFUSED = 3  # exit code of a runner whose last line on stderr says to people what is wrong
KILLED = -9


def measure(runner: str, task: dict[str, Any], *, what: str) -> Any:
    """What the module `runner` prints last, as JSON, for the task it reads on stdin.

    Raises LumeshError, and MeshError for a mesh that is none or does not fit.
    """
    done = subprocess.run(
        [sys.executable, "-m", runner],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "JAX_TRACEBACK_FILTERING": "off"},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if done.returncode == MESH_REFUSED:
            raise MeshError(last)
        if done.returncode == REFUSED:
            raise LumeshError(last)
        advice = "The system ended it: out of memory?" if done.returncode == KILLED else ""
        raise LumeshError(f"The bench of {what} failed: {last}", advice=advice)
    return json.loads(done.stdout.splitlines()[-1])


def answer(run: Callable[[dict[str, Any]], Any]) -> None:
    """A runner's: prints what `run` makes of the task on stdin as JSON, or why it cannot, in one line on stderr."""
    try:
        figures = run(json.load(sys.stdin))
    except LumeshError as error:
        print(" ".join(str(error).split()), file=sys.stderr)  # noqa: T201 - read by `measure`
        sys.exit(MESH_REFUSED if isinstance(error, MeshError) else REFUSED)
    print(json.dumps(figures))  # noqa: T201 - the result, read by `measure`
