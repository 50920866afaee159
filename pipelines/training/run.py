"""One training from settings to files: data, rows, module, steps, samples, result.

The same for the command line and the studio, which differ in who hears the events. Everything that a person can have
got wrong is found by `check` before a weight is read.
"""

import functools
import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from pipelines import registry
from pipelines.errors import RecipeError
from pipelines.messages import english, say
from pipelines.models.catalog import Model, Shape
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.mesh import build_mesh, build_own_mesh
from pipelines.runtime.programs.compiled import counter
from pipelines.runtime.weights.components import choose_dtype, read_json
from pipelines.runtime.weights.hub import find_revision
from pipelines.stages import OnProgress
from pipelines.training.checks import Checked, check_training
from pipelines.training.data.cache import Cache
from pipelines.training.data.encoder import PictureReader, TextReader
from pipelines.training.data.fingerprints import fingerprint
from pipelines.training.data.lengths import list_too_long
from pipelines.training.data.prior import FOLDER, PriorMaker
from pipelines.training.data.rows import RowSource
from pipelines.training.data.trainings import SETTINGS
from pipelines.training.engine import placement
from pipelines.training.engine.denoiser import Origin, choose_denoisers, find_denoisers
from pipelines.training.engine.learning import Learning, list_facts_of, remove_borrowed
from pipelines.training.engine.loop import OnEvent, Stop
from pipelines.training.engine.objective import predict_as_asked
from pipelines.training.place import Place
from pipelines.training.results.facts import refuse_differences
from pipelines.training.results.model_folder import list_absent
from pipelines.training.results.own_parts import list_own_parts, write_own_parts
from pipelines.training.results.room import check_room
from pipelines.training.results.state import find_newest_of, list_states, read_facts
from pipelines.training.settings import TrainingSettings
from pipelines.training.together import compare_hosts, find_common_folder


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a training gave: its `files`, empty when it was stopped before its end after `steps` steps."""

    files: tuple[Path, ...]
    steps: int
    loss: float | None
    seconds: float
    compiles: int


def train(
    settings: TrainingSettings,
    checked: Checked,
    place: Place,
    *,
    stop: Stop,
    on_event: OnEvent,
    on_progress: OnProgress,
) -> Result:
    """Trains until the last step or a stop; a training of the same folder goes on where the last one stopped.

    Raises RecipeError, ModelError and LumeshErrors with advice.
    """
    stop.limit(60 * settings.max_minutes if settings.max_minutes else None)
    place.output.mkdir(parents=True, exist_ok=True)
    with place.hold():
        return _train(settings, checked, place, stop=stop, on_event=on_event, on_progress=on_progress)


def _train(
    settings: TrainingSettings,
    checked: Checked,
    place: Place,
    *,
    stop: Stop,
    on_event: OnEvent,
    on_progress: OnProgress,
) -> Result:
    started = time.monotonic()
    registry.start_jax(place.cache_dir, allow_cpu=place.allow_cpu)
    compiles = counter.compiled
    start = checked.model.choose_start(revision=settings.revision, variant=settings.variant)
    model = predict_as_asked(start, settings)
    mesh = build_mesh(settings.mesh or f"dp={jax.device_count()}")
    learner = registry.find_learner(model)
    folder = registry.find(model, on_progress=on_progress)
    scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json") | dict(model.scheduler_changes)
    compare_hosts(settings, checked, weights=find_revision(folder, model.own_files))
    place, note = find_common_folder(place)
    if note is not None:
        on_event({"event": "note", "text": note})
    architecture: Any = registry.find_architecture(model)
    origin = Origin(
        model=model,
        learner=learner,
        folder=folder,
        mesh=mesh,
        on_progress=on_progress,
        files=architecture.read_files(model),
        denoisers=find_denoisers(settings, model, learner.list_denoisers(folder, scheduler_config), on_progress),
    )
    chosen = choose_denoisers(learner.list_denoisers(folder, scheduler_config), settings)
    check_states(settings, checked, model, folder, output=place.output)
    if place.is_written_here:
        remove_borrowed(place.output)
        _write_settings(settings, place)
    for note in list_too_long(
        checked.examples, model, trigger=settings.trigger or "", write_prompt=learner.write_prompt
    ):  # now that its tokenizer is here
        if note not in checked.notes:
            on_event({"event": "note", "text": note})
    if settings.full and place.is_written_here:
        check_room(origin, place, chosen, settings.save_precision)
        _tell_absent(folder, on_event)
    whole: Checked | None = checked
    if checked.prior_prompts:
        whole = _add_prior(settings, checked, place, origin, stop=stop, on_event=on_event)
        if whole is not None:
            compare_hosts(settings, whole)
            check_states(settings, replace(whole, prior_prompts=()), model, folder, output=place.output)
    prepared = None
    if whole is not None and not stop.ask_all("stop before the rows"):
        prepared = _prepare_rows(settings, whole, place, origin, stop=stop, on_event=on_event)
    if whole is None or prepared is None:
        return Result(
            files=(),
            steps=find_newest_of(place.output),
            loss=None,
            seconds=time.monotonic() - started,
            compiles=counter.compiled - compiles,
        )
    checked, (rows, held) = whole, prepared
    learning = {one.component for one in chosen}
    written = list_own_parts(origin, learning) if settings.full else ()
    if settings.full and place.is_written_here:
        write_own_parts(origin, place.output, learning)
    hosts.wait("what the model has in files of its own is written")
    files: list[Path] = []
    steps, loss = 0, None
    for number, denoiser in enumerate(chosen):
        if len(chosen) > 1:
            on_event({"event": "expert", "number": number, "count": len(chosen), "component": denoiser.component})
        steps, loss, made = Learning(
            settings=settings,
            checked=checked,
            place=place,
            origin=origin,
            scheduler_config=scheduler_config,
            denoiser=denoiser,
            spell=architecture.spell,
            written=(*written, *(one.component for one in chosen[:number])),
            rows=rows,
            held=held,
            stop=stop,
            on_event=on_event,
            beside=tuple(files) if settings.lora else (),
        ).run()
        files += made
        if stop.ask_all("stop"):
            break
    return Result(
        files=tuple(dict.fromkeys(files)) if len(files) >= len(chosen) else (),  # two experts share a folder
        steps=steps,
        loss=loss,
        seconds=time.monotonic() - started,
        compiles=counter.compiled - compiles,
    )


def _tell_absent(base: Path, on_event: OnEvent) -> None:
    """Says which parts the base has not got, and so the result neither."""
    if absent := list_absent(base):
        text = english(f"not among the base's files here, and so not in the result: {', '.join(absent)}")
        on_event({"event": "note", "text": text})


def check_states(settings: TrainingSettings, checked: Checked, model: Model, folder: Path, *, output: Path) -> None:
    """Raises RecipeError for the states of another training before anything is encoded, which may take hours.

    `model` learns, and lies in `folder`. Where prior pictures are still to be made, what all of the data is will be
    known then.
    """
    learner = registry.find_learner(model)
    scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json") | dict(model.scheduler_changes)
    denoisers = learner.list_denoisers(folder, scheduler_config)
    own = {f"state{denoiser.ending}" for denoiser in denoisers}
    if hosts.agree("states of other models", sorted(set(list_states(output)) - own)):
        text = say("{folder} holds a training of another model; choose another output folder", folder=output)
        raise RecipeError({"output": text})
    for denoiser in choose_denoisers(denoisers, settings):
        place = output / f"state{denoiser.ending}"
        found = hosts.agree("the newest state's facts", read_facts(place))
        if found is None:
            continue
        facts = list_facts_of(
            settings, checked, denoiser,
            model=model, folder=folder, learner=learner, scheduler_config=scheduler_config, dtype="",
        )  # fmt: skip
        later = {"data", "prior"} if checked.prior_prompts else set[str]()
        asked = {name: value for name, value in facts.items() if name not in later}
        refuse_differences(found, json.loads(json.dumps(asked)), output)


def _add_prior(
    settings: TrainingSettings, checked: Checked, place: Place, origin: Origin, *, stop: Stop, on_event: OnEvent
) -> Checked | None:
    """Makes as many prior pictures as others, or prompts if there are more, and reads the data anew with them.

    Returns None after a stop: some of the pictures are no data to go on with.
    They have the model's default shape, or where they keep what it knows (`preserve`) those that are learnt.
    """
    folder = place.output / FOLDER
    prompts = checked.prior_prompts
    count = max(sum(not example.is_prior for example in checked.examples), len(prompts))
    learnt = [Shape(**cut.bucket._asdict()) for cut in checked.data.cuts]
    shapes = [shape for shape in dict.fromkeys(learnt) if shape in checked.model.shapes and settings.preserve]
    maker = PriorMaker(checked.model, place, on_progress=origin.on_progress)
    shapes = shapes or [checked.model.default_shape]
    if not maker.make(prompts, count, shapes=shapes, seed=settings.seed, stop=stop, on_event=on_event):
        return None
    with_prior = settings.model_copy(update={"data": (*settings.data, f"{folder},prior")})
    return check_training(with_prior, checked.model, origin.learner, name=checked.name)


class _StoppedError(Exception):
    """Raised between two rows, all of which so far are kept."""


def _prepare_rows(
    settings: TrainingSettings, checked: Checked, place: Place, origin: Origin, *, stop: Stop, on_event: OnEvent
) -> tuple[RowSource, RowSource | None] | None:
    """Encodes everything that is learnt, and what is held back to validate with, None without any.

    Returns None after a stop, on all hosts.
    """
    components = read_json(origin.folder / "model_index.json")
    texts = [name for name in components if name.startswith(("text_encoder", "tokenizer"))]
    describe = functools.partial(
        fingerprint,
        origin.folder,
        own_files=origin.model.own_files,
        dtype=jnp.dtype(choose_dtype(origin.mesh)).name,
        variant=origin.model.variant,
    )
    source = functools.partial(
        RowSource,
        cache=None if settings.no_cache else Cache(place.cache),
        learner=origin.learner,
        text_print=describe(texts),
        picture_print=describe(["vae"]),
        own=functools.partial(placement.find_own_rows, origin.mesh),
    )
    rows = source(data=checked.data, captions=checked.captions)
    held = None
    if checked.held is not None:
        held = source(
            data=checked.held, captions=replace(checked.captions, dropout=0.0, shuffle_tags=False, preserve=0.0)
        )
    own_mesh = build_own_mesh(origin.mesh)  # each host encodes by itself, at its own pace
    readers = (
        lambda: TextReader(
            origin.model, origin.learner, mesh=own_mesh, cache_dir=place.cache_dir, on_progress=origin.on_progress
        ),
        lambda: PictureReader(
            origin.model,
            origin.learner,
            origin.folder,
            mesh=own_mesh,
            on_progress=origin.on_progress,
            stored=origin.files.get("vae"),
        ),
    )

    def count(done: int, total: int) -> None:
        on_event({"event": "preparing", "done": done, "total": total})
        if stop.is_asked:
            raise _StoppedError

    with suppress(_StoppedError):
        rows.prepare(checked.steps, *readers, count)
        if held is not None:
            held.prepare(held.schedule.steps_per_epoch, *readers, count)
    return None if stop.ask_all("stop before the steps") else (rows, held)


def _write_settings(settings: TrainingSettings, place: Place) -> None:
    (place.output / SETTINGS).write_text(settings.model_dump_json(indent=1, exclude={"hub_token"}), "utf-8")
