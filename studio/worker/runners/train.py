"""Runs a job that trains: pictures and captions into its folder, the engine in this process, the LoRA into the list.

The folder `training/<job>` of the data directory holds the engine's state, from which the same job goes on after a
pause, a crash or a restart, and a copy of the LoRA that it learns on from; the pictures lie there only while it runs.
A wish to end reaches the engine after its next step, which saves; before the first step there is nothing to save, and
the work ends at once.
Not here: what trains (learning.py), the rows (jobs/trainings.py).
"""

import logging
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import Cancelled
from pipelines.files.foreign_video import measure_video, read_frames
from pipelines.files.metadata import read_recipe_of
from pipelines.files.whole import write_whole
from pipelines.messages import Message
from pipelines.models.model import Model
from pipelines.pictures.reading import open_picture
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.stages import Progress
from pipelines.training.settings import TrainingSettings
from pipelines.training.stop import Stop
from studio.jobs.costs import lessons
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Job
from studio.jobs.training import choose_sample_every
from studio.jobs.trainings import Training
from studio.library import files, training_files, training_starts
from studio.worker.bench import Bench
from studio.worker.desk import Made
from studio.worker.learning import Lesson
from studio.worker.progress import encode_preview
from studio.worker.provenance import describe_training
from studio.worker.step_times import StepTimes

REPORT_S = 0.25  # steps of small models take less; people read a few updates a second
CURVE_POINTS = 400
HOOK_FPS = 1.0  # frames of a clip that a hook looks at
SAMPLING = ("encoding", "denoising", "decoding")

log = logging.getLogger(__name__)


class _Paused(Exception):  # noqa: N818 - not an error: a person requested it
    """Raised before the first step, when a pause was asked for."""


def run(bench: Bench, job: Job) -> None:
    """Trains until the last step, a pause, a cancellation, or the end of the server."""
    training = bench.desk.trainings.read(job)
    model = bench.find_model(job.recipe.model)
    folder = bench.settings.training_dir / job.id
    watch = _Watch(bench, job, training, model)
    try:
        if training.asked.start_from is not None:
            training_starts.keep_start(folder, training.asked.start_from, bench.settings.loras_dir)
        _write_data(bench, job, training, folder / training_files.DATA)
        bench.resident.leave(watch.on_progress)
        lesson = Lesson(
            settings=make_settings(job, training, model, folder),
            model=training_starts.with_start(model, folder),
            name=training.name,
            output=folder,
            stop=watch.stop,
            on_event=watch.on_event,
            on_progress=watch.on_progress,
        )
        learnt = bench.learn(lesson)
        if learnt.files:
            refs = _install(bench, job, training, learnt.files)
            _finish(bench, job, model, watch, refs=refs, compiles=learnt.compiles)
            training_files.forget_work(folder)
            return
        if (measured := watch.measure(is_done=False)) is not None:
            bench.desk.record(measured)
        if watch.is_ending:
            log.info("training %s goes back in line", job.id)  # as every running job, once this process has ended
        elif watch.is_pausing:
            bench.desk.trainings.end_paused(job)
        else:
            raise Cancelled
    except _Paused:
        bench.desk.trainings.end_paused(job)
    finally:
        shutil.rmtree(folder / training_files.DATA, ignore_errors=True)


def make_settings(job: Job, training: Training, model: Model, folder: Path) -> TrainingSettings:
    """Returns the engine's settings for what was asked."""
    asked, numbers = training.asked, training.asked.choose_numbers(model)
    return TrainingSettings(
        model=model.id,
        data=(str(folder / training_files.DATA),),
        output=folder,
        lora=True,
        rank=numbers.rank,
        start_from=asked.start_from,
        steps=numbers.steps,
        learning_rate=numbers.learning_rate,
        trigger=asked.trigger.strip() or None,
        preserve=1.0 if asked.has_twins else 0.0,
        prior_prompt=tuple(asked.list_prior_prompts(model)),
        convolutions=model.is_demo,  # a small model's attention alone has not enough weights for a new subject
        sample=asked.sample_prompts or (job.recipe.prompt,),
        sample_every=choose_sample_every(numbers.steps),
        save_every_minutes=2.0,
        seed=job.recipe.seed or 0,
    )


def _write_data(bench: Bench, job: Job, training: Training, folder: Path) -> None:
    """Writes pictures and captions anew, with the numbers that people see: what an earlier attempt left may be torn."""
    sources = bench.desk.trainings.find_pictures(job, training)
    for source in sources:
        bench.ask_hook(job, job.recipe, lambda source=source: _read_source(source))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, (source, picture) in enumerate(zip(sources, training.asked.pictures, strict=True), start=1):
        shutil.copyfile(source, folder / f"{number:04d}{source.suffix}")
        write_whole(folder / f"{number:04d}.txt", training.asked.caption_of(picture).encode())


def _read_source(source: Path) -> np.ndarray:
    """Reads a picture, or of a clip some frames a second, as the operator's hook sees them."""
    if source.suffix != ".mp4":
        return np.asarray(open_picture(source))
    size = measure_video(source)
    count = max(1, int(size.frames / size.fps * HOOK_FPS))
    return np.stack([*read_frames(source, width=size.width, height=size.height, fps=HOOK_FPS, frames=count)])


