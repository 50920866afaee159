"""The part of a worker's desk that only trainings use, and its implementation on the local database.

What is told while a training runs may be lost on a full disk or a busy database, like a step of any job; what its
end depends on is repeated until it is stored.
"""

import logging
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pipelines.errors import Cancelled
from pipelines.loras.files import SUFFIX
from studio.database import Database
from studio.jobs import trainings
from studio.jobs.job import Job
from studio.jobs.trainings import Training
from studio.library import inputs, training_files
from studio.settings import Settings
from studio.storage import passes
from studio.worker.insisting import insist

log = logging.getLogger(__name__)


class TrainingDesk(Protocol):
    """A worker's interface to the studio for jobs that train."""

    def read(self, job: Job) -> Training:
        """Reads what was asked."""
        ...

    def find_pictures(self, job: Job, training: Training) -> tuple[Path, ...]:
        """Returns the files of the pictures, in order; raises InputGoneError."""
        ...

    def is_pause_wanted(self, job: Job) -> bool:
        """Tells whether somebody asked for a pause."""
        ...

    def go_back(self, job: Job, step: int) -> None:
        """Forgets what came after a step, from which the training goes on."""
        ...

    def add_point(self, job: Job, *, step: int, loss: float, learning_rate: float) -> None:
        """Adds a point to the curve."""
        ...

    def add_sample(self, job: Job, *, step: int, number: int, prompt: str, width: int, height: int) -> None:
        """Adds a sample whose file is in its place."""
        ...

    def note_saved(self, job: Job, step: int) -> None:
        """Notes that the state after a step is on disk."""
        ...

    def choose_refs(self, job: Job, training: Training, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the refs under which the files of these names will be LoRAs; raises Cancelled for a lost claim.

        They are stored first, so that another attempt after a crash replaces these files and no others.
        """
        ...

    def keep_loras(self, job: Job, files: Mapping[str, Path]) -> None:
        """Puts the result among the studio's LoRAs: files by their refs."""
        ...

    def end_paused(self, job: Job) -> None:
        """Ends the turn of a paused training."""
        ...


class LocalTrainingDesk:
    """The TrainingDesk of a worker that shares the database with the app."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    def read(self, job: Job) -> Training:
        training = trainings.read_training(self._database, job.id)
        assert training is not None, "it was stored with its job"
        return training

    def find_pictures(self, job: Job, training: Training) -> tuple[Path, ...]:
        ids = [picture.id for picture in training.asked.pictures]
        return inputs.find_files(self._database, self._settings, ids, owner=job.owner, view="lessons")

    def is_pause_wanted(self, job: Job) -> bool:
        return trainings.is_pause_wanted(self._database, job)

    def go_back(self, job: Job, step: int) -> None:
        insist(lambda: trainings.go_back(self._database, job, step))

    def add_point(self, job: Job, *, step: int, loss: float, learning_rate: float) -> None:
        _try(lambda: trainings.add_point(self._database, job, step=step, loss=loss, learning_rate=learning_rate))

    def add_sample(self, job: Job, *, step: int, number: int, prompt: str, width: int, height: int) -> None:
        size = {"width": width, "height": height}
        _try(lambda: trainings.add_sample(self._database, job, step=step, number=number, prompt=prompt, **size))

    def note_saved(self, job: Job, step: int) -> None:
        _try(lambda: trainings.note_saved(self._database, job, step))

    def choose_refs(self, job: Job, training: Training, names: Sequence[str]) -> tuple[str, ...]:
        refs = training.loras or tuple(training_files.find_free_refs(self._settings.loras_dir, names))
        if not insist(lambda: trainings.name_loras(self._database, job, refs)):
            raise Cancelled
        return refs

    def keep_loras(self, job: Job, files: Mapping[str, Path]) -> None:
        self._settings.loras_dir.mkdir(parents=True, exist_ok=True)
        for ref, file in files.items():
            part = self._settings.loras_dir / f".{job.id}.part"
            shutil.copyfile(file, part)
            part.replace(self._settings.loras_dir / f"{ref}{SUFFIX}")

    def end_paused(self, job: Job) -> None:
        insist(lambda: trainings.end_paused(self._database, job))


def _try(work: Callable[[], None]) -> None:
    """Does what may be lost when the database takes nothing now."""
    try:
        work()
    except sqlite3.Error as error:
        if not passes(error):
            raise
        log.warning("a training goes on without telling all of it: %s", error)
