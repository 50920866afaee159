"""Several hosts that work as one: started together, they run the same programs in the same order, and end together.

JAX wants each host of a mesh to run the same programs. What depends on a clock, a person or a disk is therefore decided
by the first host, the leader, and followed by the others (`agree`); what all must have alike is compared before any of
it is used (`compare`). Both go through JAX's coordination service, a store of texts beside the devices: nothing waits
behind the program that runs. On a single host every function here is the identity.
Not here: where they meet (pods.py), how one ends (host_ends.py), which devices a mesh has (mesh.py). Importable without
JAX, which must not be started before `together`.
"""

import contextlib
import hashlib
import json
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.runtime.devices import host_ends, platform
from pipelines.runtime.devices.host_ends import LOST as LOST
from pipelines.runtime.devices.pods import Address as Address

HEARTBEAT_S = 10
"""A host that says nothing for so long counts as dead; killed, it was missed after 8 to 10 s."""
START_S = 300
"""How long hosts wait for each other when they start."""
TELL_S = 60
"""How long a host that fails before it has joined the others waits for them to tell them so."""
PATIENT_S = 10.0
"""How long they do so without saying it."""
SLICE_MS = 1000  # of waiting, between which Ctrl+C is heard
WATCH_S = 1.0
KEPT_ENTRIES = 1000  # of the leader's log, which followers read at once
SHARED_BYTES = 2**23
"""What `share` sends at once: one program for all sizes."""
# What collectives of a CPU and the coordination service say when another process is gone.
_SIGNS_OF_LOSS = ("gloo", "connection", "unavailable", "deadline_exceeded", "coordination", "heartbeat", "socket")

launches: deque[str] = deque(maxlen=10_000)
"""What ran last on several hosts, in order: programs by their keys, and the steps of each chunk."""


class HostsError(LumeshError):
    """Hosts that do not fit together."""

    title = english("The hosts do not fit together")


@dataclass(kw_only=True)
class _Group:
    """The hosts that this process has joined, and how far their common log is."""

    address: Address
    client: Any
    on_loss: Callable[[], str]
    on_end: Callable[[str], None]
    entries: int = 0
    rounds: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Here:
    """What this process has joined, whether it ever did, and whether it left with an error."""

    group: _Group | None = None
    has_met: bool = False
    has_failed: bool = False


_here = _Here()


def count() -> int:
    """Returns how many hosts work together."""
    return 1 if _here.group is None else _here.group.address.processes


def is_leader() -> bool:
    """Returns whether this host decides, and writes what all have made."""
    return _here.group is None or _here.group.address.process == 0


