"""Frames of clips at the frame rate that a model learns: videos by ffmpeg, GIFs by Pillow with the delays they have.

Not here: writing videos (files/video.py), cutting frames to a bucket (pixels.py).
"""

import io

import numpy as np
from PIL import Image

from pipelines.errors import LumeshError
from pipelines.files.video import VideoSize, measure_video, read_mp4
from pipelines.messages import say
from pipelines.pictures import gif_blocks
from pipelines.pictures.reading import DECODING_ERRORS, read_picture
from pipelines.training.data.examples import Example, FileReader, Reader

DELAY_MS = 100  # what players show for a GIF's delay of 0


class ClipError(LumeshError):
    """A clip that cannot be read."""

    title = say("This video cannot be used")


def measure_clip(reader: Reader) -> VideoSize:
    """Reads a clip's size, frames and mean frame rate; a GIF of one frame has the rate 0, as a picture; raises."""
    assert isinstance(reader, FileReader), "clips are files"
    if reader.file.suffix.lower() != ".gif":
        return measure_video(reader.file)
    frames, ends_ms = _read_gif(reader.read(), is_measured=True)
    width, height = frames[0].size
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


def read_clip(example: Example, *, frames: int, fps: float) -> np.ndarray:
    """Reads the first `frames` frames at `fps` as uint8 (F, height, width, 3); raises ClipError when it has fewer.

    Where rounding of times leaves the last frame out, the one before it stands in for it.
    """
    reader = example.reader
    assert isinstance(reader, FileReader), "clips are files"
    if reader.file.suffix.lower() == ".gif":
        stills, ends_ms = _read_gif(reader.read())
        places = np.searchsorted(ends_ms, np.arange(frames) * 1000 / fps, side="right") if fps else [0] * frames
        found = np.stack([np.asarray(stills[at]) for at in places if at < len(stills)])
    else:
        found = read_mp4(reader.file, width=example.width, height=example.height, fps=fps, frames=frames)
    if len(found) < frames - 1:
        raise ClipError(
            say(
                "{name} has {count} frames at this frame rate, not {frames}.",
                name=example.id,
                count=len(found),
                frames=frames,
            )
        )
    return found if len(found) >= frames else np.concatenate([found, found[-1:]])


def _read_gif(content: bytes, *, is_measured: bool = False) -> tuple[list[Image.Image], list[int]]:
    """Reads a GIF's frames on white, only the first if they are measured, and the ms at which each ends."""
    first = read_picture(io.BytesIO(content)).image  # refuses what is too large
    stills, ends_ms = [first], list[int]()
    try:
        with Image.open(io.BytesIO(content), formats=["GIF"]) as animation:
            for number in range(getattr(animation, "n_frames", 1)):
                animation.seek(number)
                animation.load()
                ends_ms.append((ends_ms or [0])[-1] + int(animation.info.get("duration") or DELAY_MS))
                if number and not is_measured:
                    white = Image.new("RGBA", animation.size, "white")
                    stills.append(Image.alpha_composite(white, animation.convert("RGBA")).convert("RGB"))
    except DECODING_ERRORS as error:
        raise ClipError(
            say("This file is damaged: it begins like a picture, but cannot be read to its end."),
            advice=say("Save or download the picture again."),
        ) from error
    return stills, ends_ms
