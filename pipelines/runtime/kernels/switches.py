"""Which of our kernels are on: the one place that decides, before a model's first program is traced.

All are, but for those that somebody switched off by hand, and those that the doctor found wrong, refused or hanging on
this kind of chip with these versions (pipelines/doctor). What is computed instead is plain XLA, which is slower and the
same. A kernel that is off is never asked; programs ask while they are traced, so a choice holds for the next model.

Not here: finding out whether a kernel works, and anything that needs JAX.
"""

import contextlib
import functools
import hashlib
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

from pipelines.errors import RecipeError
from pipelines.files.whole import write_whole
from pipelines.messages import Message, english, say
from pipelines.runtime.devices.platform import CUDA_PLUGINS

INSTEAD = {
    "flash": say("attention by XLA, in blocks of queries"),
    "flash_gradient": say("attention and its gradient by XLA"),
    "ulysses": say("XLA's own transpositions"),
    "head_norm": say("norms and rotary embeddings by XLA"),
    "low_rank": say("a LoRA's products by XLA"),
    "sparse_cores": say("a training's gathers and scatters by the cores that multiply"),
    "conv3x3": say("XLA's convolutions"),
    "conv3x3_gradient": say("XLA's gradients of convolutions by their weights"),
    "upsample": say("XLA's repeats of rows and columns"),
    "cudnn": say("attention by XLA"),
}
"""The kernels that can be switched off, and what is computed in their place."""

COMPILERS = ("jax", "jaxlib", "libtpu", *CUDA_PLUGINS)
"""The packages that decide what becomes of a kernel."""

ALL, NONE, WITHOUT = "on", "off", "no-"
REMEMBERED = "doctor.json"
_KEPT = 32  # kinds of chips with their versions, the newest; who updates often needs no older ones

Verdict = Literal["right", "wrong", "refused", "hung", "ended", "skipped"]
"""`refused`: the compiler or the runtime raised an error; `ended`: the process that tried it ended."""

BAD: Collection[Verdict] = ("wrong", "refused", "hung", "ended")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one check found: half a sentence with the figure or the error, and the kernels that it switches off."""

    verdict: Verdict
    detail: str = ""
    off: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        return self.verdict in BAD

    def describe(self) -> Message:
        """Returns the verdict as half a sentence."""
        match self.verdict:
            case "right":
                return say("right")
            case "wrong":
                return say("wrong ({detail})", detail=self.detail)
            case "refused":
                return say("refused ({detail})", detail=self.detail)
            case "hung":
                return say("no answer in {detail}", detail=self.detail)
            case "ended":
                return say("it ended its process ({detail})", detail=self.detail)
            case "skipped":
                return say("not checked ({detail})", detail=self.detail)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was found on one kind of chip with one set of versions, by the checks' names.

    `hardware` is what the machine shows before JAX opens its devices, `kind` is JAX's name of them.
    """

    kind: str
    hardware: str
    versions: Mapping[str, str]
    at: float
    checks: Mapping[str, Found]

    @property
    def off(self) -> tuple[str, ...]:
        """Returns the kernels that must not be used, sorted."""
        return tuple(sorted({name for found in self.checks.values() for name in found.off}))

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "checks": {name: vars(found) for name, found in self.checks.items()}}


class _Switches:
    """The process's choice. `by_hand` is None where nobody said anything."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_hand: frozenset[str] | None = None
        self.off: frozenset[str] = frozenset()
        self.decided_by: tuple[Path, str] | None = None


_switches = _Switches()


def is_on(name: str) -> bool:
    """Tells whether a kernel may be used; `name` is one of INSTEAD."""
    assert name in INSTEAD, name
    return name not in _switches.off


def list_off() -> tuple[str, ...]:
    """Lists the kernels that are off, sorted."""
    return tuple(sorted(_switches.off))


def read_choice(text: str) -> frozenset[str]:
    """Returns the kernels that `--kernels TEXT` switches off.

    `off` is all of them and `on` none, whatever the doctor found; `flash,ulysses` leaves these two, `no-flash` all but
    that one. Raises RecipeError for anything else.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == [ALL]:
        return frozenset()
    if names == [NONE]:
        return frozenset(INSTEAD)
    without = {name.removeprefix(WITHOUT) for name in names if name.startswith(WITHOUT)}
    only = {name for name in names if not name.startswith(WITHOUT)}
    if not names or (without and only) or (without | only) - INSTEAD.keys():
        known = ", ".join(INSTEAD)
        raise RecipeError(
            {
                "kernels": english(
                    f"{text!r} is not known; write off, on, the names of those to use, or {WITHOUT}NAME for all but "
                    f"that one. The kernels are {known}"
                )
            }
        )
    return frozenset(without) if without else frozenset(INSTEAD.keys() - only)


