"""Which steps a step cache reuses (MagCache: Ma et al. 2025, arXiv 2506.09045), decided before the first step.

What all layers of a transformer add to its tokens shrinks a little from one step to the next, and by how much is nearly
the same for every prompt: the model's `ratios`, found once (`python -m pipelines calibrate`). A step whose sum may be
taken from an earlier one costs next to nothing. The rule is that of diffusers/hooks/mag_cache.py: for step t

    ratio *= ratios[t];  error += |1 - ratio|;  reused = error <= threshold and reused in a row <= most

and a computed step sets all three back. The first `retention` of the steps are always computed. A model with two
experts has ratios of each, and starts anew with the second.

Importable without jax. Not here: what reusing means on the devices (runtime/sampling/reuse.py).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from pipelines.errors import ModelError
from pipelines.files.locked import hold_file
from pipelines.files.whole import write_whole
from pipelines.messages import Message, say

OFF, MILD, STRONG = "off", "mild", "strong"
NAMES = (OFF, MILD, STRONG)
OWN_FILE = "step_caches.json"  # in the data directory
SHIPPED_FILE = Path(__file__).resolve().parents[2] / "presets" / OWN_FILE
MAX_THRESHOLD = 10.0
USUAL_RETENTION = 0.2
_NUMBERS = re.compile(r"(\d*\.?\d+),(\d{1,3})(?:,(\d*\.?\d+))?")


@dataclass(frozen=True, kw_only=True)
class Strength:
    """How much may be reused: the error allowed, the steps in a row, and the share that is computed first."""

    threshold: float
    most: int
    retention: float = USUAL_RETENTION

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `THRESHOLD,MOST[,RETENTION]` such as `0.12,2`; raises ValueError, which says what is allowed."""
        match = _NUMBERS.fullmatch(text.replace(" ", ""))
        found = match and cls(
            threshold=float(match[1]), most=int(match[2]), retention=float(match[3] or USUAL_RETENTION)
        )
        if not found or found.threshold > MAX_THRESHOLD or found.retention > 1:
            raise ValueError(
                say(
                    "{text} is not known; allowed: off, mild, strong, or an error up to {limit}, the most steps in a "
                    "row and perhaps the share of steps computed first, such as 0.12,2,0.2",
                    text=repr(text[:40]),
                    limit=f"{MAX_THRESHOLD:g}",
                )
            )
        return found

    def __str__(self) -> str:
        return f"{self.threshold:g},{self.most},{self.retention:g}"


@dataclass(frozen=True, kw_only=True)
class StepCache:
    """One model's steps, as calibrated: for each expert, in the order of use, the ratio of each step to the last.

    `boundary` is the noise level at which the second expert takes over; `source` says where the ratios are from.
    """

    ratios: tuple[tuple[float, ...], ...]
    mild: Strength
    strong: Strength
    boundary: float | None = None
    source: str = ""

    def choose(self, text: str) -> Strength | None:
        """Returns what a recipe's text asks for, None for off; raises ValueError."""
        named = {OFF: None, MILD: self.mild, STRONG: self.strong}
        return named[text] if text in named else Strength.parse(text)

    def list_reused(
        self, strength: Strength, *, steps: int, flow_shift: float | None = None, levels: Sequence[float] = ()
    ) -> tuple[int, ...]:
        """Lists the steps, from 0, that are reused among `steps`, whose noise levels a recipe may name."""
        boundary = self.boundary if len(self.ratios) > 1 else None
        shares = share_steps(boundary, steps=steps, flow_shift=flow_shift, levels=levels)
        reused: list[int] = []
        for ratios, start, count in zip(self.ratios, (0, shares[0]), shares, strict=False):
            reused += [start + step for step in _walk(stretch(ratios, count), strength)]
        return tuple(reused)


