"""What one host of a slice of two does in tests/pipelines/test_hosts.py: it trains, pauses, and goes on, or follows.

Each host has a data directory of its own, FOLDER/slice-PROCESS, and the models of FOLDER. The first one leaves
FOLDER/slice.json, and its work after the pause in FOLDER/work.zip.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from pipelines.runtime.devices import hosts
from pipelines.training.settings import TrainingSettings, read_settings
from pipelines.training.stop import Stop
from studio.library import training_files, training_packs
from studio.settings import Settings
from studio.worker import slice as module
from studio.worker.learning import Learnt, Lesson, learn_with_jax
from studio.worker.opening import Devices

COMMANDS = 2 * len(("find", "find its start", "learn"))


class PausedError(Exception):
    """Raised in an event, as the studio's own watch does before the first step."""


def teach(opened: Devices, asked: dict[str, Any], data_dir: Path, catalog: Any) -> dict[str, Any]:
    """Trains until a pause, and on from what was packed then; returns what was heard."""
    from pipelines.stages import ignore_progress

    output = data_dir / "training" / "job"
    settings = read_settings({**asked["training"], "data": (str(output / training_files.DATA),), "output": output})
    heard: list[list[dict[str, Any]]] = []

    def learn(*, pauses_at: int | None) -> Learnt:
        shutil.copytree(asked["training"]["data"][0], output / training_files.DATA)
        stop, events = Stop(), list[dict[str, Any]]()
        heard.append(events)

        def hear(event: dict[str, Any]) -> None:
            events.append({name: event[name] for name in ("event", "step", "loss", "total") if name in event})
            if pauses_at is not None and event.get("step") == pauses_at:
                stop.ask("pause")
                raise PausedError

        return opened.learn(
            Lesson(
                settings=TrainingSettings.model_validate(settings),
                model=catalog.get("tiny"),
                name="zorb",
                output=output,
                stop=stop,
                on_event=hear,
                on_progress=ignore_progress,
            )
        )

    first = learn(pauses_at=asked["pauses_at"])
    packed = training_packs.pack(output)
    assert packed is not None
    (data_dir.parent / "work.zip").write_bytes(packed)
    shutil.rmtree(output)
    training_packs.unpack(packed, output)
    second = learn(pauses_at=None)
    return {"heard": heard, "files": [len(learnt.files) for learnt in (first, second)]}


def take_part(asked: dict[str, Any], folder: Path, process: int) -> None:
    """Does everything as host `process` of two that have come together."""
    from pipelines import registry
    from pipelines.models.catalog import load_catalog

    catalog = load_catalog(folder / "models")
    data_dir = folder / f"slice-{process}"
    own = Settings(host="127.0.0.1", port=7860, data_dir=data_dir, allow_cpu=True)
    opened = Devices(
        title="",
        chips=2,
        load=lambda model, on_progress: registry.load(
            model, mesh=None, cache_dir=own.cache_dir, on_progress=on_progress
        ),
        find=lambda model, on_progress: registry.find(model, on_progress=on_progress),
        measure=list,
        learn=learn_with_jax(own),
    )
    if process == 0:
        seen = teach(module.lead(opened, data_dir), asked, data_dir, catalog)
        (folder / "slice.json").write_text(json.dumps(seen), "utf-8")
        return
    follower = module._Follower(opened, data_dir, lambda: catalog)
    for _ in range(COMMANDS):
        command = hosts.agree(module.NEXT, None)
        getattr(follower, command.pop("do"))(**command)
