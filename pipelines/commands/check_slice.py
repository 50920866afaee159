"""`check-slice`: whether the hosts of a slice work together, before anybody waits for a large model on them.

Run on every host at once. It sums numbers over all devices, measures an all-reduce, and makes one picture on them all;
hosts that were told other things, lack a device or run other programs are named.
"""

import time
from typing import Annotated, Any

import numpy as np
import typer

from pipelines.commands import options
from pipelines.commands.progress import TerminalProgress
from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.devices import hosts, pods

REPEATS = 5
PROMPT = "A red sailboat on the ocean at sunset"
MIB = 2**20


def check(
    *,
    model: options.ModelId = "demo-sdxl",
    mesh: options.MeshText = None,
    megabytes: Annotated[int, typer.Option(min=1, help="What each device gives to the measured all-reduce.")] = 64,
    kernels: options.Kernels = None,  # noqa: ARG001 - its callback has chosen
    allow_cpu: options.AllowCpu = False,
    as_json: options.AsJson = False,
    data_dir: options.DataDir = options.DATA_DIR,
    coordinator: options.Coordinator = None,
    processes: options.Processes = None,
    process: options.Process = None,
) -> None:
    """Checks that the devices of all hosts work together: a sum, an all-reduce's time, and a picture.

    Example, on every host of a pod: python -m pipelines check-slice
    """
    place = options.DataDirectory(data_dir=data_dir)
    chosen = place.catalog.get(model)
    address = pods.find_address(coordinator, processes, process)
    with hosts.together(address, on_loss=lambda: "the slice is not whole."):
        from pipelines import registry
        from pipelines.generate import generate

        registry.start_jax(place.cache_dir, allow_cpu=allow_cpu)
        found = _list_devices()
        seconds = _sum_everywhere(megabytes)
        recipe = resolve(Recipe(model=chosen.id, prompt=PROMPT, seed=0), place.catalog)
        with TerminalProgress(is_silent=as_json or not hosts.is_leader()) as on_progress:
            family = registry.load(
                chosen, mesh=mesh, cache_dir=place.cache_dir, on_progress=on_progress, allow_cpu=allow_cpu
            )
            outcome = generate(family, recipe, on_progress=on_progress)
        hosts.compare(
            {
                "weights": family.revision,
                "programs": hosts.describe_launches(),
                "the picture": hosts.digest(np.ascontiguousarray(outcome.pixels).tobytes()),
            }
        )
        if not hosts.is_leader():
            return
        result: dict[str, Any] = {
            "hosts": found,
            "devices": sum(found),
            "all_reduce": {"megabytes": megabytes, "seconds": seconds},
            "picture": {"model": chosen.id, "seconds": outcome.timings.to_json()["total_s"]},
        }
        if as_json:
            options.print_json(result)
            return
        typer.echo(f"{len(found)} hosts with {', '.join(map(str, found))} devices work together.")
        typer.echo(f"An all-reduce of {megabytes} MiB a device: {1000 * seconds:.1f} ms, median of {REPEATS}.")
        typer.echo("All of them ran the same programs and have the same picture.")


def _list_devices() -> list[int]:
    """Returns how many devices each host brings; raises HostsError where they are of different kinds."""
    import jax

    own = jax.local_devices()
    hosts.compare({"JAX": jax.__version__, "its devices": f"{len(own)} of {own[0].device_kind}"})
    return hosts.collect("devices", len(own))


def _sum_everywhere(megabytes: int) -> float:
    """Sums numbers over all devices, and returns the median seconds that it took; raises LumeshError if it is wrong."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.asarray(jax.devices()), ("all",))
    apart = NamedSharding(mesh, PartitionSpec("all"))
    count, size = jax.device_count(), megabytes * MIB // 4
    values = jax.make_array_from_callback(
        (count, size),
        apart,
        lambda index: np.full((1, size), (index[0].indices(count)[0] if index else 0) + 1, np.float32),
    )
    total = jax.jit(lambda array: jnp.sum(array, axis=0), out_shardings=NamedSharding(mesh, PartitionSpec()))
    sums = np.asarray(total(values).addressable_data(0))  # also compiles
    if not (sums == count * (count + 1) / 2).all():
        raise LumeshError(
            english(f"The sum over {count} devices is wrong: {sums[0]} in place of {count * (count + 1) / 2}."),
            advice=english("A chip or a link is faulty: make the slice anew."),
        )
    times: list[float] = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        jax.block_until_ready(total(values))
        times.append(time.perf_counter() - started)
    return sorted(times)[REPEATS // 2]
