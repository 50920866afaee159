"""The training of one denoiser, from its checkpoint to the file of what was learnt.

Not here: data and rows (run.py), the loop (loop.py).
"""

import functools
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from pipelines.families.trainable import Denoiser, Learner
from pipelines.files.whole import PART
from pipelines.messages import Message, say
from pipelines.models.catalog import Model, Shape, find_shipped
from pipelines.runtime.devices import hosts
from pipelines.runtime.programs.aot_packs import Packs
from pipelines.runtime.weights.hub import find_revision
from pipelines.runtime.weights.lora_spelling import Spell
from pipelines.training.checks import Checked
from pipelines.training.data.rows import RowSource
from pipelines.training.engine.compiled_steps import Steps, name_pack
from pipelines.training.engine.denoiser import (
    LearningModule,
    Origin,
    build_module,
    choose_compute_dtype,
    describe_state,
    load_frozen,
    plan_steps,
    start_state,
)
from pipelines.training.engine.first_values import read_first_lora, take_over
from pipelines.training.engine.loop import Cadence, Duty, OnEvent, Stop, keep_finite, run_steps
from pipelines.training.engine.objective import Objective, choose_objective, predict_as_asked
from pipelines.training.engine.optimizers import build_optimizer, find_result, list_rates
from pipelines.training.engine.step import TrainState, Weights
from pipelines.training.first_lora import hash_lora
from pipelines.training.place import Place
from pipelines.training.results import export
from pipelines.training.results.card import write_card
from pipelines.training.results.facts import list_facts
from pipelines.training.results.model_folder import write_model
from pipelines.training.results.report import Report
from pipelines.training.results.room import tell_room
from pipelines.training.results.samples import Sampler
from pipelines.training.results.state import StateFolder
from pipelines.training.settings import TrainingSettings

LOG = "log{ending}.jsonl"
BORROWED = "state-sampled-"
"""How folders begin that hold a model for as long as samples of it are made."""
SAMPLED = 8
"""How often samples are made where nothing is asked."""
VALIDATED = 20


def list_facts_of(
    settings: TrainingSettings,
    checked: Checked,
    denoiser: Denoiser,
    *,
    model: Model,
    folder: Path,
    denoisers: Path | None,
    learner: Learner,
    scheduler_config: Mapping[str, Any],
    dtype: str,
) -> dict[str, Any]:
    """Lists what a state of a denoiser of the `model` in a folder is for, and what a run that goes on may change.

    `denoisers` is where those of another revision lie, None if there are none, or they are not here yet.
    """
    return list_facts(
        settings, learner, scheduler_config,
        model=model.id, revision=model.revision, base=_fingerprint_base(model, folder),
        expert=denoiser.component, global_batch_size=checked.batch_size, data=checked.fingerprint,
        prior=checked.prior_fingerprint, start_from=hash_lora(checked.first_lora), steps=checked.steps, dtype=dtype,
        denoisers=None if denoisers is None else find_revision(denoisers),
    )  # fmt: skip


