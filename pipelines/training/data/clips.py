"""Frames of clips at the frame rate that a model learns: videos by ffmpeg, GIFs by Pillow with the delays they have.

Not here: what a video file holds (files/foreign_video.py), cutting frames to a bucket (pixels.py).
"""

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

from pipelines.errors import LumeshError
from pipelines.files.foreign_video import VideoSize, measure_video, read_frames
from pipelines.messages import say
from pipelines.pictures import gif_blocks
from pipelines.pictures.reading import DECODING_ERRORS, read_picture
from pipelines.training.data.examples import Example, FileReader, Reader

VERSION = 3
"""The version of how clips are read: latents of frames that another version read are not taken from a cache."""
DELAY_MS = 100  # what players show for a GIF's delay of 0


class ClipError(LumeshError):
    """A clip that cannot be read."""

    title = say("This video cannot be used")


def measure_clip(reader: Reader) -> VideoSize:
    """Reads a clip's size, frames and mean frame rate; a GIF of one frame has the rate 0, as a picture; raises."""
    assert isinstance(reader, FileReader), "clips are files"
    if reader.file.suffix.lower() != ".gif":
        return measure_video(reader.file)
    content = reader.read()
    width, height = read_picture(io.BytesIO(content)).image.size  # refuses what is too large
    ends_ms = [end_ms for _, end_ms in _walk_gif(content, is_shown=False)]
    fps = len(ends_ms) / ends_ms[-1] * 1000 if len(ends_ms) > 1 else 0.0
    return VideoSize(width=width, height=height, frames=len(ends_ms), fps=fps)


def is_still(reader: Reader) -> bool:
    """Returns whether a clip's file is a GIF of a single frame, or one so broken that it must be read to be refused."""
    if not isinstance(reader, FileReader) or reader.file.suffix.lower() != ".gif":
        return False
    try:
        with reader.file.open("rb") as stream:
            if gif_blocks.holds_too_much(stream):
                return True
            with Image.open(stream, formats=["GIF"]) as picture:
                return not getattr(picture, "is_animated", False)
    except DECODING_ERRORS:
        return True


def read_clip(example: Example, *, frames: int, fps: float) -> Iterator[Image.Image]:
    """Yields the first `frames` frames at `fps` from where the example begins; raises ClipError when there are fewer.

    Where rounding of times leaves the last frame out, the one before it stands in for it.
    """
    reader = example.reader
    assert isinstance(reader, FileReader), "clips are files"
    if reader.file.suffix.lower() == ".gif":
        found = _read_gif(reader.read(), start_s=example.start_s, frames=frames, fps=fps)
    else:
        size = {"width": example.width, "height": example.height}
        read = read_frames(reader.file, **size, fps=fps, frames=frames, start_s=example.start_s)
        found = map(Image.fromarray, read)
    count, last = 0, None
    for last in found:
        count += 1
        yield last
    if last is None or count < frames - 1:
        raise ClipError(
            say(
                "{name} has {count} frames at this frame rate, not {frames}.",
                name=example.id,
                count=count,
                frames=frames,
            )
        )
    if count < frames:
        yield last


def _read_gif(content: bytes, *, start_s: float, frames: int, fps: float) -> Iterator[Image.Image]:
    """Yields what a GIF shows at the times of the first frames from `start_s` on at `fps`."""
    times_ms = (1000 * (start_s + np.arange(frames) / fps)).tolist() if fps else [0.0]
    for still, end_ms in _walk_gif(content):
        while times_ms and times_ms[0] < end_ms:
            times_ms.pop(0)
            yield still
        if not times_ms:
            return


def _walk_gif(content: bytes, *, is_shown: bool = True) -> Iterator[tuple[Image.Image, int]]:
    """Yields a GIF's frames on white, each with the ms at which it ends; all the same one unless they are shown."""
    still, end_ms = Image.new("RGB", (1, 1)), 0
    try:
        with Image.open(io.BytesIO(content), formats=["GIF"]) as animation:
            for number in range(getattr(animation, "n_frames", 1)):
                animation.seek(number)
                animation.load()
                end_ms += int(animation.info.get("duration") or DELAY_MS)
                if is_shown:
                    white = Image.new("RGBA", animation.size, "white")
                    still = Image.alpha_composite(white, animation.convert("RGBA")).convert("RGB")
                yield still, end_ms
    except DECODING_ERRORS as error:
        raise ClipError(
            say("This file is damaged: it begins like a picture, but cannot be read to its end."),
            advice=say("Save or download the picture again."),
        ) from error
