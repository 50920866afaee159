"""Previews are small, seldom, and never in the way."""

import io
import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from pipelines.stages import Progress
from studio.database import Database
from studio.jobs import claims, queue
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Job
from studio.settings import Settings
from studio.worker.local_desk import LocalDesk
from studio.worker.progress import PREVIEW_FRAMES, PREVIEW_SIDE_PX, JobProgress, encode_preview

# The aim is 2 ms a chunk; a shared test machine gets a margin for the noise of its neighbours.
REPORT_LIMIT_S = 0.004

OpenProgress = Callable[[], JobProgress]


@pytest.mark.parametrize(
    ("pixels_shape", "size"),
    [
        ((1, 64, 96, 3), (96, 64)),
        ((3, 64, 64, 3), (128, 128)),
        ((1, 1024, 1024, 3), (PREVIEW_SIDE_PX,) * 2),
        ((1, 17, 64, 96, 3), (PREVIEW_FRAMES * 96, 64)),
        ((2, 5, 16, 16, 3), (2 * PREVIEW_FRAMES * 16, 16)),
    ],
)
def test_a_batch_becomes_one_small_sheet(pixels_shape: tuple[int, ...], size: tuple[int, int]) -> None:
    jpeg = encode_preview(np.full(pixels_shape, 200, np.uint8))
    with Image.open(io.BytesIO(jpeg)) as picture:
        assert (picture.format, picture.size) == ("JPEG", size)


def test_a_video_shows_its_first_and_its_last_frame_side_by_side() -> None:
    frames = np.stack([np.full((16, 16, 3), shade, np.uint8) for shade in range(0, 250, 50)])
    with Image.open(io.BytesIO(encode_preview(frames[None]))) as picture:
        shades = np.asarray(picture)[8, 8::16, 0].astype(int)
    assert np.abs(shades - [0, 50, 150, 200]).max() <= 2


@pytest.fixture
def job(database: Database, submit: Callable[..., Job]) -> Job:
    submit(steps=100)
    return claims.claim_next(database, resident=None)


@pytest.fixture
def open_progress(database: Database, settings: Settings, job: Job) -> OpenProgress:
    def open_progress() -> JobProgress:
        desk = LocalDesk(database, settings)
        return JobProgress(desk, job, history=desk.read_history(), estimate_s=None)

    return open_progress


def draw() -> np.ndarray:
    return np.zeros((1, 64, 64, 3), np.uint8)


def test_previews_are_throttled(database: Database, open_progress: OpenProgress) -> None:
    drawn = []

    def draw_and_count() -> np.ndarray:
        drawn.append(1)
        return draw()

    with open_progress() as progress:
        for done in range(50):
            progress.report(Progress(phase="denoising", done=done, total=100, draw_preview=draw_and_count))
    assert 1 <= len(drawn) <= 3
    assert database.read("SELECT version FROM previews")[0]["version"] == len(drawn)


def test_a_preview_that_cannot_be_drawn_does_not_harm_the_job(
    database: Database, job: Job, open_progress: OpenProgress
) -> None:
    def fail() -> np.ndarray:
        raise RuntimeError("no preview")

    with open_progress() as progress:
        progress.report(Progress(phase="denoising", done=1, total=100, draw_preview=fail))
        progress.report(Progress(phase="denoising", done=2, total=100))
    assert queue.read_job(database, job.id).step == 2


def test_a_report_costs_the_devices_little(open_progress: OpenProgress) -> None:
    seconds = []
    with open_progress() as progress:
        for done in range(100):
            started = time.perf_counter()
            progress.report(Progress(phase="denoising", done=done, total=100, draw_preview=draw))
            seconds.append(time.perf_counter() - started)
    assert statistics.median(seconds) < REPORT_LIMIT_S


def test_the_time_left_follows_the_steps_of_this_job(database: Database, job: Job, open_progress: OpenProgress) -> None:
    with open_progress() as progress:
        progress.report(Progress(phase="loading"))
        assert queue.read_job(database, job.id).eta_s is None
        for done in range(2):
            progress.report(Progress(phase="denoising", done=done, total=100))
        assert queue.read_job(database, job.id).eta_s is not None
        progress.report(Progress(phase="saving", total=1))
        assert queue.read_job(database, job.id).eta_s == 0.0


def test_when_what_comes_before_the_steps_takes_longer_than_was_known_nothing_is_promised(
    database: Database, settings: Settings, job: Job
) -> None:
    history = History((Measured(model=job.recipe.model, shape=job.programs, batch_size=1, step_s=0.1, fixed_s=1.0),))
    desk, told = LocalDesk(database, settings), list[float | None]()
    for estimate_s in (31.0, 9.0):  # 100 steps take 10 s
        with JobProgress(desk, job, history=history, estimate_s=estimate_s) as progress:
            progress.report(Progress(phase="compiling", total=10))
            told.append(queue.read_job(database, job.id).eta_s)
    assert told[0] is not None
    assert 30.0 < told[0] <= 31.0
    assert told[1] is None
