"""Driving a compiled chunk of steps: the host looks about ten times a second, and the devices hardly wait for it.

One chunk is always queued behind the running one. Its length follows the measured step time, so that the bar moves
smoothly and a cancel is prompt whether a step takes a millisecond or five seconds; and it is no shorter than what the
host does meanwhile, such as writing down how far the work is on a slow disk.
"""

import time
from collections.abc import Callable

import jax
import numpy as np

from pipelines.runtime.devices import hosts

CHUNK_TARGET_S = 0.1
MAX_CHUNK = 8  # steps; bounds the noise that an ancestral scheduler needs on the devices at a time
READY_S = 0.001  # who waits no longer than that has not waited


def run_chunks(
    run: Callable[[int, int], jax.Array],
    *,
    steps: int,
    max_chunk: int,
    unit: int = 1,
    on_done: Callable[[int, jax.Array], None],
) -> float:
    """Calls `run(start, stop)` until all steps are queued, and `on_done(steps done, its array)` as each chunk ends.

    Every chunk but the last is a multiple of `unit` long.

    `run` must return at once with an array that is ready when the chunk is. Returns the host's own milliseconds a
    chunk, waiting left out. What `on_done` raises ends the loop; the chunk queued behind runs out on its own.
    """
    start, chunk, clock = 0, unit, time.perf_counter()
    began_s, waited_s, chunks, done_s = clock, 0.0, 0, 0.0
    step_s: float | None = None
    running: tuple[int, int, jax.Array] | None = None
    while start < steps or running is not None:
        queued = None
        if start < steps:
            stop = min(start + chunk, steps)
            queued = (start, stop, run(start, stop))
            start = stop
        if running is not None:
            began, ended, picture = running
            waiting_s = time.perf_counter()
            picture.block_until_ready()
            now = time.perf_counter()
            waited_s, chunks = waited_s + now - waiting_s, chunks + 1
            if step_s is None or now - waiting_s > READY_S:  # else it ended some time before, nobody knows when
                step_s = (now - clock) / (ended - began)
            clock = now
            wanted = int(np.clip(max(CHUNK_TARGET_S, done_s) / max(step_s or 0.0, 1e-6), 1, max_chunk))
            chunk = hosts.agree("steps of a chunk", unit * -(-wanted // unit))  # clocks differ
            on_done(ended, picture)
            done_s = time.perf_counter() - now
        running = queued
    return 1000 * (time.perf_counter() - began_s - waited_s) / chunks
