"""What one of two hosts does in test_hosts.py: it trains on, makes pictures, keeps states, and is one of a slice.

`python -m tests.pipelines.on_two_hosts FOLDER PORT PROCESS` reads FOLDER/asked.json and leaves what it saw in
FOLDER/seen-PROCESS.json, and its pictures in FOLDER/NAME-PROCESS.npy. FOLDER is a data directory.
What it does as a host of a slice is in tests/studio/worker/on_a_slice.py.
"""

import json
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.runtime.devices import hosts
from tests.studio.worker import on_a_slice

if TYPE_CHECKING:
    from pipelines.training.results.state import StateFolder

FULL = 100_000  # bytes of the largest file that a full disk takes
SKEW = 20.0  # the second host's clock seems to run so much slower


def learn(asked: dict[str, Any], *, output: Path, stops_at: int | None) -> list[list[float]]:
    """Trains as one of the hosts; returns each step's number and loss. At the step `stops_at` it is told to stop."""
    from pipelines import registry
    from pipelines.models.catalog import load_catalog
    from pipelines.stages import ignore_progress
    from pipelines.training.checks import check_training
    from pipelines.training.engine.loop import Stop
    from pipelines.training.place import Place
    from pipelines.training.run import train
    from pipelines.training.settings import read_settings

    model = load_catalog(Path(asked["folder"]) / "models").get("tiny")
    settings = read_settings({**asked["training"], "output": output})
    checked = check_training(settings, model, registry.find_learner(model), name="zorb")
    stop, losses = Stop(), []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            losses.append([event["step"], event["loss"]])
            if event["step"] == stops_at:
                stop.ask("test")

    folder = Path(asked["folder"]) / f"host-{asked['process']}"
    place = Place(output=output, cache=folder / "rows", cache_dir=folder / "cache")
    train(settings, checked, place, stop=stop, on_event=hear, on_progress=ignore_progress)
    return losses


def make_pictures(asked: dict[str, Any], process: int) -> dict[str, Any]:
    """Makes the pictures that are asked for, the last one only up to its first chunk; returns what ran for each."""
    from pipelines import registry
    from pipelines.errors import Cancelled
    from pipelines.generate import generate
    from pipelines.models.catalog import load_catalog
    from pipelines.recipes.recipe import read_recipe
    from pipelines.recipes.resolving import resolve
    from pipelines.runtime.sampling import chunks
    from pipelines.stages import Progress, ignore_progress

    if process:
        chunks.CHUNK_TARGET_S *= SKEW
    folder = Path(asked["folder"])
    catalog = load_catalog(folder / "models", folder / "loras")
    previews: list[list[int]] = []

    def look(progress: Progress) -> None:
        if progress.draw_preview is not None:
            previews.append(list(progress.draw_preview().shape))

    def cancel(progress: Progress) -> None:
        if progress.phase == "denoising":
            raise Cancelled

    family = registry.load(
        catalog.get("tiny"),
        mesh=asked["mesh"],
        cache_dir=folder / f"host-{process}" / "cache",
        on_progress=ignore_progress,
    )
    launches: dict[str, list[str]] = {}
    for name, fields in asked["recipes"].items():
        hosts.launches.clear()
        recipe = resolve(read_recipe(fields), catalog)
        if name == "cancelled":
            try:
                generate(family, recipe, on_progress=cancel if process == 0 else ignore_progress)
            except Cancelled:
                hosts.note_launch("cancelled")
        else:
            pixels = generate(family, recipe, on_progress=look if process == 0 else ignore_progress).pixels
            np.save(folder / f"{name}-{process}.npy", pixels)
        launches[name] = [*hosts.launches]
    return {"launches": launches, "previews": previews}


def save_twice(states: "StateFolder", step: int, state: Any, *, limit: int) -> str:
    """Saves a state on a disk that takes files of `limit` bytes, and again when it takes all; returns what it said."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # Python ignores the signal
    told = ""
    try:
        states.save(step, state, {})
        states.wait()
    except OSError as error:
        told = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    hosts.wait("the disk has said what it says")
    states.save(step, state, {})
    states.wait()
    return told


def keep_states(folder: Path, process: int) -> dict[str, Any]:
    """Saves states in a folder that both see, and in one of each: one host's disk refuses them at first.

    Returns what each save ended with, and what is read of the folders that only the first host keeps states in.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from pipelines.errors import LumeshError
    from pipelines.training.results.state import StateFolder

    mesh = Mesh(np.asarray(jax.devices()), ("all",))
    apart = NamedSharding(mesh, PartitionSpec("all"))
    described = {name: jax.ShapeDtypeStruct((500_000,), np.float32, sharding=apart) for name in "ab"}
    noise = np.random.default_rng(0).normal(size=500_000).astype(np.float32)
    state = {name: hosts.place(noise * number, apart) for number, name in enumerate("ab", start=1)}

    common = StateFolder(folder / "common", keep=2)
    told = [save_twice(common, 2, state, limit=FULL if process else resource.RLIM_INFINITY)]
    common.close()

    own = StateFolder(folder / f"own-{process}", keep=2, is_common=False)
    told.append(save_twice(own, 3, state, limit=resource.RLIM_INFINITY if process else FULL))
    own.close()
    own = StateFolder(folder / f"own-{process}", keep=2, is_common=False)
    found = own.load(described, {})
    is_whole = all((hosts.fetch(found[name]) == hosts.fetch(state[name])).all() for name in "ab")
    newest = own.newest
    own.close()
    try:
        StateFolder(folder / f"own-{1 - process}", keep=2, is_common=False)
        refused = ""
    except LumeshError as error:
        refused = str(error)
    return {"told": told, "common": common.newest, "own": newest, "is_whole": is_whole, "refused": refused}


def main(folder: Path, port: int, process: int) -> None:
    """Does everything as host `process` of two."""
    asked = json.loads((folder / "asked.json").read_text("utf-8")) | {"process": process}
    address = hosts.Address(coordinator=f"127.0.0.1:{port}", processes=2, process=process)
    with hosts.together(address, on_loss=lambda: "test"):
        seen: dict[str, Any] = {
            # Only the second host is told to stop.
            "losses": learn(asked, output=folder / "half", stops_at=asked["stops_at"] if process else None),
            **make_pictures(asked, process),
            "states": keep_states(folder, process),
        }
        (folder / f"seen-{process}.json").write_text(json.dumps(seen), "utf-8")
        on_a_slice.take_part(asked["slice"], folder, process)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