def _fingerprint_base(model: Model, folder: Path) -> str:
    """Returns a hash of a base in files of one's own: others may come under the same name."""
    is_own = model.path is not None or model.file is not None
    return find_revision(folder, model.own_files) if is_own else ""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The training of one denoiser; `written` are components that lie in the output folder already.

    These are what learnt before it, and what the model has in files of its own. `beside` are the LoRA files of those
    that learnt before it, with which its samples are made too.
    """

    settings: TrainingSettings
    checked: Checked
    place: Place
    origin: Origin
    scheduler_config: Mapping[str, Any]
    denoiser: Denoiser
    spell: Spell
    written: tuple[str, ...]
    rows: RowSource
    held: RowSource | None
    stop: Stop
    on_event: OnEvent
    beside: tuple[Path, ...] = ()

    def run(self) -> tuple[int, float | None, list[Path]]:
        """Returns the steps done, the last loss, and the result's files if the training came to its end."""
        settings, place = self.settings, self.place
        built = build_module(self.origin, self.denoiser, settings)
        optimizer = build_optimizer(settings, built.shapes)
        state = start_state(
            self.origin, self.denoiser, built, optimizer=optimizer, settings=settings, change=self._learn_on
        )
        losses: list[float | None] = []
        with ExitStack() as stack:
            states = StateFolder(
                place.output / f"state{self.denoiser.ending}", keep=settings.keep, is_common=place.is_common
            )
            stack.callback(states.close)
            facts = list_facts_of(
                settings, self.checked, self.denoiser,
                model=self.origin.model, folder=self.origin.folder, denoisers=self.origin.denoisers,
                learner=self.origin.learner, scheduler_config=self.scheduler_config,
                dtype=np.dtype(choose_compute_dtype(settings, self.origin.mesh)).name,
            )  # fmt: skip
            first = 0
            if states.newest is not None:
                state = states.load(describe_state(state), facts, tell=self._note)
                first = int(state.step)
                self.on_event({"event": "resumed", "step": first})
                if first > self.checked.steps:
                    self._note(
                        say("This training has learnt for {done} steps, more than the {steps} asked for: its result is "
                            "that of step {done}. For fewer steps, choose another output folder.",
                            done=first, steps=self.checked.steps)
                    )  # fmt: skip
            if (text := tell_room(state, place.output)) is not None:
                self._note(text)
            mesh = self.origin.mesh
            frozen = load_frozen(self.origin, self.denoiser, built, dtype=choose_compute_dtype(settings, mesh))
            step = Steps(
                plan_steps(settings, built, self.origin.learner, optimizer=optimizer, mesh=mesh),
                self.choose_objective,
                rows=self.rows,
                settings=settings,
                mesh=mesh,
                packs=self._open_packs(),
                state=describe_state(state),
                frozen=frozen,
                on_event=self.on_event,
                count=self.checked.steps - first,
            )
            stack.callback(step.close)
            report = None
            if hosts.is_leader():
                log = place.output / LOG.format(ending=self.denoiser.ending)
                report = stack.enter_context(Report(log, settings.report_to, first=first))

            def hear(event: dict[str, Any]) -> None:
                if event["event"] == "step":
                    losses.append(event["loss"])
                if report is not None:
                    report.write(event)
                self.on_event(event)

            between: dict[int, tuple[Duty, ...]] = {}
            owed: list[Duty] = []

            def plan(every: int, duty: Duty, event: str, *, count: int) -> None:
                between[every] = (*between.get(every, ()), duty)
                is_due = 0 < first <= self.checked.steps and first % every == 0
                if is_due and not hosts.agree(event, report is not None and report.has(event, first, count=count)):
                    owed.append(duty)

            if settings.sample:
                sampler = stack.enter_context(SamplesUnderWay(self, built, hear))
                every = settings.sample_every or max(1, self.checked.steps // SAMPLED)
                plan(every, sampler.make, "sample", count=len(settings.sample))
            if self.held is not None:
                every = settings.validate_every or max(1, self.checked.steps // VALIDATED)
                plan(every, functools.partial(self._validate, step, frozen, hear), "validation", count=1)
            state, done = run_steps(
                step, state, frozen,
                first=first,
                cadence=Cadence(
                    steps=self.checked.steps, save_every_s=60 * settings.save_every_minutes, between=between,
                    owed=tuple(owed),
                ),
                rates=list_rates(settings, self.checked.steps), make_batch=step.make_batch,
                states=states, facts=facts, stop=self.stop, on_event=hear, prepare=step.prepare,
            )  # fmt: skip
            files: list[Path] = []
            if done >= self.checked.steps:
                files = [self.write(built, state, self.place.output, self._name())]
        return done, losses[-1] if losses else None, files

    def _learn_on(self, drawn: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns a LoRA's first values, of the file that it starts from if there is one."""
        file, settings, origin = self.checked.first_lora, self.settings, self.origin
        if file is None:
            return drawn
        known = origin.learner.list_denoisers(origin.folder, self.scheduler_config)
        updates = read_first_lora(
            file, origin, self.denoiser.component,
            components=[one.component for one in known], spell=self.spell, tell=self._note,
        )  # fmt: skip
        return take_over(drawn, updates, rank=settings.rank, alpha=settings.alpha or settings.rank)

    def _note(self, text: Message) -> None:
        self.on_event({"event": "note", "text": text})

    def _validate(self, step: Steps, frozen: Weights, on_event: OnEvent, done: int, state: TrainState) -> None:
        assert self.held is not None
        loss = keep_finite(step.validate(find_best(state), frozen, self.held))
        on_event({"event": "validation", "step": done, "validation_loss": loss})

    def write(self, built: LearningModule, state: TrainState, folder: Path, name: str) -> Path:
        """Writes what was learnt so far: a LoRA file, or the model's folder; returns the file or folder.

        Of several hosts the first one writes, or each its own copy; all return when it is written.
        """
        values = _fetch_best(state)
        target = folder if built.config is None else folder / f"{name}.safetensors"
        if self.place.is_written_here:
            if built.config is None:
                self._write_model(values, target, steps=int(state.step))
            else:
                export.write_lora(
                    target, values, config=built.config, learner=self.origin.learner, layers=built.layers,
                    facts=self._describe_file(name, steps=int(state.step)), settings=self.settings,
                )  # fmt: skip
        hosts.wait("what was learnt is written")
        return target

    def _write_model(self, values: Mapping[str, Any], folder: Path, *, steps: int, is_linked: bool = False) -> None:
        write_model(
            folder, values, base=self.origin.folder, component=self.denoiser.component,
            variant=self.origin.model.variant, precision=self.settings.save_precision,
            card=write_card(self.settings, self.checked, steps=steps), is_linked=is_linked,
            written={name: self.place.output / name for name in self.written}, like=find_shipped(self.origin.model),
        )  # fmt: skip

    @contextmanager
    def borrow_model(self, state: TrainState) -> Iterator[Path]:
        """Gives a folder of the model as it is now, which is removed: what does not learn are links in it.

        Of several hosts the first one writes it, or each its own, and it is removed when all have done with it.
        """
        values = _fetch_best(state)
        self.place.output.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            folder = ""
            if self.place.is_written_here:
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=self.place.output, prefix=BORROWED))
                self._write_model(values, Path(folder), steps=int(state.step), is_linked=True)
            name = hosts.agree("the folder of the model as it is now", Path(folder).name)
            yield Path(folder) if folder else self.place.output / name
            hosts.wait("samples are made")

    def _name(self) -> str:
        return f"{self.checked.name}{self.denoiser.ending}"

    def _describe_file(self, name: str, *, steps: int) -> dict[str, str]:
        shape = self.origin.model.default_shape
        default = f"{shape.width}x{shape.height}"
        shown = {"rank", "alpha", "learning_rate", "optimizer", "lr_scheduler", "resolution", "seed", "snr_gamma",
                 "noise_offset", "sigmas", "shift", "trigger", "caption_dropout", "random_flip"}  # fmt: skip
        return {
            "ss_output_name": name,
            "ss_base_model": self.origin.model.id,
            **self.origin.learner.describe_base(self.origin.folder, self.scheduler_config),
            "modelspec.sai_model_spec": "1.0.0",
            "modelspec.implementation": "diffusers",
            "modelspec.title": name,
            "modelspec.resolution": f"{side}x{side}" if (side := self.settings.resolution) else default,
            **({"modelspec.trigger_phrase": self.settings.trigger} if self.settings.trigger else {}),
            "lumesh_training": json.dumps(
                {"steps": steps, "pictures": len(self.checked.examples)}
                | ({} if (lora := self.checked.first_lora) is None else {"start_from": PurePath(lora.ref).name})
                | self.settings.model_dump(mode="json", include=shown, exclude_none=True),
                sort_keys=True,
            ),
        }

    def _open_packs(self) -> Packs | None:
        """Opens what `compile --train` wrote for this model and these devices."""
        if not self.place.packs:
            return None
        return Packs(self.place.packs, model_id=name_pack(self.origin.model), mesh=self.origin.mesh)

    def choose_objective(self, shape: Shape) -> Objective:
        """Returns what is learnt for pictures of this size."""
        return choose_objective(
            self.settings, self.origin.learner, self.scheduler_config,
            model=self.origin.model, folder=self.origin.folder, shape=shape, denoiser=self.denoiser,
        )  # fmt: skip


def remove_leftovers(output: Path) -> None:
    """Removes what a killed run left: models that it made samples with, and what it had written half of a result."""
    for left in (*output.glob(f"{BORROWED}*"), *output.glob(f".*{PART}*")):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def find_best(state: TrainState) -> Weights:
    """Returns the weights to use of a state: its average where it has one."""
    return state.average or dict(find_result(state.trained, state.optimizer))


def _fetch_best(state: TrainState) -> dict[str, Any]:
    return {name: hosts.fetch(value) for name, value in find_best(state).items()}


class SamplesUnderWay:
    """Makes sample pictures of a LoRA under way, or of a model whose weights all learn."""

    def __init__(self, training: Learning, built: LearningModule, on_event: OnEvent) -> None:
        self._training = training
        self._built = built
        self._on_event = on_event
        place = training.place
        settings = training.settings
        self._sampler = Sampler(
            predict_as_asked(training.checked.model, settings), settings.sample, cache_dir=place.cache_dir,
            seed=settings.seed, on_progress=training.origin.on_progress,
        )  # fmt: skip

    def __enter__(self) -> "SamplesUnderWay":
        return self

    def __exit__(self, *_error: object) -> None:
        self._sampler.close()

    def make(self, done: int, state: TrainState) -> None:
        """Makes a picture of each prompt after `done` steps; of a LoRA, its file as it is then lies beside them."""
        folder = self._training.place.output / "samples"
        name = f"{self._training.checked.name}-{done:06d}{self._training.denoiser.ending}"
        if self._built.config is None:
            with self._training.borrow_model(state) as model:
                pictures = self._sampler.make_of_model(model, folder, name)
        else:
            file = self._training.write(self._built, state, folder, name)
            pictures = self._sampler.make(file, folder, beside=self._training.beside)
        for picture in pictures:
            self._on_event({"event": "sample", "step": done, "file": str(picture)})
