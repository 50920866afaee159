"""Output files: named here, from a job's id, never by a client; each is written whole or not at all.

Not here: how a file becomes whole (pipelines/files/whole.py), which rows name it (records.py).
"""

import io
import time
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from pipelines.files.metadata import make_png_chunks
from pipelines.files.video import copy_mp4, write_mp4
from pipelines.files.whole import PART, put_whole, write_whole
from pipelines.recipes.recipe import Recipe

THUMB_SIDE_PX = 384
# Encoding a gallery picture enlarged to 1024x1024 takes 0.05 s; 0.12 s without Z_RLE, and 0.19 s at PIL's default level
# of 6. No file gets larger than with those: PNG's filters leave hardly any repetitions.
PNG_LEVEL = 4
PNG_STRATEGY = zlib.Z_RLE
THUMB_SUFFIX, POSTER_SUFFIX = ".thumb.webp", ".poster.webp"
VIDEO_NDIM = 5  # batch, frames, height, width, colours


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """A saved output; `file` and `thumb` are relative to the outputs folder, `kind` is image or video."""

    kind: str
    file: str
    thumb: str
    width: int
    height: int
    frames: int
    recipe: Recipe


def save_outputs(
    outputs_dir: Path, job_id: str, pixels: np.ndarray, recipe: Recipe, *, is_flushed: bool = True
) -> list[SavedFile]:
    """Saves uint8 pixels as `YYYY-MM-DD/<job>-<n>.png` or `.mp4`, each with the recipe of that one output.

    Pictures are (B, height, width, 3), videos (B, F, height, width, 3). Output n of a batch was drawn from seed + n, so
    its own recipe has that seed and a batch of one. All are saved or none, as on a disk that fills up. Without
    `is_flushed` they may be gone after a power cut.
    """
    made = [(one, recipe.of_picture(number)) for number, one in enumerate(pixels)]
    return save_each(outputs_dir, job_id, made, is_flushed=is_flushed)


def save_each(
    outputs_dir: Path,
    job_id: str,
    made: Iterable[tuple[np.ndarray, Recipe]],
    *,
    videos: Sequence[Path] = (),
    is_flushed: bool = True,
) -> list[SavedFile]:
    """Saves pictures or videos as `save_outputs` does, each with a recipe of its own.

    `videos` are the files that these were read from, if any: a video is copied, since it loses when encoded again.
    """
    day = time.strftime("%Y-%m-%d")
    saved: list[SavedFile] = []
    name = ""
    try:
        for number, (one, recipe) in enumerate(made):
            name = f"{day}/{job_id}-{number}"
            if one.ndim == VIDEO_NDIM - 1:
                video = videos[number] if videos else None
                saved.append(_save_video(outputs_dir, name, one, recipe, video=video, is_flushed=is_flushed))
            else:
                saved.append(_save_picture(outputs_dir, name, one, recipe, is_flushed=is_flushed))
    except BaseException:
        discard(outputs_dir, saved)
        for suffix in (".png", ".mp4", POSTER_SUFFIX, THUMB_SUFFIX):
            (outputs_dir / f"{name}{suffix}").unlink(missing_ok=True)
        raise
    return saved


def discard(outputs_dir: Path, saved: Iterable[SavedFile]) -> None:
    """Deletes saved files that no row refers to yet."""
    for one in saved:
        for name in (one.file, one.thumb, poster_of(one.file)):
            (outputs_dir / name).unlink(missing_ok=True)


def forget_torn(outputs_dir: Path, *, writing: Collection[str] = ()) -> None:
    """Deletes partial files of a killed worker, but none of the jobs that other workers are `writing` now."""
    for part in outputs_dir.glob(f"*/.*{PART}.*"):
        if part.name[1:].partition("-")[0] not in writing:
            part.unlink(missing_ok=True)


def save_thumb(file: Path, picture: Image.Image, *, is_flushed: bool = True) -> None:
    """Saves a small WebP of the picture."""
    small = picture.copy()
    small.thumbnail((THUMB_SIDE_PX, THUMB_SIDE_PX))
    _save_webp(file, small, is_flushed=is_flushed)


def _save_picture(
    outputs_dir: Path, name: str, pixels_HWC: np.ndarray, recipe: Recipe, *, is_flushed: bool
) -> SavedFile:
    file, picture = f"{name}.png", Image.fromarray(pixels_HWC)
    png = io.BytesIO()
    picture.save(png, "PNG", pnginfo=make_png_chunks(recipe), compress_level=PNG_LEVEL, compress_type=PNG_STRATEGY)
    write_whole(outputs_dir / file, png.getvalue(), is_flushed=is_flushed)
    thumb = f"{name}{THUMB_SUFFIX}"
    save_thumb(outputs_dir / thumb, picture, is_flushed=is_flushed)
    return SavedFile(
        kind="image", file=file, thumb=thumb, width=picture.width, height=picture.height, frames=1, recipe=recipe
    )


def _save_video(
    outputs_dir: Path, name: str, frames_FHWC: np.ndarray, recipe: Recipe, *, video: Path | None, is_flushed: bool
) -> SavedFile:
    """Saves the MP4, or a copy of `video`, and its middle frame as poster (full size) and as thumbnail."""
    file, count = f"{name}.mp4", len(frames_FHWC)

    def write(part: Path) -> None:
        if video is None:
            write_mp4(part, frames_FHWC, recipe)
        else:
            copy_mp4(video, part, recipe)

    put_whole(outputs_dir / file, write, is_flushed=is_flushed)
    middle = Image.fromarray(frames_FHWC[count // 2])
    _save_webp(outputs_dir / poster_of(file), middle, is_flushed=is_flushed)
    thumb = f"{name}{THUMB_SUFFIX}"
    save_thumb(outputs_dir / thumb, middle, is_flushed=is_flushed)
    return SavedFile(
        kind="video", file=file, thumb=thumb, width=middle.width, height=middle.height, frames=count, recipe=recipe
    )


def poster_of(file: str) -> str:
    """Returns the path of a video's poster, in the same folder."""
    return str(PurePosixPath(file).with_suffix(POSTER_SUFFIX))


def _save_webp(file: Path, picture: Image.Image, *, is_flushed: bool) -> None:
    webp = io.BytesIO()
    picture.save(webp, "WEBP", quality=82)
    write_whole(file, webp.getvalue(), is_flushed=is_flushed)
