"""How a host ends, and what the others are told of it: by itself, by Ctrl+C, and by JAX, which aborts it for others.

Not here: when it does (hosts.py). Importable without JAX.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pipelines.errors import LumeshError, RecipeError

LOST = 75
"""Exit code of a host whose others ended: EX_TEMPFAIL of sysexits.h, the same command may be run again."""


def explain(error: BaseException) -> tuple[str, int]:
    """Returns why a host ends, for the others, and with which code they end.

    It is `LOST` where the same command may go on as it is: another try would fail as this one did where somebody has
    to correct or to mend something.
    """
    if isinstance(error, KeyboardInterrupt):
        return "it was told to", LOST
    if isinstance(error, LumeshError):
        return " ".join(str(error).split()), 2 if isinstance(error, RecipeError) else 1
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}", 1
    return type(error).__name__, LOST


@contextlib.contextmanager
def ending_by_ctrl_c() -> Iterator[None]:
    """Context in which Ctrl+C ends the process at once: JAX waits for the other hosts where Python hears nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)


_handlers: list[Any] = []  # C keeps none of them


def end_on_abort(say_why: Callable[[], str], on_end: Callable[[str], None], code: int) -> None:
    """Makes the abort by which JAX ends a process without its others an exit with `code` and a line that says why."""

    def end(_number: int) -> None:
        line = say_why()
        tell(line)
        on_end(line)
        os._exit(code)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    _handlers.append(kind(end))
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = (ctypes.c_int, kind), ctypes.c_void_p
    library.signal(signal.SIGABRT, _handlers[-1])


def tell(line: str) -> None:
    """Writes a line for people, whatever thread or handler of C asks."""
    with contextlib.suppress(OSError):
        os.write(2, f"\nlumesh: {line}\n".encode())


def exit_at_once(code: int) -> NoReturn:
    """Ends the process without waiting for other threads, or for other hosts as JAX would."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