@contextlib.contextmanager
def together(
    address: Address | None, *, on_loss: Callable[[], str], on_end: Callable[[str], None] = lambda _line: None
) -> Iterator[None]:
    """Joins the other hosts, and leaves when all are done; None is a single host, for which nothing happens.

    Must be entered before JAX is started. When another host ends early, so does this process: with that host's exit
    code if it said what somebody must mend, else with `LOST` after a line that ends in what `on_loss` says. `on_end` is
    told that line. When this host ends, the others are told why. Raises HostsError.
    """
    if address is None:
        yield
        return
    _here.has_met = True
    group = _here.group = _join(address, on_loss, on_end)
    try:
        yield
        wait("the end")
    except BaseException as error:
        _fail(group, error)
        raise
    import jax

    group.is_over.set()
    jax.distributed.shutdown()
    _here.group = None


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Context in which SIGTERM ends one of several hosts as Ctrl+C does, and the others hear why: JAX only notes it.

    It is for commands that are nobody's server.
    """
    if _here.group is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def leave(code: int) -> NoReturn:
    """Ends the process. One that failed among several hosts does not wait for the others, as JAX would."""
    if _here.has_failed:
        host_ends.exit_at_once(code)
    sys.exit(code)


def have_met() -> bool:
    """Returns whether this process has come, or tried to come, to other hosts."""
    return _here.has_met


def tell_failure(address: Address, why: str, code: int) -> None:
    """Comes to the other hosts, which wait for this one, only to say why it ends with this exit code, and they with it.

    Ends this process where they do not come.
    """
    group = _join(address, lambda: "", lambda _line: None, within_s=TELL_S, code=code)
    group.is_over.set()  # what it says is for the others
    _here.has_failed = True
    _say_failed(group, why, code)


def give_up(why: str) -> NoReturn:
    """Ends this process, and with it the others, where hosts have come apart and cannot go on together."""
    host_ends.tell(why)
    host_ends.exit_at_once(LOST)


def agree(topic: str, value: Any) -> Any:
    """Returns the leader's `value`, of JSON, on all hosts; `topic` says what it is about.

    All hosts must ask in the same order. Raises HostsError where they do not.
    """
    group = _here.group
    if group is None:
        return value
    number, group.entries = group.entries, group.entries + 1
    if is_leader():
        group.client.key_value_set(f"lumesh/log/{number}", json.dumps([topic, value]))
        if number >= KEPT_ENTRIES:
            group.client.key_value_delete(f"lumesh/log/{number - KEPT_ENTRIES}")
        return value
    said, agreed = json.loads(_read(group, f"lumesh/log/{number}"))
    if said != topic:
        raise HostsError(english(f"Host {group.address.process} asks about {topic!r}, the first one about {said!r}."))
    return agreed


def collect(topic: str, value: Any) -> list[Any]:
    """Returns the values, of JSON, of all hosts in their order; each waits for the last one."""
    group = _here.group
    if group is None:
        return [value]
    number, group.rounds = group.rounds, group.rounds + 1
    place = f"lumesh/round/{number}"
    group.client.key_value_set(f"{place}/{group.address.process}", json.dumps([topic, value]))
    said = [json.loads(_read(group, f"{place}/{one}")) for one in range(group.address.processes)]
    if number:  # whoever has come to this round has read the one before
        group.client.key_value_delete(f"lumesh/round/{number - 1}/{group.address.process}")
    if any(asked != topic for asked, _ in said):
        raise HostsError(english(f"Hosts came to different places: {', '.join(asked for asked, _ in said)}."))
    return [found for _, found in said]


def share(topic: str, content: bytes) -> bytes:
    """Returns the leader's bytes on all hosts, of any number: they go over the devices' own links."""
    if _here.group is None:
        return content
    from jax.experimental import multihost_utils

    size = agree(topic, len(content))
    parts: list[bytes] = []
    for start in range(0, size, SHARED_BYTES):
        part = np.zeros(SHARED_BYTES, np.uint8)
        if is_leader():
            own = np.frombuffer(content[start : start + SHARED_BYTES], np.uint8)
            part[: own.size] = own
        parts.append(np.asarray(multihost_utils.broadcast_one_to_all(part)).tobytes())
    return b"".join(parts)[:size]


def wait(topic: str) -> None:
    """Returns when all hosts have come here."""
    collect(topic, None)


def compare(facts: Mapping[str, str]) -> None:
    """Raises HostsError, on all hosts, if facts differ between them; it names each that does."""
    found = collect("facts", dict(facts))
    differences: list[str] = []
    for name in dict.fromkeys(name for one in found for name in one):
        by_value: dict[str | None, list[str]] = {}
        for number, one in enumerate(found):
            by_value.setdefault(one.get(name), []).append(str(number))
        if len(by_value) > 1:
            told = ", ".join(
                f"host {numbers[0]} has {value}" if len(numbers) == 1 else f"hosts {', '.join(numbers)} have {value}"
                for value, numbers in by_value.items()
            )
            differences.append(f"{name}: {told}")
    if differences:
        raise HostsError(
            english(f"The hosts differ in {'; in '.join(differences)}."),
            advice=english("Make it the same on every host."),
        )


def meet(key: str, *, off: str) -> None:
    """Returns when all hosts have come to `key`; raises OSError once one of them has called `off` off.

    Any thread may ask, and each key once: nothing of it is deleted.
    """
    group = _here.group
    if group is None:
        return
    group.client.key_value_set(f"lumesh/meet/{key}/{group.address.process}", "here")
    for one in range(group.address.processes):
        while _find(group, f"lumesh/meet/{key}/{one}") is None:
            said = group.client.key_value_dir_get(f"lumesh/off/{off}/")
            if said:
                number, text = json.loads(said[0][1])
                raise OSError(number, f"{text} (on host {said[0][0].rpartition('/')[2]})")


def call_off(off: str, error: OSError) -> None:
    """Ends all meetings of `off` that are not over, on all hosts, by this error."""
    group = _here.group
    if group is None:
        return
    with contextlib.suppress(Exception):  # it has called it off already
        said = json.dumps([error.errno, error.strerror or str(error)])
        group.client.key_value_set(f"lumesh/off/{off}/{group.address.process}", said)


def place(value: Any, sharding: Any) -> Any:
    """Puts a value that every host has onto the devices; each host sends its own devices their parts.

    JAX's own way compares such values over the devices each time, behind whatever runs there.
    """
    import jax

    if _here.group is None or (isinstance(value, jax.Array) and not value.is_fully_addressable):
        return jax.device_put(value, sharding)
    whole = np.asarray(value)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def fetch(array: Any) -> np.ndarray:
    """Returns a whole array on this host, whatever devices of whichever hosts hold its parts.

    All hosts must fetch it, unless it is whole on each.
    """
    if getattr(array, "is_fully_addressable", True):
        return np.asarray(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def digest(content: bytes) -> str:
    """Returns twelve hexadecimal digits by which hosts compare what is too long to send."""
    return hashlib.sha256(content).hexdigest()[:12]


def describe_launches() -> str:
    """Returns what ran here since the start, in a form that equals that of a host where the same ran."""
    return f"{len(launches)} launches ({digest(repr([*launches]).encode())})"


def note_launch(what: Any) -> None:
    """Writes down what runs, on several hosts: they must run the same, and `launches` proves it."""
    if _here.group is not None:
        launches.append(str(what))


def _join(
    address: Address,
    on_loss: Callable[[], str],
    on_end: Callable[[str], None],
    *,
    within_s: int = START_S,
    code: int = LOST,
) -> _Group:
    if "jax" not in sys.modules:
        platform.prepare_backend()
    import jax

    where = f"{address.coordinator} (host {address.process} of {address.processes})"
    advice = "Run the same command on every host, each with its own --process"
    host_ends.end_on_abort(lambda: f"not all hosts came to {where} within {within_s} s. {advice}", on_end, code)
    try:
        with host_ends.ending_by_ctrl_c(), _telling_that_it_waits(where, within_s):
            jax.distributed.initialize(
                address.coordinator,
                address.processes,
                address.process,
                cluster_detection_method="deactivate",
                initialization_timeout=within_s,
                heartbeat_timeout_seconds=HEARTBEAT_S,
            )
    except RuntimeError as error:
        raise HostsError(english(f"The hosts did not meet at {where}: {error}")) from error
    from jax._src import distributed  # its store of texts has no public name

    group = _Group(address=address, client=distributed.global_state.client, on_loss=on_loss, on_end=on_end)
    host_ends.end_on_abort(lambda: f"another host ended; {on_loss()}", on_end, code)
    threading.Thread(target=_watch, args=(group,), name="watch-hosts", daemon=True).start()
    return group


@contextlib.contextmanager
def _telling_that_it_waits(where: str, within_s: int) -> Iterator[None]:
    line = f"waiting at {where} for the other hosts, up to {within_s} s"
    timer = threading.Timer(PATIENT_S, host_ends.tell, args=(line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _read(group: _Group, key: str) -> str:
    """Returns a text that another host has written or will write."""
    while (found := _find(group, key)) is None:
        pass
    return found


def _find(group: _Group, key: str) -> str | None:
    """Waits a while for a text of another host, and returns it, None where it is not there yet."""
    try:
        return group.client.blocking_key_value_get(key, SLICE_MS)
    except Exception as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise
        return None


def _watch(group: _Group) -> None:
    """Ends this process when another host has said that it fails; dead ones are missed by JAX (`host_ends`)."""
    while not group.is_over.wait(WATCH_S):
        try:
            failed = group.client.key_value_dir_get("lumesh/failed/")
        except Exception:  # noqa: BLE001 - the first host is gone, which JAX notices too
            return
        if failed and not group.is_over.is_set():
            key, said = failed[0]
            why, code = json.loads(said)
            line = f"host {key.rpartition('/')[2]} ended: {why}"
            _end(group, line if code != LOST else f"{line} {_capitalise(group.on_loss())}", code)


def _fail(group: _Group, error: BaseException) -> None:
    """Tells the others why this host ends. Ends it here if it is because another did, or by a mistake of ours."""
    import jax

    text = str(error).lower()
    if isinstance(error, jax.errors.JaxRuntimeError) and any(sign in text for sign in _SIGNS_OF_LOSS):
        time.sleep(2 * WATCH_S)  # for what the other one may have said of itself
        _end(group, f"another host ended; {group.on_loss()}", LOST)
    _here.has_failed = True
    group.is_over.set()
    is_told = isinstance(error, LumeshError | KeyboardInterrupt | OSError) or hasattr(error, "format_message")
    _say_failed(group, *host_ends.explain(error))
    if not is_told:
        traceback.print_exception(error)
        host_ends.exit_at_once(1)


def _say_failed(group: _Group, why: str, code: int) -> None:
    with contextlib.suppress(Exception):
        group.client.key_value_set(f"lumesh/failed/{group.address.process}", json.dumps([f"{why.rstrip('.')}.", code]))
        if group.address.process == 0:
            time.sleep(3 * WATCH_S)  # what it said is gone with it


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _end(group: _Group, line: str, code: int) -> NoReturn:
    host_ends.tell(line)
    group.on_end(line)
    host_ends.exit_at_once(code)