def share_steps(
    boundary: float | None, *, steps: int, flow_shift: float | None, levels: Sequence[float]
) -> tuple[int, ...]:
    """Returns how many of the steps are each expert's; all are the only one's without a `boundary`."""
    if boundary is None:
        return (steps,)
    before = sum(level >= boundary for level in levels)
    if not levels:
        before = count_before(boundary, steps=steps, flow_shift=flow_shift or 1.0)
    return before, steps - before


def count_before(boundary: float, *, steps: int, flow_shift: float) -> int:
    """Counts the steps of a flow model at noise levels of at least `boundary`, which are the first expert's.

    Levels are shift * u / (1 + (shift - 1) * u), for u falling evenly from 1; schedulers differ from that in the third
    digit, so a step at the boundary may be the other's: its family computes the first step of an expert in any case.
    """
    levels = [1 - step / steps for step in range(steps)]
    return sum(flow_shift * u / (1 + (flow_shift - 1) * u) >= boundary for u in levels)


def stretch(ratios: Sequence[float], count: int) -> list[float]:
    """Returns ratios for so many steps: the nearest ones, as `nearest_interp` of diffusers finds them."""
    if count <= 1:
        return [*ratios[-1:]] * count
    places = np.arange(count, dtype=np.float32) * np.float32((len(ratios) - 1) / (count - 1))
    return [ratios[int(place)] for place in np.rint(places)]


def _walk(ratios: Sequence[float], strength: Strength) -> Iterator[int]:
    """Yields the reused steps of one expert."""
    retained = int(strength.retention * len(ratios) + 0.5)
    ratio, error, in_a_row = 1.0, 0.0, 0
    for step, own in enumerate(ratios):
        if step < retained:
            continue
        ratio *= own
        in_a_row += 1
        error += abs(1.0 - ratio)
        if step and error <= strength.threshold and in_a_row <= strength.most:
            yield step
        else:
            ratio, error, in_a_row = 1.0, 0.0, 0


@dataclass(frozen=True)
class StepCaches:
    """The step caches of a file, by model id."""

    of_model: Mapping[str, StepCache] = field(default_factory=dict[str, StepCache])

    @classmethod
    def read(cls, file: Path) -> Self:
        """Reads a file, nothing if there is none; raises ModelError for one that cannot be read."""
        if not file.exists():
            return cls()
        try:
            content = json.loads(file.read_text("utf-8"))
            return cls({name: _read(entry) for name, entry in content.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(
                say("{file} cannot be read: {error}.", file=file, error=repr(error)),
                advice=say("Delete it, and run python -m pipelines calibrate MODEL again."),
            ) from error


def keep(file: Path, model_id: str, found: StepCache) -> None:
    """Adds a model's step cache to a file, in place of an earlier one."""
    with hold_file(file):
        caches = {**StepCaches.read(file).of_model, model_id: found}
        content = {name: _write(one) for name, one in sorted(caches.items())}
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in content.items())
        write_whole(file, f"{{\n{lines}\n}}\n".encode())


def _read(entry: Mapping[str, Any]) -> StepCache:
    ratios = tuple(tuple(map(float, one)) for one in entry["ratios"])
    if not ratios or not all(ratios):
        raise ValueError("no ratios")
    return StepCache(
        ratios=ratios,
        mild=Strength.parse(entry["mild"]),
        strong=Strength.parse(entry["strong"]),
        boundary=entry.get("boundary"),
        source=str(entry.get("source", "")),
    )


def _write(cache: StepCache) -> dict[str, Any]:
    return {
        "source": cache.source,
        "mild": str(cache.mild),
        "strong": str(cache.strong),
        **({} if cache.boundary is None else {"boundary": cache.boundary}),
        "ratios": [[round(ratio, 5) for ratio in one] for one in cache.ratios],
    }


def describe_saving(steps: int, reused: Sequence[int]) -> Message:
    """Says how many of a recipe's steps are computed."""
    return say("The step cache computes {count} of {steps} steps.", count=steps - len(reused), steps=steps)
