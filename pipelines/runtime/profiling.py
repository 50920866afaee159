"""A trace of what host and devices did during one job, as JAX's profiler writes it.

It takes memory with every second, so callers compile first and trace a single job.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import jax

HOW_TO_OPEN = "drag it to https://ui.perfetto.dev, or point XProf or TensorBoard at the folder"

log = logging.getLogger(__name__)


@contextlib.contextmanager
def trace_to(folder: Path) -> Iterator[None]:
    """Traces until it is left, whatever ends it."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # every Python call would hide the devices' few hundred lines
    with jax.profiler.trace(str(folder), create_perfetto_trace=True, profiler_options=options):
        yield
    log.info("%s", describe_trace(folder))


def describe_trace(folder: Path) -> str:
    """Where the newest trace is, and how to look at it."""
    file = max(folder.glob("plugins/profile/*/perfetto_trace.json.gz"), key=lambda file: file.stat().st_mtime)
    return f"A trace of this job is in {file}: {HOW_TO_OPEN}."
