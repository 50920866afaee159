"""Files that several processes change: read, changed and written again, each while no other one does.

Without this a page and a command line that add to the same file at once lose what one of them has added. A lock is of a
process that runs: one that is killed leaves none. Who only reads needs no lock, as files are written whole (whole.py).
"""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_file(file: Path) -> Generator[None]:
    """Holds a file of ours, which need not exist yet, for as long as it is changed; waits for whoever holds it.

    Threads of one process wait for each other, too. Leaves an empty file `.NAME.lock` beside it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(f".{file.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
