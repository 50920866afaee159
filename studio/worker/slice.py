"""A slice of several hosts as one worker: the first host has the desk and leads, the others do what it does.

What the leader's loop asks of a model (find, load, warm, generate, learn, unload) is written into the hosts' common log
before it begins; the others read it there and do it on their own devices. What happens within, chunk by chunk, is
agreed by pipelines/runtime/devices. A person's wish to end is heard between chunks alone, or between a training's
steps, where all hosts stop together; while a model loads or compiles it waits.

Every command ends on all hosts before the next one, and in the same way: hosts of which one failed alone, or hangs,
have come apart. They end, and whoever started them starts all of them again.
"""

import contextlib
import dataclasses
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from pipelines.errors import Cancelled, LumeshError, ModelError
from pipelines.generate import generate_together
from pipelines.messages import english
from pipelines.models.catalog import Catalog, Model, Shape
from pipelines.pictures.references import References
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.devices import hosts
from pipelines.stages import Embeddings, Family, OnProgress, Outcome, Progress, ignore_progress
from pipelines.training.settings import TrainingSettings
from pipelines.training.stop import Stop
from studio.library import training_files, training_packs, training_starts
from studio.worker.learning import Learnt, Lesson
from studio.worker.opening import Devices
from studio.worker.progress import PREVIEW_INTERVAL_S
from studio.worker.runners.generate import PROMPT

NEXT = "what comes next"
WORK = "a training's pictures, state and LoRA to learn on from"
SHOWN_ONLY = (training_files.SHOWN,)
STUCK_S = 60.0
"""How long a host that failed waits for the others to fail, too, before all of them count as apart."""

T = TypeVar("T")
Encode = Callable[[int, Recipe], Embeddings | None]

log = logging.getLogger(__name__)


def lead(opened: Devices, data_dir: Path) -> Devices:
    """Returns this host's devices so that whatever is done with them is done on all hosts."""
    leader = _Leader(opened, data_dir)
    return dataclasses.replace(opened, find=leader.find, load=leader.load, generate=leader.generate, learn=leader.learn)


def follow(opened: Devices, data_dir: Path, read_catalog: Callable[[], Catalog]) -> NoReturn:
    """Does what the leader does, until the process ends."""
    follower = _Follower(opened, data_dir, read_catalog)
    while True:
        command = hosts.agree(NEXT, None)
        log.info("%s", command["do"])
        with contextlib.suppress(Cancelled, LumeshError):  # the leader tells it
            getattr(follower, command.pop("do"))(**command)


class _Leader:
    def __init__(self, opened: Devices, data_dir: Path) -> None:
        self._opened = opened
        self._data_dir = data_dir

    def find(self, model: Model, on_progress: OnProgress) -> None:
        """Finds a model's files on every host; raises ModelError where one cannot."""
        _command("find", model=model.id, is_start=False)
        _find_on_all(lambda: self._opened.find(model, _Patient(on_progress)))

    def learn(self, lesson: Lesson) -> Learnt:
        """Trains on all hosts, each in a copy of the lesson's folder.

        All see the same pictures, state, settings and LoRA to learn on from, and what is learnt is written on each: the
        first one's is kept.
        """
        self.find(lesson.model, lesson.on_progress)
        _command("find", model=lesson.model.id, is_start=True)
        _find_on_all(lambda: self._opened.find(lesson.model.choose_start(), _Patient(lesson.on_progress)))
        own = {"data", "output"}
        _command(
            "learn",
            model=lesson.model.id,
            name=lesson.name,
            folder=str(lesson.output.relative_to(self._data_dir)),
            settings=lesson.settings.model_dump(mode="json", exclude=own),
        )
        hosts.share(WORK, training_packs.pack(lesson.output, leaves_out=SHOWN_ONLY) or b"")
        patient = dataclasses.replace(
            lesson, on_event=_suppress(lesson, lesson.on_event), on_progress=_suppress(lesson, lesson.on_progress)
        )
        return _together(lambda: self._opened.learn(patient))

    def load(self, model: Model, on_progress: OnProgress) -> Family:
        self.find(model, on_progress)
        _command("load", model=model.id)
        inner = _together(lambda: self._opened.load(model, _Patient(on_progress)))
        _compare(inner)
        return cast("Family", _LedFamily(inner))

    def generate(
        self,
        family: Family,
        recipes: Sequence[Recipe],
        *,
        on_progress: OnProgress,
        encode: Encode | None = None,
    ) -> Outcome:
        inner = cast("_LedFamily", family).inner
        told = [_write(recipe, self._data_dir) for recipe in recipes]
        _command("generate", model=inner.model.id, recipes=told)
        assert encode is not None, "the worker reads prompts job by job"
        return _together(lambda: generate_together(inner, recipes, on_progress=_Patient(on_progress), encode=encode))


class _LedFamily:
    """A Family whose programs are warmed, and whose memory is freed, on all hosts."""

    def __init__(self, inner: Family) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def model(self) -> Model:
        return self.inner.model

    @model.setter
    def model(self, model: Model) -> None:
        self.inner.model = model

    def warm(
        self, shape: Shape, *, references: References | None = None, on_progress: OnProgress, **options: Any
    ) -> float:
        told = None if references is None else [references.count, str(references.size)]
        _command("warm", shape=str(shape), references=told, **options)
        return _together(
            lambda: self.inner.warm(shape, references=references, on_progress=_Patient(on_progress), **options)
        )

    def unload(self) -> None:
        _command("unload")
        _together(self.inner.unload)


