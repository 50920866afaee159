"""Runs one measurement in a process of its own, so that it shares no memory, imports or caches with others.

Both ends are here: `measure` starts a runner and sends it a task, and the runner calls `answer`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError, MeshError
from pipelines.messages import NOTHING, english

MESH_REFUSED = 2  # the command line's exit code for it
REFUSED = 3  # exit code of a runner whose last line on stderr is an error message for people
KILLED = -9


def measure(runner: str, task: dict[str, Any], *, what: str) -> Any:
    """Runs the module `runner` with the task as JSON on stdin, and returns the JSON that it prints last.

    Raises LumeshError, and MeshError for a mesh that is malformed or does not fit.
    """
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-m", runner],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env=environment | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "JAX_TRACEBACK_FILTERING": "off"},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if done.returncode == MESH_REFUSED:
            raise MeshError(english(last))
        if done.returncode == REFUSED:
            raise LumeshError(english(last))
        advice = english("The system ended it: out of memory?") if done.returncode == KILLED else NOTHING
        raise LumeshError(english(f"The bench of {what} failed: {last}"), advice=advice)
    return json.loads(done.stdout.splitlines()[-1])


def answer(run: Callable[[dict[str, Any]], Any]) -> None:
    """Calls `run` with the task on stdin and prints its result as JSON, or its error as a line on stderr and exits."""
    try:
        figures = run(json.load(sys.stdin))
    except LumeshError as error:
        print(" ".join(str(error).split()), file=sys.stderr)  # noqa: T201 - read by `measure`
        sys.exit(MESH_REFUSED if isinstance(error, MeshError) else REFUSED)
    print(json.dumps(figures))  # noqa: T201 - the result, read by `measure`
