"""The allocator of processes that trace and compile: the one that tests/run names, if any.

A process loads it when it starts. So the first one asks for it in the environment of the test processes, which take it
out of their own: browsers and commands start without it, fork servers with it.
"""

import os

ALLOCATOR = os.environ.get("TESTS_ALLOCATOR", "")
# jemalloc's own options. It keeps the memory that it has, which saves a tenth of the processor time: pages that are
# given back to the system are faults when they are needed again.
LOADS_IT = {"LD_PRELOAD": ALLOCATOR, "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"} if ALLOCATOR else {}


def hand_on() -> None:
    """Asks for the allocator for processes that this one starts; in a test process, no longer does."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ.update(LOADS_IT)
        return
    for name in LOADS_IT:
        os.environ.pop(name, None)
