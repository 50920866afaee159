"""Swaps models in one process, as the worker does; reads its task as JSON on stdin, prints its figures as JSON.

Each turn loads a model, makes one small output, unloads, and then measures the memory that is still in use.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.commands.bench.process import answer
from pipelines.models.catalog import Catalog, read_data_dir
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.stages import PhaseWatch


@dataclass(frozen=True, kw_only=True)
class MeasuredSwap:
    """One turn: seconds of its parts, and memory in use after it in megabytes (1e6 bytes).

    `load_s` finds the files and builds the modules, `shard_s` reads the weights, each device its own slices.
    """

    model: str
    load_s: float
    shard_s: float
    compile_s: float
    make_s: float
    unload_s: float
    compiles: int
    device_mb: float
    process_mb: float


def run_swaps(
    recipes: Sequence[Recipe], catalog: Catalog, *, swaps: int, mesh: str | None, cache_dir: Path
) -> list[MeasuredSwap]:
    """Measures `swaps` turns through the recipes' models, each unloaded before the next one is loaded."""
    from pipelines import registry
    from pipelines.generate import generate
    from pipelines.runtime.devices.memory import count_live_bytes
    from pipelines.runtime.programs.compiled import counter

    registry.start_jax(cache_dir)
    turns = []
    for number in range(swaps):
        recipe = recipes[number % len(recipes)]
        compiled = counter.compiled
        watch, clock = PhaseWatch(), time.perf_counter()
        family = registry.load(catalog.get(recipe.model), mesh=mesh, cache_dir=cache_dir, on_progress=watch)
        load_s, shard_s = time.perf_counter() - clock, watch.stop()["sharding"]
        timings = generate(family, recipe).timings
        clock = time.perf_counter()
        family.unload()
        del family
        turns.append(
            MeasuredSwap(
                model=recipe.model,
                load_s=load_s - shard_s,
                shard_s=shard_s,
                compile_s=timings.compile_s,
                make_s=timings.total_s - timings.compile_s,
                unload_s=time.perf_counter() - clock,
                compiles=counter.compiled - compiled,
                device_mb=count_live_bytes() / 1e6,
                process_mb=_read_resident_bytes() / 1e6,
            )
        )
    return turns


def _read_resident_bytes() -> int:
    """Returns this process's resident memory now (not its peak); Linux only, like all measurements here."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _run(task: dict[str, Any]) -> list[dict[str, Any]]:
    done = run_swaps(
        [read_recipe(recipe) for recipe in task["recipes"]],
        read_data_dir(Path(task["models_dir"]).parent),
        swaps=task["swaps"],
        mesh=task["mesh"],
        cache_dir=Path(task["cache_dir"]),
    )
    return [asdict(swap) for swap in done]


if __name__ == "__main__":
    answer(_run)
