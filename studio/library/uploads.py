"""Uploaded pictures and clips: fully decoded, stored without their metadata, named by the hash of their content.

Only the pixels of an uploaded file survive: it is stored as a newly written PNG, upright and in RGB. Equal pictures
share one file, each owner has a row of their own, and uploading a picture again gives the same id.
Not here: how the bytes arrive (api/routes/uploads.py), what a file's pixels are (pipelines/pictures/reading.py), how
clips are written anew (uploaded_clips.py), which pictures a recipe may name (inputs.py).
"""

import hashlib
import io
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from pipelines.errors import LumeshError
from pipelines.files.whole import write_whole
from pipelines.messages import NOTHING, Message, add_codes, say
from pipelines.pictures.reading import Picture, PictureError, PictureTooLargeError, read_picture
from studio.database import Database, Transaction
from studio.library.files import PNG_LEVEL, save_thumb

MAX_BYTES = 20_000_000
UNUSED_KEPT_S = 24 * 3600.0


class UploadError(LumeshError):
    """The file is no picture, or not a usable one."""

    title = say("This picture cannot be used")
    status = 422

    def __init__(self, detail: Message, *, advice: Message | None = None) -> None:
        super().__init__(detail, advice=advice or say("Choose another picture."))


class UploadTooLargeError(UploadError):
    """The picture has too many bytes or pixels."""

    title = say("This picture is too large")
    status = 413

    def __init__(self, detail: Message, *, advice: Message = NOTHING) -> None:
        most = say("At most {size} MB are taken; make it smaller.", size=MAX_BYTES // 1_000_000)
        super().__init__(detail, advice=advice or most)


class UploadQuotaError(UploadError):
    """The owner has too many uploads that no job uses yet."""

    title = say("Too many uploads are waiting")
    status = 429


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Limits on an owner's uploads that no job uses yet, so that nobody fills the disk with unused pictures."""

    pictures: int = 200
    bytes: int = 2_000_000_000  # of stored PNGs: a photo of 12 megapixels takes some 20 MB, one of 40 up to 100


UPLOAD_QUOTA = Quota()
TRAINER_QUOTA = Quota(pictures=700, bytes=10_000_000_000)
"""The quota of those who may train: all that a training takes, and some to draw from."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One picture or clip of one owner; its file is `<sha>.png` in the uploads folder, or `.mp4` of several `frames`.

    `notes` say what of the uploaded file is not in the picture, and are told once, when it is uploaded.
    """

    id: str
    owner: str
    sha: str
    width: int
    height: int
    bytes: int
    created_at: float
    frames: int = 1
    notes: tuple[Message, ...] = ()

    @property
    def file(self) -> str:
        return f"{self.sha}.png" if self.frames == 1 else f"{self.sha}.mp4"

    @property
    def thumb(self) -> str:
        return f"{self.sha}.thumb.webp"

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> "Upload":
        """Reads a full row of the table `uploads`."""
        return cls(**dict(row))

    def to_json(self) -> dict[str, Any]:
        """Returns the upload of the REST contract; a recipe names it by its `id`."""
        fields = {
            "id": self.id,
            "url": f"/api/v1/uploads/{self.id}",
            "thumb_url": f"/api/v1/uploads/{self.id}/thumb",
            "width": self.width,
            "height": self.height,
            "frames": self.frames,
            "notes": list(self.notes),
        }
        return add_codes(fields)


def add(database: Database, uploads_dir: Path, content: bytes, *, owner: str, quota: Quota = UPLOAD_QUOTA) -> Upload:
    """Checks and stores the picture in `content`; raises UploadError, and UploadQuotaError past the owner's quota."""
    read = decode(content)
    picture = read.image
    stored = io.BytesIO()
    picture.save(stored, "PNG", compress_level=PNG_LEVEL)
    png = stored.getvalue()
    new = Upload(
        id=f"upload-{secrets.token_hex(8)}",
        owner=owner,
        sha=hashlib.sha256(png).hexdigest(),
        width=picture.width,
        height=picture.height,
        bytes=len(png),
        created_at=time.time(),
        notes=read.notes,
    )
    return keep(database, uploads_dir, new, lambda file: write_whole(file, png), shown=picture, quota=quota)


def keep(
    database: Database,
    uploads_dir: Path,
    new: Upload,
    write: Callable[[Path], object],
    *,
    shown: Image.Image,
    quota: Quota,
) -> Upload:
    """Stores an upload, whose file `write` puts into its place; raises UploadQuotaError past the owner's quota.

    The quota is checked first, so that nothing of a refused picture is kept. The files are written before the row, so
    that no row is ever without them; and once more after it, should `forget_unused` have deleted them between: from
    then on the row protects them.
    """

    def write_missing() -> None:
        if not (uploads_dir / new.file).is_file():
            save_thumb(uploads_dir / new.thumb, shown)
            write(uploads_dir / new.file)

    with database.write() as tx:
        _check_quota(tx, quota, owner=new.owner, sha=new.sha, size=new.bytes)
    write_missing()
    with database.write() as tx:
        _check_quota(tx, quota, owner=new.owner, sha=new.sha, size=new.bytes)
        row = tx.execute(
            "INSERT INTO uploads (id, owner, sha, width, height, bytes, created_at, frames) "
            "VALUES (:id, :owner, :sha, :width, :height, :bytes, :created_at, :frames) "
            "ON CONFLICT (owner, sha) DO UPDATE SET created_at = excluded.created_at RETURNING *",
            {name: value for name, value in vars(new).items() if name != "notes"},
        ).fetchone()
    write_missing()
    return replace(Upload.from_row(row), notes=new.notes)


def check_room(database: Database, *, owner: str, quota: Quota) -> None:
    """Raises UploadQuotaError where the owner's quota is used up, so that nothing more is read and made for nothing."""
    with database.write() as tx:
        _check_quota(tx, quota, owner=owner, sha="", size=1)


def _check_quota(tx: Transaction, quota: Quota, *, owner: str, sha: str, size: int) -> None:
    """Checks the owner's quota; a picture that is uploaded again does not count twice."""
    pictures, kept_bytes, has_it = tx.execute(
        "SELECT count(*), coalesce(sum(bytes), 0), coalesce(max(sha = :sha), 0) FROM uploads "
        "WHERE owner = :owner AND (sha = :sha OR id NOT IN (SELECT image FROM job_images))",
        {"owner": owner, "sha": sha},
    ).fetchone()
    if has_it or (pictures < quota.pictures and kept_bytes + size <= quota.bytes):
        return
    raise UploadQuotaError(
        say(
            "Pictures and clips that no job has used yet: {pictures} ({size} MB); at most {limit} ({limitSize} MB) are "
            "kept.",
            pictures=pictures,
            size=f"{kept_bytes / 1e6:.0f}",
            limit=quota.pictures,
            limitSize=f"{quota.bytes / 1e6:.0f}",
        ),
        advice=say("Generate or train with them, or wait: those that stay unused are deleted after a day."),
    )


def decode(content: bytes, *, max_pixels: int | None = None) -> Picture:
    """Decodes the picture, upright and in sRGB, without metadata; raises UploadError."""
    if len(content) > MAX_BYTES:
        raise UploadTooLargeError(say("It has {size} MB.", size=f"{len(content) / 1e6:.1f}"))
    try:
        return read_picture(io.BytesIO(content), max_pixels=max_pixels)
    except PictureTooLargeError as error:
        raise UploadTooLargeError(error.detail, advice=error.advice) from error
    except PictureError as error:
        raise UploadError(error.detail, advice=error.advice) from error


def read_upload(database: Database, upload_id: str) -> Upload | None:
    """Reads an upload; None when the id is unknown."""
    row = database.read_one("SELECT * FROM uploads WHERE id = ?", (upload_id,))
    return Upload.from_row(row) if row else None


def forget_unused(database: Database, uploads_dir: Path, *, now_s: float) -> None:
    """Deletes pictures and clips that are more than a day old at `now_s` and that no job ever used."""
    with database.write() as tx:
        gone = tx.execute(
            "DELETE FROM uploads WHERE created_at < ? AND id NOT IN (SELECT image FROM job_images) RETURNING *",
            (now_s - UNUSED_KEPT_S,),
        ).fetchall()
        for upload in map(Upload.from_row, gone):
            if tx.execute("SELECT 1 FROM uploads WHERE sha = ?", (upload.sha,)).fetchone() is None:
                (uploads_dir / upload.file).unlink(missing_ok=True)
                (uploads_dir / upload.thumb).unlink(missing_ok=True)