def _install(bench: Bench, job: Job, training: Training, made: Sequence[Path]) -> dict[str, str]:
    """Puts the files among the studio's LoRAs under free names; returns the engine's name of each -> its ref."""
    refs = bench.desk.trainings.choose_refs(job, training, [file.stem for file in made])
    bench.desk.trainings.keep_loras(job, dict(zip(refs, made, strict=True)))
    return {file.stem: ref for file, ref in zip(made, refs, strict=True)}


def _finish(bench: Bench, job: Job, model: Model, watch: "_Watch", *, refs: dict[str, str], compiles: int) -> None:
    """Stores the last samples as outputs, with recipes that name the LoRA as it is listed, and the job's end."""
    last = watch.round_steps
    samples = training_files.list_samples(watch.folder, last)
    made = [_read_made(file, refs, step=last) for file in samples]
    for pixels, recipe in made:
        bench.ask_hook(job, recipe, lambda pixels=pixels: pixels)
    saved = files.save_each(
        bench.settings.outputs_dir, job.id, made, videos=samples, is_flushed=not bench.desk.sends_files
    )  # fmt: skip
    bench.desk.finish(
        job,
        Made(
            files=saved,
            made_at=time.time(),
            made_with=describe_training(bench.desk, bench.settings, model),
            timings={"total_s": round(watch.took_s, 2), "step_ms": round(1000 * (watch.times.step_s or 0.0), 3)},
            compiles=compiles,
            revision="",
            measured=watch.measure(is_done=True),
            notes=watch.notes,
        ),
    )


def _read_made(file: Path, refs: dict[str, str], *, step: int) -> tuple[np.ndarray, Recipe]:
    recipe = read_recipe_of(file)
    assert recipe is not None, "the sampler writes it"
    loras = [lora.ref.replace(f"-{step:06d}", "") for lora in recipe.loras]
    named = tuple(Lora(ref=refs.get(ref, ref)) for ref in loras)
    return training_files.read_pixels(file, recipe), recipe.model_copy(update={"loras": named})


def _estimate_s(history: History, job: Job, training: Training, model: Model) -> float | None:
    """Estimates what the whole training takes, with the pictures that the model makes first."""
    learning_s = lessons.estimate_training_s(history, model.id, steps=job.steps, programs=job.programs)
    prior_s = lessons.estimate_prior_s(history, lessons.describe_prior(training.asked, model))
    return None if learning_s is None or prior_s is None else learning_s + prior_s


