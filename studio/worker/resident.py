"""The resident model: swap it, warm it, list which of its shapes are warm.

A swap unloads first: two models at once would need twice the device memory. Before that it downloads the other model's
files, so that a model that is unavailable, or slow to download, does not evict the loaded one.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.models.catalog import Model
from pipelines.program_sets import USUAL_COUNTS, ProgramSet, list_variants
from pipelines.stages import Family, OnProgress, PhaseWatch, Progress, SwapCost
from studio.worker.saving import name_warm_s

Loader = Callable[[Model, OnProgress], Family]
Finder = Callable[[Model, OnProgress], object]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Swap:
    """A switch to `model` from the `previous` one ("" when there was none), and its cost so far."""

    model: str
    previous: str
    cost: SwapCost

    def finish(self, warm_s: float, *, compiles: int) -> "Swap":
        """Adds the seconds until its first programs were warm and how many of them were compiled."""
        return replace(self, cost=replace(self.cost, **name_warm_s(warm_s, compiles=compiles)))

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, "previous": self.previous, **self.cost.to_json()}


@dataclass
class Resident:
    """Holds at most one family. `load` turns a model into one (registry or fake).

    `find` downloads a model's files if they are missing; it raises ModelError when it cannot.
    """

    load: Loader
    find: Finder = lambda _model, _on_progress: None
    family: Family | None = None
    further: set[ProgramSet] = field(default_factory=set[ProgramSet])
    """Unusual sets of programs that the family was warmed for: there are too many to query each one."""
    swap: Swap | None = None
    """The last completed switch."""
    clock: Callable[[], float] = time.perf_counter

    @property
    def model_id(self) -> str | None:
        return self.family.model.id if self.family else None

    def become(self, model: Model, on_progress: OnProgress) -> tuple[Family, Swap | None]:
        """Loads the model; returns its family and the unfinished switch, which is None if it was resident already."""
        if self.family is not None and model.is_loaded_like(self.family.model):
            self.family.model = model  # its list of sizes may have grown since
            return self.family, None
        previous = self.model_id or ""
        watch = PhaseWatch(on_progress, clock=self.clock)
        if self.family is not None:
            watch.enter("finding")
            self.find(model, watch)
            watch(Progress(phase="unloading", detail=self.family.model.title))
            self.family.unload()
            self.family = None
            self.further.clear()
        watch.enter("loading")
        self.family = self.load(model, watch)
        return self.family, Swap(model=model.id, previous=previous, cost=_add_up(watch.stop()))

    def leave(self, on_progress: OnProgress) -> None:
        """Unloads the model, whose memory a training needs; the next job loads its own."""
        if self.family is None:
            return
        on_progress(Progress(phase="unloading", detail=self.family.model.title))
        self.family.unload()
        self.family = None
        self.further.clear()

    def end_swap(self, swap: Swap, *, warm_s: float, compiles: int) -> SwapCost:
        """Completes a switch once its programs are ready; logs, stores and returns its total cost."""
        self.swap = swap.finish(warm_s, compiles=compiles)
        cost = self.swap.cost
        parts = ", ".join(f"{name.removesuffix('_s')} {value:.2f}" for name, value in vars(cost).items())
        log.info("from %s to %s in %.2f s: %s", swap.previous or "no model", swap.model, cost.total_s, parts)
        return cost

    def describe_shapes(self) -> dict[str, str]:
        """Returns the resident model's sets of programs, by name, as `warm`, `disk` or `cold`.

        They are the usual ones of all its shapes, those in `further`, and of a shape of which anything is warm those of
        other numbers of outputs and the other guidance, because one program may serve several of them.
        """
        if self.family is None:
            return {}
        model = self.family.model
        states = {one: self.find_state(one) for one in (ProgramSet.usual(model, shape) for shape in model.shapes)}
        warm = {one.shape for one, state in states.items() if state == "warm"} | {one.shape for one in self.further}
        others = {*self.further, *(one for shape in warm for one in list_variants(model, shape, USUAL_COUNTS))}
        states |= {one: self.find_state(one) for one in sorted(others, key=str)}
        return {one.name_for(model): state for one, state in states.items()}

    def find_state(self, programs: ProgramSet) -> str:
        """Returns a set's state; a run without guidance takes the guided programs where only those are warm."""
        assert self.family is not None
        state = _query_state(self.family, programs)
        if state != "warm" and not programs.is_guided:
            guided = _query_state(self.family, replace(programs, is_guided=True))
            return guided if guided == "warm" else state
        return state


def _query_state(family: Family, programs: ProgramSet) -> str:
    """Returns `warm`, `disk` or `cold` for exactly these programs."""
    return family.shape_state(
        programs.shape,
        programs.references,
        programs.text_chunks,
        batch_size=programs.batch_size,
        uses_cfg=programs.is_guided,
        cache_kind=programs.cache_kind,
    )


def _add_up(seconds: Mapping[str, float]) -> SwapCost:
    """Sums up the parts of a switch; parts without a name of their own count as loading, so the sum is complete."""
    named = {
        "unload_s": seconds.get("unloading", 0.0),
        "find_s": seconds.get("finding", 0.0) + seconds.get("downloading", 0.0),
        "shard_s": seconds.get("sharding", 0.0),
    }
    return SwapCost(**named, load_s=sum(seconds.values()) - sum(named.values()))
