"""What the compiler said of a program, as types that are read without jax.

Not here: asking it (compiler.py), files of answers (lines.py).
"""

import functools
from dataclasses import dataclass
from importlib import metadata

from pipelines.messages import NOTHING, Message
from pipelines.plan.estimate import Estimate


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The compiler's answer, in bytes per chip: `arguments_bytes` of weights and inputs, `temp_bytes` while it runs.

    With a `refusal` there is no HLO, and only `temp_bytes` is known: all that the compiler requested, weights and
    inputs included, as far as its message says.
    """

    compile_s: float
    arguments_bytes: int
    temp_bytes: int
    code_bytes: int
    refusal: Message = NOTHING


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Answer and estimate of one program, by its fingerprint. `estimate` is None on CPU and after a refusal.

    `text` is the optimized HLO, empty if it was not saved. `is_known` verdicts were compiled earlier, elsewhere.
    """

    program: str
    answer: Answer
    estimate: Estimate | None
    text: str = ""
    is_known: bool = False


@functools.cache
def read_versions() -> dict[str, str]:
    """Returns the versions of the packages that an answer depends on."""
    return {name: _read_version(name) for name in ("jax", "jaxlib", "libtpu")}


def _read_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # libtpu, where only CPUs are planned for
        return "none"
