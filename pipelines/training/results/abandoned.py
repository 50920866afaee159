"""What orbax and tensorstore leave behind a read or write that failed: said once by whoever asked, and quiet else.

Orbax gives up on the first error: the event loop is closed, and what still ran or waited in it goes when Python
collects it, each with a traceback or a warning of its own, at any later time and in any thread.

What the operating system refuses is logged before anybody asks how the write went. Such lines are held back until
somebody is told of the refusal, in a sentence, and then dropped; where nobody is (`tell_held`), they are logged after
all. So a real failure is never lost between the two.
"""

import atexit
import functools
import gc
import json
import logging
import re
import sys
import traceback
import warnings

_DAMAGED = (
    *("DATA_LOSS", "OUT_OF_RANGE", "NOT_FOUND", "FAILED_PRECONDITION", "Error decoding"),
    "was not found in the checkpoint",
)
"""What tensorstore says of files that are cut off, changed, or gone, and orbax of folders."""
_STRANGE = ("tree structures do not match", "is not compatible with the stored shape")
"""What orbax says of a state with other arrays than are asked for."""
_OF_SYSTEM = re.compile(r"os_error_code='(\d+)'")
"""How tensorstore says which error the operating system gave it, such as 28 of a full disk."""
_CLOSED = "Event loop is closed"
_PENDING = "Task was destroyed but it is pending"
_UNSEEN = "was never retrieved"
_NOT_BEGUN = "coroutine '.*' was never awaited"
_WRITERS = ("orbax", "tensorstore")
"""Packages that write states, in the paths of their code."""
_held: list[logging.LogRecord] = []
"""Lines of the log about refusals that nobody has been told of yet."""
_told: set[int] = set()
"""Numbers of the refusals that somebody was told of, since a write has last gone well."""


def find_os_error(error: BaseException | None) -> int | None:
    """Returns the number of the operating system's error, also of one that tensorstore tells; None for others."""
    if isinstance(error, OSError):
        return error.errno
    found = _OF_SYSTEM.search(str(error))
    return int(found[1]) if found else None


def is_of_damage(error: BaseException | None) -> bool:
    """Tells whether an error, or one that it comes from, says that files of a state are cut off, changed, or gone."""
    while error is not None:
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | FileNotFoundError):
            return True
        if any(sign in str(error) for sign in _DAMAGED):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_of_strange_arrays(error: BaseException) -> bool:
    """Tells whether an error says that a state has other arrays than are asked for."""
    return any(sign in str(error) for sign in _STRANGE)


@functools.cache
def keep_quiet() -> None:
    """Keeps tracebacks of what is abandoned from stderr and the log; other errors are told as before."""
    report = sys.unraisablehook

    def report_others(unraisable: "sys.UnraisableHookArgs") -> None:
        if not _is_abandoned(unraisable.exc_value):
            report(unraisable)

    sys.unraisablehook = report_others
    atexit.register(tell_held)
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_news)


def note_told(number: int | None) -> None:
    """Notes that somebody is told of a refusal by the operating system, whose lines are dropped, later ones too."""
    if number is not None:
        _told.add(number)
        _held[:] = [record for record in _held if _find_refusal(record) not in _told]


def tell_held(*, went_well: bool = False) -> None:
    """Logs the refusals that were held back and that nobody was told of; where a write `went_well`, all is forgotten.

    Until then what is left of a refusal that was told may still be collected, and logged.
    """
    if went_well:
        _told.clear()
    while _held:
        record = _held.pop(0)
        logging.getLogger(record.name).callHandlers(record)  # past the filter


def free(error: BaseException | None) -> None:
    """Frees what an error of orbax holds in its frames, so that what never began goes here, unsaid, and not later."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NOT_BEGUN, category=RuntimeWarning)
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__
        gc.collect()


def _is_news(record: logging.LogRecord) -> bool:
    """Tells whether a line of a log says more than the one error that is raised."""
    text = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if text.startswith(_PENDING):
        return False
    if error is None:
        return True
    if _UNSEEN in text and (is_of_damage(error) or is_of_strange_arrays(error) or _is_abandoned(error)):
        return False
    number = _find_refusal(record)
    if number is not None:
        if number not in _told:
            _held.append(record)
        return False
    return True


def _find_refusal(record: logging.LogRecord) -> int | None:
    """Returns the number of the operating system's error that a line tells of a state; None for any other line."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None or find_os_error(error) is None:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    is_ours = not isinstance(error, OSError)  # tensorstore's words alone have the number in them
    is_ours = is_ours or any(writer in place for writer in _WRITERS
                             for place in (record.pathname, *(frame.filename for frame in frames)))  # fmt: skip
    return find_os_error(error) if is_ours else None


def _is_abandoned(error: BaseException | None) -> bool:
    """Tells whether an error comes from a coroutine that was given up while it waited."""
    while error is not None:
        if isinstance(error, GeneratorExit) or (isinstance(error, RuntimeError) and str(error) == _CLOSED):
            return True
        error = error.__cause__ or error.__context__
    return False