class _Follower:
    """What the leader's commands do here."""

    def __init__(self, opened: Devices, data_dir: Path, read_catalog: Callable[[], Catalog]) -> None:
        self._opened = opened
        self._data_dir = data_dir
        self._read_catalog = read_catalog
        self._family: Family | None = None

    def find(self, model: str, *, is_start: bool) -> None:
        def find() -> None:
            found = self._read_catalog().get(model)
            self._opened.find(found.choose_start() if is_start else found, ignore_progress)

        _find_on_all(find)

    def learn(self, model: str, name: str, folder: str, settings: dict[str, Any]) -> None:
        output = self._data_dir / folder
        packed = hosts.share(WORK, b"")
        try:
            training_packs.unpack(packed, output, leaves_out=SHOWN_ONLY)
            lesson = Lesson(
                settings=TrainingSettings(**settings, data=(str(output / training_files.DATA),), output=output),
                model=training_starts.with_start(self._read_catalog().get(model), output),
                name=name,
                output=output,
                stop=Stop(),
                on_event=lambda _event: None,
                on_progress=ignore_progress,
            )
            _together(lambda: self._opened.learn(lesson))
        finally:
            shutil.rmtree(output, ignore_errors=True)

    def load(self, model: str) -> None:
        self._family = _together(lambda: self._opened.load(self._read_catalog().get(model), ignore_progress))
        _compare(self._family)

    def warm(self, shape: str, references: tuple[int, str] | None, **options: Any) -> None:
        found = references and References(count=references[0], size=Shape.parse(references[1]))
        _together(lambda: self._held.warm(Shape.parse(shape), references=found, on_progress=ignore_progress, **options))

    def generate(self, model: str, recipes: list[dict[str, Any]]) -> None:
        family = self._held
        family.model = self._read_catalog().get(model)

        def encode(_number: int, recipe: Recipe) -> Embeddings | None:
            if not hosts.agree(PROMPT, None):
                return None
            try:
                return family.encode(recipe)
            except LumeshError:  # as on the first host, which tells whose prompt it is
                return None

        read = [_read(recipe, self._data_dir) for recipe in recipes]
        _together(lambda: generate_together(family, read, on_progress=ignore_progress, encode=encode))

    def unload(self) -> None:
        _together(self._held.unload)
        self._family = None

    @property
    def _held(self) -> Family:
        assert self._family is not None, "the leader loads first"
        return self._family


class _Patient:
    """An OnProgress of the leader, to whom a wish to end comes between chunks alone, and previews are drawn at once."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._drawn_s = -PREVIEW_INTERVAL_S

    def __call__(self, progress: Progress) -> None:
        draw = progress.draw_preview
        if draw is None:
            with contextlib.suppress(Cancelled):  # it is raised again behind the next chunk
                self._on_progress(progress)
            return
        now_s = time.perf_counter()
        if now_s - self._drawn_s >= PREVIEW_INTERVAL_S:
            self._drawn_s, pixels = now_s, draw()  # a program of all hosts: not in a thread, and not later
            self._on_progress(dataclasses.replace(progress, draw_preview=lambda: pixels))
        else:
            self._on_progress(dataclasses.replace(progress, draw_preview=None))


def _suppress(lesson: Lesson, hear: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns what hears of a lesson that is to stop, and leaves it at that: all hosts stop where they agree on it."""

    def patient(told: Any) -> None:
        try:
            hear(told)
        except Exception:
            if not lesson.stop.is_asked:
                raise

    return patient


def _command(name: str, /, **fields: Any) -> None:
    hosts.agree(NEXT, {"do": name, **fields})


def _find_on_all(find: Callable[[], object]) -> None:
    """Raises ModelError on all hosts where one cannot have a model's files."""
    problem = None
    try:
        find()
    except LumeshError as error:
        problem = str(error)
    for number, found in enumerate(hosts.collect("a model's files", problem)):
        if found is not None:
            raise ModelError(
                english(f"Host {number} of this slice: {found}"),
                advice=english("Every host of a slice needs the model."),
            )


def _together(work: Callable[[], T]) -> T:
    """Returns or raises what `work` does; ends this process if it ended otherwise on another host."""
    error: Exception | None = None
    result: T | None = None
    how = "done"
    with _limit() as limit:
        try:
            result = work()
        except Cancelled as cancelled:
            error, how = cancelled, "cancelled"
        except Exception as failed:
            log.exception("a host of the slice failed")
            error, how = failed, f"failed: {type(failed).__name__}"
            limit()
        ends = hosts.collect("how it ended", how)
    if len(set(ends)) > 1:
        hosts.give_up(f"the hosts have come apart: {', '.join(ends)}")
    if error is not None:
        raise error
    return cast("T", result)


@contextlib.contextmanager
def _limit() -> Iterator[Callable[[], None]]:
    """Ends the process if the block takes longer than STUCK_S from the call on: the others wait for this host."""
    timer = threading.Timer(STUCK_S, hosts.give_up, args=("the other hosts did not fail as this one did",))
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def _compare(family: Family) -> None:
    hosts.compare({"weights": family.revision, "mesh": family.mesh})


def _write(recipe: Recipe, data_dir: Path) -> dict[str, Any]:
    """Returns a recipe as JSON whose pictures are named as on any host, from the data directory on."""
    images = tuple(
        str(Path(image).relative_to(data_dir)) if Path(image).is_absolute() else image for image in recipe.images
    )
    return recipe.model_copy(update={"images": images}).model_dump(mode="json", by_alias=True)


def _read(fields: dict[str, Any], data_dir: Path) -> Recipe:
    recipe = Recipe.model_validate(fields)
    return recipe.model_copy(update={"images": tuple(str(data_dir / image) for image in recipe.images)})
