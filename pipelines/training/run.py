"""One training from settings to files: data, rows, module, steps, samples, result.

The same for the command line and the studio, which differ in who hears the events. Everything that a person can have
got wrong is found by `check` before a weight is read.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipelines import registry
from pipelines.catalog import Shape
from pipelines.families.trainable import Denoiser
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.programs.compiled import Programs, counter
from pipelines.runtime.weights.components import abstract_weights, choose_dtype, read_json
from pipelines.stages import OnProgress
from pipelines.training import export, placement
from pipelines.training.checks import Checked, check_training
from pipelines.training.data.cache import Cache
from pipelines.training.denoiser import (
    LearningModule,
    Origin,
    build_module,
    describe_state,
    fetch,
    load_frozen,
    start_state,
)
from pipelines.training.encoder import PictureReader, TextReader, fingerprint
from pipelines.training.loop import Cadence, OnEvent, Stop, run_steps
from pipelines.training.objective import Objective, choose_objective
from pipelines.training.optimizers import build_optimizer, list_rates
from pipelines.training.prior import FOLDER, PriorMaker
from pipelines.training.report import Report
from pipelines.training.rows import RowSource
from pipelines.training.samples import Sampler
from pipelines.training.settings import TrainingSettings
from pipelines.training.state import StateFolder
from pipelines.training.step import Metrics, StepPlan, TrainState, build_program, compile_first_that_fits, list_remats

LOG = "log.jsonl"
PROFILED_FROM, PROFILED = 10, 5
"""The step that a profile begins with, and how many it has."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a training works: `output` for its files, `cache` for rows, `cache_dir` for compiled programs."""

    output: Path
    cache: Path
    cache_dir: Path
    allow_cpu: bool = False


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
    started = time.monotonic()
    registry.start_jax(place.cache_dir, allow_cpu=place.allow_cpu)
    compiles = counter.compiled
    model = checked.model
    mesh = build_mesh(settings.mesh or f"dp={jax.device_count()}")
    learner = registry.find_learner(model)
    folder = registry.find(model, on_progress=on_progress)
    scheduler_config = read_json(folder / "scheduler" / "scheduler_config.json")
    place.output.mkdir(parents=True, exist_ok=True)
    (place.output / "settings.json").write_text(settings.model_dump_json(indent=1, exclude={"hub_token"}), "utf-8")
    origin = Origin(model=model, learner=learner, folder=folder, mesh=mesh, on_progress=on_progress)
    if settings.prior_prompt:
        checked = _add_prior(settings, checked, place, origin, stop=stop, on_event=on_event)
    rows = _prepare_rows(settings, checked, place, origin, on_event)
    chosen = choose_denoisers(learner.list_denoisers(folder, scheduler_config), settings)
    files: list[Path] = []
    steps, loss = 0, None
    for denoiser in chosen:
        steps, loss, made = _Training(
            settings=settings,
            checked=checked,
            place=place,
            origin=origin,
            scheduler_config=scheduler_config,
            denoiser=denoiser,
            rows=rows,
            stop=stop,
            on_event=on_event,
        ).run()
        files += made
        if stop.is_asked:
            break
    return Result(
        files=tuple(files) if len(files) >= len(chosen) else (),
        steps=steps,
        loss=loss,
        seconds=time.monotonic() - started,
        compiles=counter.compiled - compiles,
    )


def choose_denoisers(known: tuple[Denoiser, ...], settings: TrainingSettings) -> tuple[Denoiser, ...]:
    """Returns those that learn: all, or the expert that was chosen."""
    if len(known) == 1 or settings.expert in (None, "both"):
        return known
    return known[:1] if settings.expert == "high" else known[1:]


def _add_prior(
    settings: TrainingSettings, checked: Checked, place: Place, origin: Origin, *, stop: Stop, on_event: OnEvent
) -> Checked:
    """Makes as many prior pictures as there are others, and reads the data anew with them."""
    folder = place.output / FOLDER
    count = sum(not example.is_prior for example in checked.examples)
    maker = PriorMaker(origin.model, folder, cache_dir=place.cache_dir, on_progress=origin.on_progress)
    maker.make(settings.prior_prompt, count, seed=settings.seed, stop=stop, on_event=on_event)
    with_prior = settings.model_copy(update={"data": (*settings.data, f"{folder},prior")})
    return check_training(with_prior, origin.model, origin.learner, name=checked.name)