def write_choice(off: Collection[str]) -> str:
    """Returns the text that read_choice reads as these kernels switched off."""
    return ",".join(f"{WITHOUT}{name}" for name in sorted(off)) or ALL


def choose_by_hand(text: str | None) -> None:
    """Makes `--kernels TEXT` the process's choice; None leaves it to what the doctor found."""
    off = None if text is None else read_choice(text)
    with _switches.lock:
        _switches.by_hand = off
        _switches.off = off or frozenset()
        _switches.decided_by = None


def decide(file: Path, *, kind: str) -> tuple[str, ...]:
    """Switches off what the doctor found bad on these chips with these versions; a choice made by hand stays.

    Returns the kernels that are off. What was decided stays until the process ends: programs were made by it.
    """
    with _switches.lock:
        if _switches.by_hand is None and _switches.decided_by != (file, kind):
            known = find(file, versions=list_versions(), kind=kind)
            _switches.off = frozenset(known.off if known else ()) & INSTEAD.keys()
            _switches.decided_by = (file, kind)
    return list_off()


def find_file(cache_dir: Path) -> Path:
    """Returns the file of verdicts, beside the cache of compiled programs."""
    return cache_dir.parent / REMEMBERED


def list_versions() -> dict[str, str]:
    """Returns the versions of COMPILERS that are installed, and as `kernels` a hash of our kernels' source."""
    found: dict[str, str] = {}
    for name in COMPILERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found | {"kernels": _fingerprint()}


@functools.cache
def _fingerprint() -> str:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def find(
    file: Path, *, versions: Mapping[str, str], kind: str | None = None, hardware: str | None = None
) -> Checked | None:
    """Returns what is remembered of a kind of chip, or of the hardware as it shows itself; None if nothing is."""
    for one in reversed(read(file)):
        if one.versions == versions and kind in (None, one.kind) and hardware in (None, one.hardware):
            return one
    return None


def remember(file: Path, checked: Checked) -> None:
    """Adds verdicts to the file, in place of earlier ones of the same chip and versions."""
    others = [one for one in read(file) if (one.kind, one.hardware, one.versions) != _name(checked)]
    lines = [one.to_json() for one in (*others, checked)][-_KEPT:]
    write_whole(file, json.dumps({"format": 1, "checked": lines}, indent=1).encode())


def read(file: Path) -> Sequence[Checked]:
    """Reads all verdicts, the oldest first; a file that is missing, damaged or of another version holds none."""
    try:
        lines = json.loads(file.read_text("utf-8"))["checked"]
        return [_read_checked(line) for line in lines]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _read_checked(line: Mapping[str, Any]) -> Checked:
    fields: dict[str, Any] = {**line, "checks": _read_checks(line["checks"])}
    return Checked(**fields)


def _read_checks(checks: Mapping[str, Any]) -> dict[str, Found]:
    found = {name: _read_found(one) for name, one in checks.items()}
    if any(one.verdict not in get_args(Verdict) for one in found.values()):
        raise ValueError(english("a verdict of another version"))
    return found


def _read_found(check: Mapping[str, Any]) -> Found:
    fields: dict[str, Any] = {**check, "off": tuple(check["off"])}
    return Found(**fields)


def _name(checked: Checked) -> tuple[str, str, Mapping[str, str]]:
    return checked.kind, checked.hardware, checked.versions
