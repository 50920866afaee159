"""The allocator of processes that trace and compile: the one that tests/run names, if any.

A process loads it when it starts. So the first one asks for it in the environment of the test processes, which take it
out of their own: browsers and commands start without it, fork servers with it. (jemalloc would be as quick, but the
TPU's compiler crashes with it.)
"""

import os

ALLOCATOR = os.environ.get("TESTS_ALLOCATOR", "")
# tcmalloc's threads share 32 MB by themselves: those of compilers and devices would take them from each other.
LOADS_IT = {"LD_PRELOAD": ALLOCATOR, "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": str(1 << 30)} if ALLOCATOR else {}


def hand_on() -> None:
    """Asks for the allocator for processes that this one starts; in a test process, no longer does."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ.update(LOADS_IT)
        return
    for name in LOADS_IT:
        os.environ.pop(name, None)
