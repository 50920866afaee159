"""Writes frames to files that play everywhere, and reads them: MP4, or GIF and WebP for places that take no video.

MP4 is H.264 in yuv420p with the index in front (`faststart`), so that a browser plays while it loads. The recipe is in
the `comment` tag of an MP4, the comment of a GIF, the EXIF user comment of a WebP. ffmpeg comes with imageio-ffmpeg.
Needs neither jax nor torch. Not here: videos that people bring (foreign_video.py).
"""

import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from PIL import ExifTags, Image

from pipelines.errors import LumeshError
from pipelines.messages import Message, english, say
from pipelines.recipes.recipe import Recipe

COLOURS = "colorspace=bt709:color_primaries=bt709:color_trc=bt709:range=tv"  # the colr atom of an MP4
CRF = 16  # x264's constant quality; at 18 and below people see no loss
ANIMATION_SUFFIXES = (".gif", ".webp")
EXIF_SUFFIXES = (".webp", ".jpg", ".jpeg")  # files whose recipe is in their EXIF data
WEBP_QUALITY = 85
GIF_TICK_MS = 10  # its delays are hundredths of a second
SHORTEST_MS = 16  # a frame at 60 a second; a GIF's next delay is 20 ms, which browsers obey
ASCII_COMMENT = b"ASCII\0\0\0"  # prefix that tells an EXIF user comment's encoding


class VideoError(LumeshError):
    """ffmpeg could not write or read a file."""


def write_mp4(file: Path, frames_FHWC: np.ndarray, recipe: Recipe) -> None:
    """Writes uint8 frames (F, height, width, 3) with even sides at `recipe.fps`; raises VideoError."""
    _, height, width, _ = frames_FHWC.shape
    done = _run_ffmpeg(
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(recipe.fps or 1), "-i", "-"),
        *("-c:v", "libx264", "-crf", str(CRF), "-preset", "medium", "-pix_fmt", "yuv420p", "-movflags", "+faststart"),
        # Without these a player guesses the colours, and differently for small and large pictures. The frames must say
        # it: what is only an option of the encoder gives way to frames that say "unknown".
        *("-vf", f"scale=out_color_matrix=bt709:out_range=tv,setparams={COLOURS}"),
        *("-metadata", f"comment={recipe.model_dump_json(by_alias=True)}", "-y", str(file)),
        content=np.ascontiguousarray(frames_FHWC).tobytes(),
    )
    if done.returncode:
        raise VideoError(say("The video {file} could not be written: {reason}.", file=file, reason=_last_line(done)))


def copy_mp4(file: Path, to: Path, recipe: Recipe) -> None:
    """Writes a video of our own with another recipe inside, and the very frames of `file`; raises VideoError."""
    done = _run_ffmpeg(
        *("-i", str(file), "-c", "copy", "-map_metadata", "-1", "-movflags", "+faststart"),
        *("-metadata", f"comment={recipe.model_dump_json(by_alias=True)}", "-f", "mp4", "-y", str(to)),
    )
    if done.returncode:
        raise VideoError(say("The video {file} could not be written: {reason}.", file=to, reason=_last_line(done)))


def read_mp4(file: Path, *, width: int, height: int) -> np.ndarray:
    """Reads a video of our own, of this size, as uint8 frames (F, height, width, 3); raises VideoError."""
    done = _run_ffmpeg("-i", str(file), "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    if done.returncode or not done.stdout:
        raise _refuse(file, done)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def _refuse(file: Path, done: subprocess.CompletedProcess[bytes]) -> VideoError:
    return VideoError(say("{file} is not a video that can be read: {reason}.", file=file, reason=_last_line(done)))


def read_comment(file: Path) -> str | None:
    """Returns the comment of a video, an animation, a JPEG or a WebP as it was written, or None."""
    if file.suffix in (*ANIMATION_SUFFIXES, *EXIF_SUFFIXES):
        return _read_animation_comment(file)
    tags = _run_ffmpeg("-i", str(file), "-f", "ffmetadata", "-").stdout.decode("utf-8", "replace")
    found = re.search(r"^comment=((?:\\.|[^\\\n])*)", tags, re.DOTALL | re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL) if found else None


def encode_animation(frames_FHWC: np.ndarray, recipe: Recipe, *, suffix: str) -> bytes:
    """Encodes an endless GIF or WebP (`suffix` from ANIMATION_SUFFIXES) with the recipe inside.

    It lasts as long as the video. Above 50 frames a second a GIF leaves frames out.
    """
    tick_ms = GIF_TICK_MS if suffix == ".gif" else 1
    times = time_frames(len(frames_FHWC), recipe.fps or 1, tick_ms=tick_ms)
    first, *rest = (Image.fromarray(frames_FHWC[index]) for index, _ in times)
    content = io.BytesIO()
    if suffix == ".webp":
        options: dict[str, Any] = {"quality": WEBP_QUALITY, "exif": make_exif(recipe)}
    else:
        options = {"comment": _make_comment(recipe)}
    first.save(
        content,
        suffix.removeprefix(".").upper(),
        save_all=True,
        append_images=rest,
        duration=[duration_ms for _, duration_ms in times],
        loop=0,
        **options,
    )
    return content.getvalue()


def make_exif(recipe: Recipe) -> Image.Exif:
    """Returns EXIF data with the recipe as its user comment."""
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = ASCII_COMMENT + _make_comment(recipe)
    return exif


def _make_comment(recipe: Recipe) -> bytes:
    return json.dumps(recipe.to_json()).encode("ascii")  # no format defines how other characters are encoded


def time_frames(count: int, fps: int, *, tick_ms: int) -> list[tuple[int, int]]:
    """Returns which of `count` frames an animation shows, and for how many milliseconds each.

    Frames begin at the video's times, rounded to multiples of `tick_ms`, so that rounding never adds up. A frame that
    would be shown for less than SHORTEST_MS is left out, because browsers show those of 10 ms for 100.
    """
    ends_ms = [round(1000 * number / fps / tick_ms) * tick_ms for number in range(count + 1)]
    shown = [0]
    for index in range(1, count):
        if ends_ms[index] - ends_ms[shown[-1]] >= SHORTEST_MS and ends_ms[count] - ends_ms[index] >= SHORTEST_MS:
            shown.append(index)
    return [
        (index, max(ends_ms[after] - ends_ms[index], SHORTEST_MS))
        for index, after in zip(shown, [*shown[1:], count], strict=True)
    ]


def _read_animation_comment(file: Path) -> str | None:
    with Image.open(file) as animation:
        exif = animation.getexif().get_ifd(ExifTags.IFD.Exif)
        found = animation.info.get("comment") or exif.get(ExifTags.Base.UserComment)
    return found.removeprefix(ASCII_COMMENT).decode("ascii", "replace") if found else None


def _run_ffmpeg(*arguments: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *arguments]
    return subprocess.run(command, input=content, capture_output=True, check=False)


def _last_line(done: subprocess.CompletedProcess[bytes]) -> Message:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return english(lines[-1]) if lines else say("ffmpeg ended with code {code}", code=done.returncode)
