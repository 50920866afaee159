"""Runs every program of a model on random weights, on the devices here, and measures each beside its estimate.

No checkpoint is needed or written: programs are listed from the model's configs, as plans are, and their arguments are
drawn on the devices, sharded as the model's own would be. Values mean nothing, so the pictures are noise; what a chip
takes for them is what it takes for any others. It runs in a process of its own (process.py).
"""

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipelines.commands.bench.process import answer
from pipelines.models.catalog import Shape, read_data_dir

STEPS = 4
"""Denoising steps that are measured at once: their time less that of one step, which holds what is around the steps."""
SPREAD = 0.02  # of random weights: about what trained ones have, so that few products overflow
MOST_REFUSAL = 300


def run(task: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures the stages of `task["model"]` in `task["shape"]`; returns a plan.measured.Measured for each."""
    from pipelines import registry

    registry.start_jax(Path(task["cache_dir"]), allow_cpu=task["allow_cpu"])
    import jax

    from pipelines.plan.abstract import list_stages
    from pipelines.plan.measured import Measured
    from pipelines.plan.topologies import find_chip
    from pipelines.plan.verdicts import read_versions
    from pipelines.runtime.devices.mesh import describe_mesh

    model = read_data_dir(Path(task["data_dir"])).get(task["model"])
    shape = Shape.parse(task["shape"]) if task["shape"] else model.default_shape
    mesh = registry.build_mesh_for(model, task["mesh"])
    parts = registry.describe_parts(model, mesh)
    kind = mesh.devices.flat[0].device_kind
    found = []
    for stage in list_stages(model, parts, shape, batch_size=1):
        facts: dict[str, Any] = {
            "model": model.id,
            "shape": str(shape),
            "stage": stage.name,
            "mesh": describe_mesh(mesh),
            "batch_size": 1,
            "kind": kind,
            "devices": mesh.size,
            "versions": read_versions(),
            "runs": stage.runs,
            "at": time.time(),
        }
        started_s = time.perf_counter()
        try:
            compiled = _compile(stage.program)
            compile_s = time.perf_counter() - started_s
            ms = _measure(
                compiled, stage.program, is_denoiser=stage.name.startswith("denoise"), repeats=task["repeats"]
            )
            figures: dict[str, Any] = {
                "ms": ms,
                "estimated_ms": _estimate_ms(compiled, find_chip(kind)),
                "compile_s": compile_s,
            }
        except jax.errors.JaxRuntimeError as error:  # no room, or a chip that refuses: the other stages still run
            refusal = " ".join(str(error).split())[:MOST_REFUSAL]
            compile_s = time.perf_counter() - started_s
            figures = {"ms": None, "estimated_ms": None, "compile_s": compile_s, "refusal": refusal}
        found.append(asdict(Measured(**facts, **figures)))
    return found


def _compile(program: Any) -> Any:
    from pipelines.runtime.programs.compiled import lower

    return lower(program).compile()


def _estimate_ms(compiled: Any, chip: Any) -> float | None:
    """Returns the estimate of this very program, None for devices that have none."""
    from pipelines.plan.estimate import estimate
    from pipelines.plan.hlo import Module

    return None if chip is None else 1000 * estimate(Module(compiled.as_text()), chip).run.total_s


def _measure(compiled: Any, program: Any, *, is_denoiser: bool, repeats: int) -> float:
    """Returns the median milliseconds of a run, or of a step."""
    arguments = [_draw(argument) for argument in program.arguments]
    time_run = functools.partial(_time_run, compiled, program, arguments)
    if not is_denoiser:
        time_run()
        return 1000 * statistics.median(time_run() for _ in range(repeats))

    def time_steps(count: int) -> float:
        arguments[-2:] = [_fill(program.arguments[-2], 0), _fill(program.arguments[-1], count)]
        return time_run()

    time_steps(1)
    one_s, many_s = (statistics.median(time_steps(count) for _ in range(repeats)) for count in (1, 1 + STEPS))
    return 1000 * (many_s - one_s) / STEPS


def _time_run(compiled: Any, program: Any, arguments: list[Any]) -> float:
    """Times one run; what the program takes over for itself is drawn anew before."""
    import jax

    for place in program.donate:
        arguments[place] = _draw(program.arguments[place])
    jax.block_until_ready(arguments)
    started_s = time.perf_counter()
    jax.block_until_ready(compiled(*arguments))
    return time.perf_counter() - started_s


def _draw(argument: Any) -> Any:
    """Draws an argument's arrays on its devices: floats from N(0, SPREAD^2), whole numbers zero, masks true."""
    import jax

    return jax.tree.map(lambda one: _draw_array(one.shape, one.dtype, one.sharding)(), argument)


@functools.cache
def _draw_array(shape: tuple[int, ...], dtype: Any, sharding: Any) -> Callable[[], Any]:
    """Returns a program that draws such an array, compiled once for all arrays alike."""
    import jax
    import jax.numpy as jnp

    def draw() -> Any:
        if jnp.issubdtype(dtype, jnp.floating):
            return SPREAD * jax.random.normal(jax.random.key(0), shape, dtype)
        return jnp.ones(shape, dtype) if dtype == jnp.bool_ else jnp.zeros(shape, dtype)

    return jax.jit(draw, out_shardings=sharding)


def _fill(argument: Any, value: int) -> Any:
    import jax
    import numpy as np

    return jax.device_put(np.asarray(value, argument.dtype), argument.sharding)


if __name__ == "__main__":
    answer(run)
