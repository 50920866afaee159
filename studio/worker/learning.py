"""How a worker trains: with JAX in this process, or pretended with `--fake`.

Not here: which job trains what (runners/train.py), the training itself (pipelines/training).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.models.model import Model
from pipelines.stages import OnProgress
from pipelines.training import pretended
from pipelines.training.settings import TrainingSettings
from pipelines.training.stop import Stop
from studio.settings import Settings

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One training to run in the folder `output`, from which it goes on if it was there before."""

    settings: TrainingSettings
    model: Model
    name: str
    output: Path
    stop: Stop
    on_event: OnEvent
    on_progress: OnProgress


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What came of it: LoRA files, none when it was stopped before its end."""

    files: tuple[Path, ...]
    compiles: int = 0


Learn = Callable[[Lesson], Learnt]


def learn_with_jax(settings: Settings) -> Learn:
    """Returns what trains on this machine's devices."""

    def learn(lesson: Lesson) -> Learnt:
        from pipelines import registry  # here, not above: these import jax and torch
        from pipelines.training.checks import check_training
        from pipelines.training.place import Place
        from pipelines.training.run import train

        checked = check_training(lesson.settings, lesson.model, registry.find_learner(lesson.model), name=lesson.name)
        for note in checked.notes:
            lesson.on_event({"event": "note", "text": note})
        place = Place(
            output=lesson.output,
            cache=settings.training_cache_dir,
            cache_dir=settings.cache_dir,
            allow_cpu=settings.allow_cpu,
            packs=settings.pack_paths,
            is_common=False,
        )
        result = train(
            lesson.settings,
            checked,
            place,
            stop=lesson.stop,
            on_event=lesson.on_event,
            on_progress=lesson.on_progress,
        )
        return Learnt(files=result.files, compiles=result.compiles)

    return learn


def pretend_to_learn(lesson: Lesson, *, step_s: float = pretended.STEP_S) -> Learnt:
    """Pretends a training, as `--fake` does."""
    files = pretended.train(
        lesson.settings,
        lesson.model,
        name=lesson.name,
        output=lesson.output,
        stop=lesson.stop,
        on_event=lesson.on_event,
        step_s=step_s,
    )
    return Learnt(files=files)
