"""Which steps TaylorSeer foresees (Liu et al. 2025, arXiv 2503.06923), in diffusers' lite mode: decided beforehand.

The transformer's output changes steadily from one step to the next, so between two computed steps it is extrapolated
from the last two: y(t + k) = y(t) + k * (y(t) - y(t - d)) / d. Nothing is calibrated. The rule is that of
diffusers/hooks/taylorseer_cache.py: the first `first` steps are computed, then step `first` + 1 and every `interval`-th
from it on. A model with two experts starts anew with the second.

Importable without jax. Not here: what foreseeing means on the devices (runtime/sampling/reuse.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pipelines.messages import say
from pipelines.recipes.cache_kinds import TAYLOR

MAX_INTERVAL = 20
MANY_STEPS = 20  # fewer change too much from one to the next (pipelines/docs/measured.md)
MAX_FIRST = 100
_TEXT = re.compile(r"taylor(?:,(\d{1,3})(?:,(\d{1,3}))?)?")


@dataclass(frozen=True, kw_only=True)
class Foresight:
    """Every `interval`-th step is computed, after the `first` ones."""

    interval: int = 3
    first: int = 4

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `taylor[,INTERVAL[,FIRST]]`; raises ValueError, which says what is allowed."""
        match = _TEXT.fullmatch(text.replace(" ", ""))
        found = match and cls(interval=int(match[1] or cls.interval), first=int(match[2] or cls.first))
        if not found or not 1 <= found.interval <= MAX_INTERVAL or not 1 <= found.first <= MAX_FIRST:
            raise ValueError(
                say(
                    "{text} is not known; write taylor, or taylor,3,4: every how many steps one is computed (1 to "
                    "{interval}), and perhaps how many are before that (1 to {first})",
                    text=repr(text[:40]),
                    interval=MAX_INTERVAL,
                    first=MAX_FIRST,
                )
            )
        return found

    def __str__(self) -> str:
        return f"{TAYLOR},{self.interval},{self.first}"

    def list_foreseen(self, shares: Sequence[int]) -> tuple[int, ...]:
        """Lists the steps, from 0, that are foreseen, of experts with these numbers of steps one after the other."""
        foreseen: list[int] = []
        start = 0
        for count in shares:
            foreseen += [start + step for step in range(count) if not self._computes(step)]
            start += count
        return tuple(foreseen)

    def _computes(self, step: int) -> bool:
        return step < self.first or (step - self.first - 1) % self.interval == 0
