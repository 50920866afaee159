"""Clips that people bring along to learn from: written anew as MP4s that every browser plays, their frames alone.

Phones write into their videos where they were filmed; that is not kept. What no training learns is not kept.
Not here: how the bytes arrive (api/routes/clips.py), rows, quotas and files of uploads (uploads.py).
"""

import hashlib
import secrets
import shutil
import threading
import time
from collections import deque
from pathlib import Path

from PIL import Image

from pipelines.files.foreign_video import (
    ForeignVideoError,
    VideoInterruptedError,
    measure_video,
    read_frames,
    write_plain,
)
from pipelines.files.whole import put_whole
from pipelines.messages import NOTHING, Message, say
from studio.database import Database
from studio.library.uploads import TRAINER_QUOTA, Quota, Upload, UploadError, check_room, keep

MAX_BYTES = 300_000_000  # of a clip: a minute of 4K, as phones film it
KEPT_S = 15.0  # the longest that a model here learns is 5 s
MEASURED_MORE_S = 1.0  # than is kept: of more it is enough to know how long it is
KEPT_SIDE_PX = 1920


class ClipError(UploadError):
    """The file is no video, or not a usable one."""

    title = say("This video cannot be used")

    def __init__(self, detail: Message, *, advice: Message | None = None) -> None:
        super().__init__(detail, advice=advice or say("Choose another video."))


class ClipTooLargeError(ClipError):
    """The clip has too many bytes."""

    title = say("This video is too large")
    status = 413

    def __init__(self, detail: Message, *, advice: Message = NOTHING) -> None:
        most = say("At most {size} MB are taken; cut it to what matters.", size=MAX_BYTES // 1_000_000)
        super().__init__(detail, advice=advice or most)


class ClipInterruptedError(ClipError):
    """Reading the clip was ended from outside, which says nothing of it."""

    title = VideoInterruptedError.title
    status = 503


def add(
    database: Database,
    uploads_dir: Path,
    file: Path,
    *,
    owner: str,
    quota: Quota = TRAINER_QUOTA,
    given_up: threading.Event | None = None,
) -> Upload:
    """Checks a clip, writes it anew and stores that; raises ClipError, and UploadQuotaError past the owner's quota.

    Raises OSError where the disk is full. Reading and writing end soon once the clip is `given_up`.
    """
    check_room(database, owner=owner, quota=quota)
    plain = file.with_name(f"{file.stem}.plain.part")
    try:
        whole = measure_video(file, most_seconds=KEPT_S + MEASURED_MORE_S, given_up=given_up)
        write_plain(file, plain, most_seconds=KEPT_S, most_side=KEPT_SIDE_PX, given_up=given_up)
        size = measure_video(plain, given_up=given_up)
        if size.frames == 1:
            raise ClipError(say("It has a single frame."), advice=say("Save it as a picture, and add that."))
        beginning = read_frames(
            plain, width=size.width, height=size.height, fps=size.fps, frames=size.frames // 2 + 1
        )  # fmt: skip
        middle = deque(beginning, maxlen=1).pop()
        with plain.open("rb") as content:
            sha = hashlib.file_digest(content, "sha256").hexdigest()
        new = Upload(
            id=f"upload-{secrets.token_hex(8)}",
            owner=owner,
            sha=sha,
            width=size.width,
            height=size.height,
            bytes=plain.stat().st_size,
            created_at=time.time(),
            frames=size.frames,
            notes=(*whole.notes, *_note_cut(whole.frames / whole.fps)),
        )
        shown = Image.fromarray(middle)
        if given_up is not None and given_up.is_set():
            raise VideoInterruptedError
        return keep(database, uploads_dir, new, lambda to: _copy(plain, to), shown=shown, quota=quota)
    except ForeignVideoError as error:
        raise ClipError(error.detail, advice=error.advice or None) from error
    except VideoInterruptedError as error:
        raise ClipInterruptedError(error.detail, advice=error.advice) from error
    finally:
        plain.unlink(missing_ok=True)


def _copy(file: Path, to: Path) -> None:
    put_whole(to, lambda part: shutil.copyfile(file, part))


def _note_cut(seconds: float) -> tuple[Message, ...]:
    """Returns that a clip is cut; `seconds` are what was measured of one whose length is not known."""
    kept = f"{KEPT_S:g}"
    if seconds < KEPT_S + 0.5:
        return ()
    if seconds < KEPT_S + MEASURED_MORE_S + 0.5:
        return (say("Its first {kept} s are kept.", kept=kept),)
    return (say("Of its {seconds} s the first {kept} are kept.", seconds=f"{seconds:.0f}", kept=kept),)
