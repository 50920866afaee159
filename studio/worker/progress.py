"""Reports a running job's steps: each becomes an event, perhaps a preview, and a check whether the job was cancelled.

`JobProgress.report` is the OnProgress of a running job, called between chunks. The devices may wait for it, so it makes
one short transaction and leaves drawing and encoding previews to a thread.
"""

import io
import logging
import math
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from PIL import Image

from pipelines.errors import Cancelled
from pipelines.stages import Progress
from studio.jobs.costs.estimates import History
from studio.jobs.job import Job
from studio.library.files import VIDEO_NDIM
from studio.worker.desk import Desk

PREVIEW_INTERVAL_S = 0.5
PREVIEW_SIDE_PX = 256  # longest side of one picture; the page scales up
PREVIEW_QUALITY = 80
PREVIEW_FRAMES = 4  # frames of a video; static/js/canvas/canvas.js relies on it
# A phase that counts bytes or files may report thousands of times; people read ten updates a second at most.
SAME_PHASE_INTERVAL_S = 0.1

log = logging.getLogger(__name__)


class JobProgress:
    """Follows one job from claim to end. Leaving it as a context manager finishes its last preview."""

    def __init__(self, desk: Desk, job: Job, *, history: History, estimate_s: float | None) -> None:
        self._desk = desk
        self._job = job
        self._step_s = history.step_s(job.recipe, job.programs)
        self._fixed_s = history.fixed_s(job.recipe, job.programs) or 0.0
        self._estimate_s = estimate_s or 0.0
        self._started_s = time.perf_counter()
        self._phase = ""
        self._reported_s = -math.inf
        self._first_step = (0.0, 0)
        self._previewed_s = -math.inf
        self._preview: Future[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="preview")

    def __enter__(self) -> "JobProgress":
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    @property
    def took_s(self) -> float:
        """The seconds since the job was claimed."""
        return time.perf_counter() - self._started_s

    def report(self, progress: Progress) -> None:
        """Stores the progress and perhaps a preview; raises Cancelled when the job must end."""
        now_s = time.perf_counter()
        is_step = progress.phase == "denoising"
        is_same = progress.phase == self._phase and not is_step
        if is_same and now_s - self._reported_s < SAME_PHASE_INTERVAL_S and progress.done < progress.total:
            return
        if is_step and progress.phase != self._phase:
            self._first_step = (now_s, progress.done)
        self._phase, self._reported_s = progress.phase, now_s
        if not self._desk.report(self._job, progress, eta_s=self._estimate_left_s(progress, now_s)):
            raise Cancelled
        if progress.draw_preview and now_s - self._previewed_s >= PREVIEW_INTERVAL_S and self._is_preview_free():
            self._previewed_s = now_s
            self._preview = self._thread.submit(self._show_preview, progress)

    def _estimate_left_s(self, progress: Progress, now_s: float) -> float | None:
        """Estimates the time left: from this job's own steps once there are some, before that from the history.

        None when nothing is known, or when what comes before the steps has taken longer than was known of it.
        """
        first_s, first_done = self._first_step
        if progress.phase == "denoising" and (computed := self._count_computed(first_done, progress.done)):
            self._step_s = (now_s - first_s) / computed
        if progress.phase in ("decoding", "saving"):
            return round(self._fixed_s, 2)
        if self._step_s is None:
            return None
        if progress.phase == "denoising":
            left = self._count_computed(progress.done, progress.total)
            return round(left * self._step_s + self._fixed_s, 2)
        left_s = self._estimate_s - (now_s - self._started_s)
        steps = self._count_computed(0, self._job.steps)
        return round(left_s, 2) if left_s > steps * self._step_s else None

    def _count_computed(self, start: int, stop: int) -> int:
        """Counts the runs of the denoiser in these steps, which take time: a step cache spares some of them."""
        recipe = self._job.recipe
        return recipe.rows_per_step * (stop - start) - sum(start <= step < stop for step in recipe.reused_steps)

    def _is_preview_free(self) -> bool:
        return self._preview is None or self._preview.done()

    def _show_preview(self, progress: Progress) -> None:
        assert progress.draw_preview is not None
        try:
            self._desk.save_preview(self._job, encode_preview(progress.draw_preview()))
        except Exception:
            log.exception("preview of job %s", self._job.id)


def encode_preview(pixels: np.ndarray) -> bytes:
    """Encodes uint8 pictures (B, height, width, 3) as one JPEG; a batch becomes a contact sheet, row by row.

    A video (B, F, height, width, 3) is shown as PREVIEW_FRAMES frames side by side; the page plays them.
    """
    frames = 1
    if pixels.ndim == VIDEO_NDIM:
        frames = PREVIEW_FRAMES
        chosen = pixels[:, np.linspace(0, pixels.shape[1] - 1, frames).round().astype(int)]
        pixels = np.concatenate(list(chosen.swapaxes(0, 1)), axis=2)
    count, height, width, _ = pixels.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = Image.new("RGB", (columns * width, rows * height))
    for number, picture in enumerate(pixels):
        row, column = divmod(number, columns)
        sheet.paste(Image.fromarray(picture), (column * width, row * height))
    sheet.thumbnail((columns * frames * PREVIEW_SIDE_PX, rows * PREVIEW_SIDE_PX))
    jpeg = io.BytesIO()
    sheet.save(jpeg, "JPEG", quality=PREVIEW_QUALITY)
    return jpeg.getvalue()
