"""Writes frames to files that play everywhere, and reads them: MP4, or GIF and WebP for places that take no video.

MP4 is H.264 in yuv420p with the index in front (`faststart`), so that a browser plays while it loads. The recipe is in
the `comment` tag of an MP4, the comment of a GIF, the EXIF user comment of a WebP. ffmpeg comes with imageio-ffmpeg.
Needs neither jax nor torch.
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
from pipelines.recipe import Recipe

CRF = 16  # x264's constant quality; at 18 and below people see no loss
ANIMATION_SUFFIXES = (".gif", ".webp")
WEBP_QUALITY = 85
ASCII_COMMENT = b"ASCII\0\0\0"  # prefix that tells an EXIF user comment's encoding


class VideoError(LumeshError):
    """ffmpeg could not write or read a file."""


def write_mp4(file: Path, frames_FHWC: np.ndarray, recipe: Recipe) -> None:
    """Writes uint8 frames (F, height, width, 3) with even sides at `recipe.fps`; raises VideoError."""
    _, height, width, _ = frames_FHWC.shape
    done = _run_ffmpeg(
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(recipe.fps or 1), "-i", "-"),
        *("-c:v", "libx264", "-crf", str(CRF), "-preset", "medium", "-pix_fmt", "yuv420p", "-movflags", "+faststart"),
        # Without these a player guesses the colour space, and differently for small and large pictures.
        *("-vf", "scale=out_color_matrix=bt709:out_range=tv", "-colorspace", "bt709"),
        *("-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"),
        *("-metadata", f"comment={recipe.model_dump_json(by_alias=True)}", "-y", str(file)),
        content=np.ascontiguousarray(frames_FHWC).tobytes(),
    )
    if done.returncode:
        raise VideoError(say("The video {file} could not be written: {reason}.", file=file, reason=_last_line(done)))


def read_mp4(file: Path, *, width: int, height: int) -> np.ndarray:
    """Reads a video of this size as uint8 frames (F, height, width, 3); raises VideoError."""
    done = _run_ffmpeg("-i", str(file), "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    if done.returncode or not done.stdout:
        raise VideoError(say("{file} is not a video that can be read: {reason}.", file=file, reason=_last_line(done)))
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def read_comment(file: Path) -> str | None:
    """Returns the comment of a video or animation as it was written, or None."""
    if file.suffix in ANIMATION_SUFFIXES:
        return _read_animation_comment(file)
    tags = _run_ffmpeg("-i", str(file), "-f", "ffmetadata", "-").stdout.decode("utf-8", "replace")
    found = re.search(r"^comment=((?:\\.|[^\\\n])*)", tags, re.DOTALL | re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL) if found else None


def encode_animation(frames_FHWC: np.ndarray, recipe: Recipe, *, suffix: str) -> bytes:
    """Encodes an endless GIF or WebP (`suffix` from ANIMATION_SUFFIXES) at the recipe's fps, with the recipe inside."""
    first, *rest = (Image.fromarray(frame) for frame in frames_FHWC)
    content = io.BytesIO()
    comment = json.dumps(recipe.to_json()).encode("ascii")  # neither format defines how other characters are encoded
    if suffix == ".webp":
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = ASCII_COMMENT + comment
        options: dict[str, Any] = {"quality": WEBP_QUALITY, "exif": exif}
    else:
        options = {"comment": comment}
    first.save(
        content,
        suffix.removeprefix(".").upper(),
        save_all=True,
        append_images=rest,
        duration=round(1000 / (recipe.fps or 1)),
        loop=0,
        **options,
    )
    return content.getvalue()


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