def _prepare_rows(
    settings: TrainingSettings, checked: Checked, place: Place, origin: Origin, on_event: OnEvent
) -> RowSource:
    components = read_json(origin.folder / "model_index.json")
    texts = [name for name in components if name.startswith(("text_encoder", "tokenizer"))]
    rows = RowSource(
        examples=checked.examples,
        cuts=checked.cuts,
        schedule=checked.schedule,
        captions=checked.captions,
        cache=None if settings.no_cache else Cache(place.cache),
        learner=origin.learner,
        text_print=fingerprint(origin.folder, texts),
        picture_print=fingerprint(origin.folder, ["vae"]),
        host=jax.process_index(),
        hosts=jax.process_count(),
    )
    rows.prepare(
        checked.steps,
        lambda: TextReader(
            origin.model,
            origin.learner,
            mesh=origin.mesh,
            cache_dir=place.cache_dir,
            on_progress=origin.on_progress,
        ),
        lambda: PictureReader(
            origin.model, origin.learner, origin.folder, mesh=origin.mesh, on_progress=origin.on_progress
        ),
        lambda done, total: on_event({"event": "preparing", "done": done, "total": total}),
    )
    return rows


@dataclass(frozen=True, kw_only=True)
class _Training:
    """The training of one denoiser."""

    settings: TrainingSettings
    checked: Checked
    place: Place
    origin: Origin
    scheduler_config: Mapping[str, Any]
    denoiser: Denoiser
    rows: RowSource
    stop: Stop
    on_event: OnEvent

    def run(self) -> tuple[int, float | None, list[Path]]:
        """Returns the steps done, the last loss, and the result's files if the training came to its end."""
        settings, place = self.settings, self.place
        built = build_module(self.origin, self.denoiser, settings)
        optimizer = build_optimizer(settings, built.shapes)
        state = start_state(self.origin, self.denoiser, built, optimizer=optimizer, settings=settings)
        dtype = self._choose_dtype()
        losses: list[float] = []
        with ExitStack() as stack:
            states = StateFolder(place.output / f"state{self.denoiser.ending}", keep=settings.keep)
            stack.callback(states.close)
            facts = self._list_facts()
            first = 0
            if states.newest is not None:
                state = states.load(describe_state(state), facts)
                first = int(state.step)
                self.on_event({"event": "resumed", "step": first})
            frozen = load_frozen(self.origin, self.denoiser, built, dtype=dtype)
            plan = functools.partial(
                StepPlan,
                module=built.module,
                learner=self.origin.learner,
                optimizer=optimizer,
                mesh=self.origin.mesh,
                dtype=dtype,
                accumulate=settings.accumulate,
                ema=settings.ema,
                seed=settings.seed,
                exact=settings.mixed_precision == "no",
            )
            step = _Steps(self, plan, describe_state(state), frozen)
            report = stack.enter_context(Report(place.output / LOG, settings.report_to, first=first))

            def hear(event: dict[str, Any]) -> None:
                if event["event"] == "step":
                    losses.append(event["loss"])
                report.write(event)
                self.on_event(event)

            sampler = stack.enter_context(_Samples(self, built, hear)) if settings.sample and settings.lora else None
            between = {}
            if sampler is not None:
                every = settings.sample_every or max(1, self.checked.steps // 8)
                between[every] = (sampler.make,)
            state, done = run_steps(
                step, state, frozen,
                first=first,
                cadence=Cadence(
                    steps=self.checked.steps, save_every_s=60 * settings.save_every_minutes,
                    max_s=60 * settings.max_minutes if settings.max_minutes else None, between=between,
                ),
                rates=list_rates(settings, self.checked.steps), make_batch=step.make_batch,
                states=states, facts=facts, stop=self.stop, on_event=hear,
            )  # fmt: skip
            files: list[Path] = []
            if done == self.checked.steps:
                files = [self.write(built, state, self.place.output, self._name())]
        return done, losses[-1] if losses else None, files

    def write(self, built: LearningModule, state: TrainState, folder: Path, name: str) -> Path:
        """Writes what was learnt so far: a LoRA file, or the model's folder; returns the file or folder."""
        values = fetch(state.average or state.trained)
        if built.config is None:
            export.write_model(
                folder, values, base=self.origin.folder, component=self.denoiser.component,
                precision=self.checked.precision, card=self.checked.card,
            )  # fmt: skip
            return folder
        file = folder / f"{name}.safetensors"
        export.write_lora(
            file,
            values,
            config=built.config,
            learner=self.origin.learner,
            facts=self._describe_file(name),
            settings=self.settings,
        )
        return file

    def _name(self) -> str:
        return f"{self.checked.name}{self.denoiser.ending}"

    def _describe_file(self, name: str) -> dict[str, str]:
        shown = {"rank", "alpha", "learning_rate", "optimizer", "lr_scheduler", "resolution", "seed", "snr_gamma",
                 "noise_offset", "sigmas", "shift", "trigger", "caption_dropout", "random_flip"}  # fmt: skip
        return {
            "ss_output_name": name,
            "ss_base_model": self.origin.model.id,
            "modelspec.title": name,
            "modelspec.architecture": f"{self.origin.model.family}/lora",
            **({"modelspec.trigger_phrase": self.settings.trigger} if self.settings.trigger else {}),
            "lumesh_training": json.dumps(
                {"steps": self.checked.steps, "pictures": len(self.checked.examples)}
                | self.settings.model_dump(mode="json", include=shown, exclude_none=True),
                sort_keys=True,
            ),
        }

    def _list_facts(self) -> dict[str, Any]:
        """Lists what a state depends on: a run with anything else of it must not go on with that state."""
        settings = self.settings
        return {
            "model": self.origin.model.id,
            "expert": self.denoiser.component,
            "kind": settings.kind,
            "rank": settings.rank if settings.lora else None,
            "targets": settings.targets,
            "convolutions": settings.convolutions,
            "optimizer": settings.optimizer,
            "ema": settings.ema > 0,
            "seed": settings.seed,
            "global_batch_size": self.checked.batch_size,
            "data": self.checked.fingerprint,
        }

    def _choose_dtype(self) -> Any:
        if self.settings.mixed_precision is None:
            return choose_dtype(self.origin.mesh)
        return jnp.bfloat16 if self.settings.mixed_precision == "bf16" else jnp.float32

    def choose_objective(self, shape: Shape) -> Objective:
        """Returns what is learnt for pictures of this size."""
        return choose_objective(
            self.settings, self.origin.learner, self.scheduler_config,
            model=self.origin.model, folder=self.origin.folder, shape=shape, denoiser=self.denoiser,
        )  # fmt: skip


class _Steps:
    """The compiled steps of a training: one program for each size of pictures."""

    def __init__(
        self, training: _Training, plan: Callable[..., StepPlan], state: TrainState, frozen: Mapping[str, jax.Array]
    ) -> None:
        self._training = training
        self._plan = plan
        self._called = 0
        self._state = state
        self._frozen = abstract_weights(frozen)
        self._programs = Programs()
        self._sharding = placement.rows(training.origin.mesh)
        self._replicated = jax.sharding.NamedSharding(training.origin.mesh, jax.sharding.PartitionSpec())

    def make_batch(self, number: int) -> dict[str, Any]:
        """Returns a step's batch on the mesh, with its size under `shape`."""
        rows = self._training.rows
        arrays = {
            name: jax.make_array_from_process_local_data(self._sharding, value)
            for name, value in rows.make_batch(number).items()
        }
        bucket = rows.find_bucket(number)
        return {"shape": Shape(width=bucket.width, height=bucket.height, frames=bucket.frames), "rows": arrays}

    def __call__(self, state: TrainState, frozen: Any, batch: Any, rate: np.float32) -> tuple[TrainState, Metrics]:
        program = self._find(batch["shape"], batch["rows"])
        self._trace(state)
        return program(state, frozen, batch["rows"], jax.device_put(rate, self._replicated))

    def _trace(self, state: TrainState) -> None:
        """Begins a trace once the first steps are over, and ends it some steps later."""
        folder = self._training.settings.profile
        if folder is None:
            return
        self._called += 1
        if self._called == PROFILED_FROM:
            jax.profiler.start_trace(str(folder))
        elif self._called == PROFILED_FROM + PROFILED:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()

    def _find(self, shape: Shape, rows: Mapping[str, jax.Array]) -> Callable[..., Any]:
        key = ("train", shape)
        if not self._programs.has(*key):
            plan = self._plan(objective=self._training.choose_objective(shape))
            self._training.on_event({"event": "compiling", "shape": str(shape)})
            compile_first_that_fits(
                self._programs,
                lambda remat: build_program(
                    dataclasses.replace(plan, remat=remat),
                    self._state, self._frozen, abstract_weights(rows), key=key,
                ),
                list_remats(self._training.settings.remat, plan.mesh),
                on_refusal=lambda remat: self._training.on_event({"event": "too_large", "remat": remat}),
            )  # fmt: skip
        return self._programs.get(*key)


class _Samples:
    """Makes sample pictures of a LoRA under way."""

    def __init__(self, training: _Training, built: LearningModule, on_event: OnEvent) -> None:
        self._training = training
        self._built = built
        self._on_event = on_event
        place = training.place
        self._sampler = Sampler(
            training.origin.model, training.settings.sample, cache_dir=place.cache_dir, seed=training.settings.seed,
            on_progress=training.origin.on_progress,
        )  # fmt: skip

    def __enter__(self) -> "_Samples":
        return self

    def __exit__(self, *_error: object) -> None:
        self._sampler.close()

    def make(self, done: int, state: TrainState) -> None:
        """Writes the LoRA as it is after `done` steps, and a picture of each prompt with it."""
        folder = self._training.place.output / "samples"
        name = f"{self._training.checked.name}-{done:06d}{self._training.denoiser.ending}"
        file = self._training.write(self._built, state, folder, name)
        for picture in self._sampler.make(file, folder):
            self._on_event({"event": "sample", "step": done, "file": str(picture)})
