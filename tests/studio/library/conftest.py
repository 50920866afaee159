"""Outputs without waiting for a worker: rows as the worker writes them, with files when a test is about files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studio.database import Database
from studio.jobs.job import Job
from studio.library import records
from studio.library.files import SavedFile, save_outputs
from studio.settings import Settings


@pytest.fixture
def add_output(settings: Settings, database: Database, submit: Callable[..., Job]) -> Callable[..., records.Output]:
    """Adds one output of a job of its own."""

    def add(
        prompt: str = "A red sailboat",
        *,
        owner: str = "local",
        created_at: float = 0.0,
        has_files: bool = False,
        **fields: Any,
    ) -> records.Output:
        job = submit(prompt, owner=owner, **fields)
        frames = job.recipe.parsed_shape.frames
        saved = SavedFile(
            kind="video" if frames > 1 else "image",
            file=f"{job.id}.png",
            thumb=f"{job.id}.webp",
            width=8,
            height=8,
            frames=frames,
            recipe=job.recipe,
        )
        if has_files:
            saved = _save_black(settings.outputs_dir, job)
        with database.write() as tx:
            return records.add(tx, saved, job_id=job.id, owner=owner, number=0, created_at=created_at, made_with={})

    return add


def _save_black(outputs_dir: Path, job: Job) -> SavedFile:
    shape = job.recipe.parsed_shape
    size = (shape.frames, 64, 96, 3) if shape.frames > 1 else (64, 96, 3)
    return save_outputs(outputs_dir, job.id, np.zeros((1, *size), np.uint8), job.recipe)[0]
