"""A trace of what host and devices did during one job, as JAX's profiler writes it.

It takes memory with every second, so callers compile first and trace a single job. A trace that cannot be made is a
line in the log: no job fails by it.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

HOW_TO_OPEN = "drag it to https://ui.perfetto.dev, or point XProf or TensorBoard at the folder"

log = logging.getLogger(__name__)


@contextlib.contextmanager
def trace_to(folder: Path) -> Iterator[None]:
    """Traces until it is left, whatever ends it."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # every Python call would hide the devices' few hundred lines
    is_tracing = _succeeds(
        lambda: jax.profiler.start_trace(str(folder), create_perfetto_trace=True, profiler_options=options)
    )
    try:
        yield
    finally:
        if is_tracing and _succeeds(jax.profiler.stop_trace):
            log.info("%s", describe_trace(folder))


def _succeeds(action: Callable[[], None]) -> bool:
    """Runs an action of JAX's profiler; False if it raises, as on a full disk or after a trace it failed to write."""
    try:
        action()
    except (OSError, RuntimeError, ValueError) as error:
        log.warning("JAX's profiler failed: %s", error)
        return False
    return True


def describe_trace(folder: Path) -> str:
    """A sentence for the log: where the newest trace is and how to open it, or that there is none."""
    files = folder.glob("plugins/profile/*/perfetto_trace.json.gz")
    file = max(files, key=lambda file: file.stat().st_mtime, default=None)
    if file is None:
        return f"JAX's profiler left no trace of this job in {folder}: is the disk full, or the folder not writable?"
    return f"A trace of this job is in {file}: {HOW_TO_OPEN}."
