"""Loads tcmalloc, where it is installed, in place of the C library's allocator.

XLA's compilers allocate so much, on so many threads, that a fifth of their time goes into that (measured.md). A process
can only take another allocator when it starts: commands start themselves once more, and the studio its workers with it.
Who sets LD_PRELOAD, to nothing or to something else, has chosen.
"""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOAD = "LD_PRELOAD"
NAMES = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")  # the former has no profilers
PLACES = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib")
SETTINGS = {
    # Threads share 32 MB by themselves: those of compilers and devices would take them from each other.
    "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": str(2**30),
    "TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD": str(2**60),  # weights are no mistake
}


def choose(environment: Mapping[str, str], places: Sequence[str] = PLACES) -> dict[str, str]:
    """Returns the variables that load tcmalloc into a process; none where it is missing, or somebody has chosen."""
    if PRELOAD in environment or sys.platform != "linux":
        return {}
    files = (Path(place, name) for name in NAMES for place in places)
    found = next((file for file in files if file.exists()), None)
    return {} if found is None else {PRELOAD: str(found), **SETTINGS}


def load(module: str) -> None:
    """Starts this process, `python -m MODULE`, again with the allocator: the same command and process id.

    Nothing happens where there is none, and in a process that is not what its command line says, as a fork is not.
    """
    chosen = choose(os.environ)
    if chosen and sys.orig_argv[-len(sys.argv) :] == [module, *sys.argv[1:]]:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **chosen})
