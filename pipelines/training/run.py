"""One training from settings to files: data, rows, module, steps, samples, result.

The same for the command line and the studio, which differ in who hears the events. Everything that a person can have
got wrong is found by `check` before a weight is read.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from pipelines import registry
from pipelines.errors import RecipeError
from pipelines.families.trainable import Denoiser
from pipelines.messages import english, say
from pipelines.models.catalog import Model
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import counter
from pipelines.runtime.weights.components import read_json
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.stages import OnProgress
from pipelines.training.checks import Checked
from pipelines.training.data.lengths import list_too_long
from pipelines.training.data.rows import RowSource
from pipelines.training.engine.denoiser import Origin, choose_denoisers, describe_weights, find_denoisers
from pipelines.training.engine.learning import Learning, list_facts_of, remove_leftovers
from pipelines.training.engine.loop import OnEvent, Stop
from pipelines.training.engine.objective import predict_as_asked
from pipelines.training.place import Place
from pipelines.training.preparing import add_prior, prepare_rows
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
    with place.hold(lambda text: on_event({"event": "note", "text": text})):
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
    started, compiled = time.monotonic(), counter.compiled
    opened = _open(settings, checked, place, on_event=on_event, on_progress=on_progress)
    learnt = _prepare(settings, checked, opened, stop=stop, on_event=on_event)
    files, steps, loss = (), find_newest_of(opened.place.output), None
    if learnt is not None:
        files, steps, loss = _learn(settings, learnt, opened, stop=stop, on_event=on_event)
    return Result(
        files=files, steps=steps, loss=loss, seconds=time.monotonic() - started, compiles=counter.compiled - compiled
    )


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """A training whose base is here and whose folder may be written to; `chosen` are the denoisers that learn."""

    place: Place
    origin: Origin
    scheduler_config: dict[str, Any]
    chosen: tuple[Denoiser, ...]
    spell: Spell

    def check_states(self, settings: TrainingSettings, checked: Checked) -> None:
        """Raises RecipeError for the states of another training."""
        model, folder = self.origin.model, self.origin.folder
        check_states(
            settings, checked, model, folder, output=self.place.output, denoisers=self.origin.denoisers
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Learnt:
    """The rows that are learnt, encoded, and those that are held back to validate with."""

    checked: Checked
    rows: RowSource
    held: RowSource | None


def _open(
    settings: TrainingSettings, checked: Checked, place: Place, *, on_event: OnEvent, on_progress: OnProgress
) -> _Opened:
    """Finds the base and the folder, and raises what is wrong with either, on all hosts, before anything is made."""
    registry.start_jax(place.cache_dir, allow_cpu=place.allow_cpu)
    start = checked.model.choose_start(revision=settings.revision, variant=settings.variant)
    model = predict_as_asked(start, settings)
    learner = registry.find_learner(model)
    folder = registry.find(model, on_progress=on_progress)
    scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json") | dict(model.scheduler_changes)
    known = learner.list_denoisers(folder, scheduler_config)
    denoisers = find_denoisers(settings, model, known, on_progress)
    compare_hosts(settings, checked, weights=describe_weights(model, folder, denoisers))
    place, note = find_common_folder(place)
    if note is not None:
        on_event({"event": "note", "text": note})
    architecture: Any = registry.find_architecture(model)
    origin = Origin(
        model=model,
        learner=learner,
        folder=folder,
        mesh=build_mesh(settings.mesh or f"dp={jax.device_count()}"),
        on_progress=on_progress,
        files=architecture.read_files(model),
        denoisers=denoisers,
    )
    chosen = choose_denoisers(known, settings)
    opened = _Opened(
        place=place, origin=origin, scheduler_config=scheduler_config, chosen=chosen, spell=architecture.spell
    )
    opened.check_states(settings, checked)
    if place.is_written_here:
        remove_leftovers(place.output)
    place.write_settings(settings)
    if settings.full and place.is_written_here:
        check_room(origin, place, chosen, settings.save_precision)
        _tell_absent(origin, chosen, on_event)
    return opened


def _prepare(
    settings: TrainingSettings, checked: Checked, opened: _Opened, *, stop: Stop, on_event: OnEvent
) -> _Learnt | None:
    """Makes prior pictures, and encodes all that is learnt; returns None after a stop, on all hosts."""
    origin, place = opened.origin, opened.place
    for note in list_too_long(
        checked.examples, origin.model, trigger=settings.trigger or "", write_prompt=origin.learner.write_prompt
    ):  # now that its tokenizer is here
        if note not in checked.notes:
            on_event({"event": "note", "text": note})
    if checked.prior_prompts:
        whole = add_prior(settings, checked, place, origin, stop=stop, on_event=on_event)
        if whole is None:
            return None
        checked = whole
        compare_hosts(settings, checked)
        opened.check_states(settings, checked)
    if stop.ask_all("stop before the rows"):
        return None
    prepared = prepare_rows(settings, checked, place, origin, stop=stop, on_event=on_event)
    return None if prepared is None else _Learnt(checked=checked, rows=prepared[0], held=prepared[1])


def _learn(
    settings: TrainingSettings, learnt: _Learnt, opened: _Opened, *, stop: Stop, on_event: OnEvent
) -> tuple[tuple[Path, ...], int, float | None]:
    """Trains one denoiser after the other; returns the files, if all came to their end, and the last steps and loss."""
    origin, place, chosen = opened.origin, opened.place, opened.chosen
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
            checked=learnt.checked,
            place=place,
            origin=origin,
            scheduler_config=opened.scheduler_config,
            denoiser=denoiser,
            spell=opened.spell,
            written=(*written, *(one.component for one in chosen[:number])),
            rows=learnt.rows,
            held=learnt.held,
            stop=stop,
            on_event=on_event,
            beside=tuple(files) if settings.lora else (),
        ).run()
        files += made
        if stop.ask_all("stop"):
            break
    is_whole = len(files) >= len(chosen)  # two experts share a folder
    return tuple(dict.fromkeys(files)) if is_whole else (), steps, loss


def _tell_absent(origin: Origin, learning: Sequence[Denoiser], on_event: OnEvent) -> None:
    """Says which parts the base has not got, and so the result neither."""
    if absent := list_absent(origin.folder, {*origin.files, *(one.component for one in learning)}):
        text = english(f"not among the base's files here, and so not in the result: {', '.join(absent)}")
        on_event({"event": "note", "text": text})


def check_states(
    settings: TrainingSettings,
    checked: Checked,
    model: Model,
    folder: Path,
    *,
    output: Path,
    denoisers: Path | None = None,
) -> None:
    """Raises RecipeError for the states of another training before anything is encoded, which may take hours.

    `model` learns, and lies in `folder`, its `denoisers` perhaps elsewhere, None if that is not known. Where prior
    pictures are still to be made, what all of the data is will be known then.
    """
    learner = registry.find_learner(model)
    scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json") | dict(model.scheduler_changes)
    known = learner.list_denoisers(folder, scheduler_config)
    own = {f"state{denoiser.ending}" for denoiser in known}
    if hosts.agree("states of other models", sorted(set(list_states(output)) - own)):
        text = say("{folder} holds a training of another model; choose another output folder", folder=output)
        raise RecipeError({"output": text})
    for denoiser in choose_denoisers(known, settings):
        place = output / f"state{denoiser.ending}"
        found = hosts.agree("the newest state's facts", read_facts(place))
        if found is None:
            continue
        facts = list_facts_of(
            settings, checked, denoiser,
            model=model, folder=folder, denoisers=denoisers, learner=learner, scheduler_config=scheduler_config,
            dtype="",
        )  # fmt: skip
        later = {"data", "prior"} if checked.prior_prompts else set[str]()
        asked = {name: value for name, value in facts.items() if name not in later}
        refuse_differences(found, json.loads(json.dumps(asked)), output)
