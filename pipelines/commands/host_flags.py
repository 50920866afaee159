"""Which of several hosts this is, as a command line says before its options are read, or else a TPU pod.

What is asked here is needed early: by flags whose meaning depends on the number of hosts, by notes that one host alone
tells, and by a host that ends before it has joined the others.
"""

from collections.abc import Callable, Sequence

from pipelines.errors import RecipeError
from pipelines.runtime.devices import pods
from pipelines.runtime.devices.pods import Address

COMMANDS = ("train", "generate", "check-slice")
"""What runs on several hosts at once."""


def count_hosts(arguments: Sequence[str], find_pod: Callable[[], Address | None]) -> int:
    """Returns how many hosts work together: as --processes says, else as the pod does that this host is one of."""
    given = _find_value("--processes", arguments)
    if given is not None:
        return _read_number(given) or 1  # the option says what is wrong with it
    pod = find_pod()
    return 1 if pod is None else pod.processes


def is_first_host(arguments: Sequence[str], find_pod: Callable[[], Address | None]) -> bool:
    """Returns whether this is the host that speaks: as --process says, else as the pod does."""
    given = _find_value("--process", arguments)
    if given is not None:
        return not _read_number(given)
    pod = find_pod()
    return pod is None or pod.process == 0


def find_address(arguments: Sequence[str]) -> Address | None:
    """Returns this host's place among several, None for a single host and where that itself is said wrongly."""
    processes, process = (_find_value(f"--{name}", arguments) for name in ("processes", "process"))
    try:
        return pods.find_address(_find_value("--coordinator", arguments), _to_int(processes), _to_int(process))
    except (RecipeError, ValueError):
        return None


def _find_value(option: str, arguments: Sequence[str]) -> str | None:
    words = [*arguments]
    for number, word in enumerate(words):
        flag, has_value, value = word.partition("=")
        if flag == option:
            return value if has_value else "".join(words[number + 1 : number + 2])
    return None


def _read_number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _to_int(text: str | None) -> int | None:
    return None if text is None else int(text)