class _Watch:
    """Hears the engine's events: progress, curve and samples go to the desk, wishes to end come back from it.

    Two experts learn one after the other, each from step 1 on: for people, the second goes on where the first ended.
    """

    def __init__(self, bench: Bench, job: Job, training: Training, model: Model) -> None:
        self.stop = Stop()
        self.round_steps = training.asked.choose_numbers(model).steps
        """The engine's steps for one expert."""
        self.folder = bench.settings.training_dir / job.id
        self.notes: list[Message] = []
        """What the engine changed or left out of the data."""
        self.is_pausing = False
        self.is_ending = False
        self.times = StepTimes()
        self._before = 0  # steps of the experts that have learnt
        self._bench = bench
        self._job = job
        self._training = training
        self._started_s = time.perf_counter()
        self._reported_s = -REPORT_S
        self._phase = ""
        self._done: int | None = None  # the last step of this attempt
        self._window: list[float] = []
        self._every = max(1, -(-job.steps // CURVE_POINTS))
        self._samples: Counter[int] = Counter()
        self._is_resumed = False
        self._prior: Progress | None = None  # while the model makes pictures of its own
        self._prior_began_s = 0.0
        self._prior_s = 0.0  # that these took
        self._sample_every = choose_sample_every(self.round_steps)
        history = bench.desk.read_history()
        self._known_step_s = history.step_s(job.recipe, job.programs)
        self._estimate_s = _estimate_s(history, job, training, model)

    @property
    def took_s(self) -> float:
        return time.perf_counter() - self._started_s

    def on_progress(self, progress: Progress) -> None:
        """Reports what the engine loads, compiles and draws."""
        self.times.hear_break(progress.phase)
        if progress.phase in SAMPLING and self._prior:
            self._report(self._prior)
            return
        phase = "sampling" if progress.phase in SAMPLING and self._done is not None else progress.phase
        is_of_samples = self._done is not None and phase != "compiling"
        detail = "" if is_of_samples else progress.detail  # it names files of this machine
        self._report(Progress(phase=phase, done=progress.done, total=progress.total, detail=detail))

    def on_event(self, event: dict[str, Any]) -> None:
        """Hears one event of the engine; those that nobody needs pass by."""
        desk = self._bench.desk.trainings
        if event["event"] != "step":
            self.times.hear_break(event["event"])
        match event["event"]:
            case "expert":
                self._before = int(event["number"]) * self.round_steps
            case "step":
                self._hear_step(event)
            case "sample":
                self._hear_sample(self._count(event), Path(event["file"]))
            case "saved":
                desk.note_saved(self._job, self._count(event))
            case "resumed":
                self._is_resumed = True
                if int(event["step"]) < self.round_steps:  # else what the next expert has learnt is kept
                    desk.go_back(self._job, self._count(event))
                self._report(Progress(phase="training", done=self._count(event), total=self._job.steps))
            case "preparing":
                self._report(Progress(phase="preparing", done=int(event["done"]), total=int(event["total"])))
            case "prior":
                self._hear_prior(Progress(phase="prior", done=int(event["done"]), total=int(event["total"])))
            case "note":
                self.notes.append(event["text"])
            case "compiling":
                self._report(Progress(phase="compiling", detail=str(event["shape"])))
            case _:
                log.info("training %s: %s", self._job.id, event)

    def measure(self, *, is_done: bool) -> Measured | None:
        """Returns what the training took, for the next one's estimate; None where it did not come to steps.

        Of one that ended before its end, or that an earlier attempt began, only what a step took.
        """
        step_s = self.times.step_s
        if step_s is None:
            return None
        steps = Measured(model=self._job.recipe.model, shape=self._job.programs, batch_size=1, step_s=step_s)
        if self._is_resumed or not is_done:
            return steps
        fixed_s = max(0.0, self.took_s - self._prior_s - self._job.steps * step_s)
        return replace(steps, fixed_s=fixed_s, estimated_s=self._estimate_s, took_s=self.took_s)

    def _count(self, event: dict[str, Any]) -> int:
        return self._before + int(event["step"])

    def _hear_prior(self, progress: Progress) -> None:
        if self._prior is None:
            self._prior_began_s = time.perf_counter()
        self._prior = progress
        self._report(progress)
        if progress.done == progress.total:
            self._prior_s += time.perf_counter() - self._prior_began_s
            self._prior = None

    def _hear_step(self, event: dict[str, Any]) -> None:
        done = self._count(event)
        self.times.hear_step(time.perf_counter())
        if self._is_resumed and done == self._before + 1:  # this expert had saved nothing
            self._bench.desk.trainings.go_back(self._job, self._before)
        self._done = done
        if event["loss"] is not None:  # as of a step that was skipped
            self._window.append(float(event["loss"]))
        if done % self._every == 0 or done - self._before == self.round_steps:
            if self._window:
                loss, rate = float(np.mean(self._window)), float(event["learning_rate"])
                self._bench.desk.trainings.add_point(self._job, step=done, loss=loss, learning_rate=rate)
            self._window.clear()
        self._report(Progress(phase="training", done=done, total=self._job.steps))

    def _hear_sample(self, step: int, file: Path) -> None:
        number = self._samples[step]
        self._samples[step] += 1
        recipe = read_recipe_of(file)
        assert recipe is not None, "the sampler writes it"
        pixels = training_files.read_pixels(file, recipe)
        width, height = training_files.show(self.folder, step, number, pixels, recipe)
        self._bench.desk.trainings.add_sample(
            self._job, step=step, number=number, prompt=recipe.prompt, width=width, height=height
        )
        self._bench.desk.save_preview(self._job, encode_preview(pixels[None]))

    def _report(self, progress: Progress) -> None:
        """Tells the progress, not too often, and asks whether to go on."""
        now_s = time.perf_counter()
        is_last = progress.phase == "training" and progress.done == progress.total
        if progress.phase == self._phase and now_s - self._reported_s < REPORT_S and not is_last:
            return
        self._phase, self._reported_s = progress.phase, now_s
        is_wanted = self._bench.desk.report(self._job, progress, eta_s=self._estimate_left_s())
        if not is_wanted:
            self._end("cancelled")
            if self._done is None:
                raise Cancelled
        elif self._bench.ending.is_set() and not self._is_ended:
            self.is_ending = True
            self._end("server stops")
        elif self._bench.desk.trainings.is_pause_wanted(self._job) and not self._is_ended:
            self.is_pausing = True
            self._end("pause")
            if self._done is None:
                raise _Paused

    @property
    def _is_ended(self) -> bool:
        return self.stop.is_asked

    def _end(self, reason: str) -> None:
        """Asks the engine to stop after its next step, with all of it saved."""
        self.stop.ask(reason)

    def _estimate_left_s(self) -> float | None:
        """Estimates the seconds until the end: from this attempt's steps, before these from earlier trainings."""
        learnt = self._training.saved_step if self._done is None else self._done
        steps = self._job.steps - learnt
        samples = self._count_samples(self._job.steps) - self._count_samples(learnt)
        left_s = self.times.estimate_left_s(steps=steps, samples=samples, now_s=time.perf_counter())
        if left_s is None and self._known_step_s is not None and self._estimate_s is not None:
            whole_s = self._estimate_s - self._training.saved_step * self._known_step_s
            left_s = max(steps * self._known_step_s, whole_s - self.took_s)
        return None if left_s is None else round(left_s, 1) or None

    def _count_samples(self, steps: int) -> int:
        """Returns how often samples are made in so many steps."""
        rounds, rest = divmod(steps, self.round_steps)
        return rounds * (self.round_steps // self._sample_every) + rest // self._sample_every
