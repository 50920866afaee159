"""Videos that people bring, as players show them: upright, with square pixels, on white, in the range of screens.

One is measured by decoding it, and read frame by frame: a large one takes the memory of a few frames. Pixels, frames a
second and the time that reading takes have limits, as a small file may ask for any of them. Only containers of videos
are opened, and nothing but the file itself: a playlist under a video's name would have ffmpeg read other files.
Not here: videos of our own (video.py), GIFs (training/data/clips.py).
"""

import errno
import logging
import os
import re
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from pipelines.errors import LumeshError
from pipelines.files.video import COLOURS
from pipelines.messages import Message, say

log = logging.getLogger(__name__)

MEASURED_S = 150.0  # decoded to measure a video; 1025 frames, the most that are learnt, are 128 s at 8 a second
MOST_PIXELS = 40_000_000  # of a frame, as of a picture that is not made smaller: 8K has 33 million
MOST_DECODED_PIXELS = 70_000_000  # as ffmpeg counts, sides rounded up: more is refused before it is decoded
MOST_FPS = 300.0  # on the mean; phones film up to 240 a second
MOST_READ_S = 600.0  # for a whole file; a page's proxy waits longer (studio/hosting/nginx.conf)
MOST_FRAME_S = 120.0  # until the next frame is there
GIVEN_UP_S = 0.2  # between two looks whether anybody still waits for a whole file
_THREADS = ("-threads", "4")  # each holds frames: with one a core, a file of 8K would take gigabytes on a large host
PLAIN_CRF = 12  # of what is written anew: x264's loss at it is less than that of most cameras
CONTAINERS = "mov,matroska,avi,mpeg,mpegvideo,mpegts,asf,flv,ogg,gif,png_pipe,apng,webp_pipe,jpeg_pipe,h264,hevc,m4v"
HDR_TRANSFERS = ("smpte2084", "arib-std-b67")  # PQ and HLG
_INDEXED = re.compile(r"^\[info\] Input #0, (?:mov|matroska),", re.MULTILINE)  # elsewhere ffmpeg finds other frames
ALPHA_FORMATS = re.compile(r"yuva|rgba|bgra|argb|abgr|gbrap|ya8|ya16")
ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}  # ffmpeg's own leave it out

# Pixels of another aspect are made square; what is beyond 4:1 is no aspect, but a damaged header.
_SQUARE = "scale=w='max(1,round(iw*clip(sar,1/4,4)))':h=ih,setsar=1"
_UNLACED = "bwdif=mode=send_frame:deint=interlaced"  # leaves frames alone that are not interlaced
_TO_SDR = (
    # 203 cd/m2 is the white of screens in HDR (ITU-R BT.2408).
    "zscale=t=linear:npl=203,format=gbrpf32le,zscale=p=bt709,tonemap=tonemap=mobius:desat=0,"
    "zscale=t=bt709:m=bt709:r=tv,format=yuv420p"
)
_ON_WHITE = (
    "format=rgba,split[shown][under];[under]drawbox=c=white:t=fill:replace=1[white];"
    "[white][shown]overlay=format=rgb,format=rgb24"
)
_COMPLAINT = re.compile(r"^(?:\[[^]]*@ 0x[0-9a-f]+\] )*\[(?:error|fatal|panic)\] (.*)$", re.MULTILINE)


_TOO_LARGE = re.compile(r"Picture size (\d+)x(\d+) exceeds specified max pixel count")
_ENDED_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)  # others are ffmpeg's own
_CAUGHT, _TOLD_CAUGHT = 255, "Exiting normally, received signal"  # of SIGTERM and SIGINT, once it has begun


class ForeignVideoError(LumeshError):
    """A video that cannot be read."""

    title = say("This video cannot be used")


class VideoInterruptedError(LumeshError):
    """Reading a video was ended from outside, which says nothing of the video."""

    title = say("This video could not be read to its end")

    def __init__(self) -> None:
        super().__init__(
            say("The system ended the program that reads it, as it does when memory runs out."),
            advice=say("Try again."),
        )


@dataclass(frozen=True, kw_only=True)
class VideoSize:
    """A video's size as players show it, upright, its length, and `notes` on what of it is not in its frames.

    Of one longer than what was measured the `frames` are estimated.
    """

    width: int
    height: int
    frames: int
    fps: float
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """How ffmpeg ended, and what it wrote; the log is `complaints`, with a level in front of each."""

    code: int
    stdout: str
    complaints: str


@dataclass(frozen=True, kw_only=True)
class _Stream:
    """What a file's first stream of pictures is, and how it is decoded.

    It begins `late_s` after the file's sound. Of a file that `is_indexed` it can be decoded from any time on.
    """

    decoder: tuple[str, ...]
    has_alpha: bool
    is_hdr: bool
    is_indexed: bool
    late_s: float

    @property
    def notes(self) -> tuple[Message, ...]:
        notes: list[Message] = []
        if self.has_alpha:
            notes.append(say("Its transparent parts lie on white."))
        if self.is_hdr:
            notes.append(say("It is in HDR; its colours become those of ordinary screens."))
        return tuple(notes)

    def list_filters(self) -> list[str]:
        return [
            *([_ON_WHITE] if self.has_alpha else []),
            _UNLACED,
            *([_TO_SDR] if self.is_hdr else []),
            _SQUARE,
        ]


def measure_video(
    file: Path, *, most_seconds: float = MEASURED_S, given_up: threading.Event | None = None
) -> VideoSize:
    """Reads a video's size, frames and mean frame rate, decoding its first seconds; raises ForeignVideoError.

    What ffmpeg complains of is damaged. Raises VideoInterruptedError, also once it is `given_up`, and OSError as well.
    """
    stream, most_frames = _open_stream(file), int(most_seconds * MOST_FPS)
    # Frames are counted, since headers of WebM do not say.
    done = _run(
        _command(file, stream, "-t", f"{most_seconds:g}")
        + ["-vf", _SQUARE, "-frames:v", str(most_frames + 1)]
        + ["-f", "framehash", "-hash", "adler32", "-fps_mode", "vfr", "-"],
        given_up,
    )
    text, complaints = done.stdout, done.complaints
    tick = re.search(r"^#tb 0: (\d+)/(\d+)$", text, re.MULTILINE)
    size = re.search(r"^#dimensions 0: (\d+)x(\d+)$", text, re.MULTILINE)
    rows = [line.split(",") for line in text.splitlines() if line[:1].isdigit()]
    if done.code or _COMPLAINT.search(complaints) or tick is None or size is None or not rows:
        raise _refuse(complaints)
    if int(size[1]) * int(size[2]) > MOST_PIXELS:  # with its pixels made square
        raise _refuse_pixels(size)
    if len(rows) > most_frames:
        raise ForeignVideoError(
            say("It has more than {most} frames a second.", most=f"{MOST_FPS:g}"),
            advice=say("Save it with fewer; films have 24."),
        )
    ticks = int(rows[-1][2]) + max(int(rows[-1][3]), 1) - int(rows[0][2])
    seconds = ticks * int(tick[1]) / int(tick[2])
    fps, frames = len(rows) / seconds, len(rows)
    if seconds > most_seconds - 1:
        frames = max(frames, round(fps * _find_span_s(file, stream)) + 1)
    return VideoSize(width=int(size[1]), height=int(size[2]), frames=frames, fps=fps, notes=stream.notes)


def read_frames(
    file: Path, *, width: int, height: int, fps: float, frames: int, start_s: float = 0.0
) -> Iterator[np.ndarray]:
    """Yields the first `frames` frames of a video of this size, or what there are, uint8 (height, width, 3).

    Frames are left out or repeated until there are `fps` a second from the first one on, or from `start_s` on. Raises
    ForeignVideoError, also for a frame that takes too long, and VideoInterruptedError.
    """
    stream = _open_stream(file)
    filters, begin = stream.list_filters(), tuple[str, ...]()
    if not start_s:
        # The first frame alone is there at any rate; of less than half a frame's time the filter would leave none.
        filters += [f"fps={fps:g}"] if frames > 1 else []
    elif stream.is_indexed:  # from the key frame before it, of whose frames the last may stand there for long
        begin = ("-noaccurate_seek", "-ss", f"{start_s + stream.late_s:.6f}")
        filters += [f"fps={fps:g}:start_time=0"]
    else:
        filters = ["setpts=PTS-STARTPTS", *filters, f"fps={fps:g}:start_time={start_s:.6f}"]
    command = _command(file, stream, *begin) + [
        *("-vf", ",".join(filters), "-frames:v", str(frames), "-fps_mode", "passthrough"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-"),
    ]
    size, count = width * height * 3, 0
    with tempfile.TemporaryFile() as told:
        pipes = {"stdout": subprocess.PIPE, "stderr": told, "stdin": subprocess.DEVNULL}
        # In a session of its own, here and below: Ctrl+C in the terminal is for this process, which then ends it.
        with subprocess.Popen(command, bufsize=0, start_new_session=True, **pipes) as process:
            assert process.stdout is not None, "it is a pipe"
            try:
                within_s = MOST_READ_S if start_s else MOST_FRAME_S  # all before it may have to be decoded
                while len(content := _read_from(process.stdout.fileno(), size, within_s=within_s)) == size:
                    count, within_s = count + 1, MOST_FRAME_S
                    yield np.frombuffer(content, np.uint8).reshape(height, width, 3)
                process.wait()
            finally:
                process.kill()
        told.seek(0)
        complaints = told.read().decode("utf-8", "replace")
        _check_end(process.returncode, complaints)
        if not count:
            raise _refuse(complaints)


def write_plain(
    file: Path, plain: Path, *, most_seconds: float, most_side: int, given_up: threading.Event | None = None
) -> None:
    """Writes the beginning of a video anew as an MP4 that every browser plays, without sound and what else is told.

    Its longer side has at most `most_side` pixels. Raises ForeignVideoError, VideoInterruptedError, also once it is
    `given_up`, and OSError where the disk is full.
    """
    stream = _open_stream(file)
    fitted = f"scale=w='min(iw,{most_side})':h='min(ih,{most_side})':force_original_aspect_ratio=decrease"
    fitted += f":force_divisible_by=2:out_color_matrix=bt709:out_range=tv,setsar=1,setparams={COLOURS}"
    command = _command(file, stream) + [
        *("-t", f"{most_seconds:g}", "-vf", ",".join([*stream.list_filters(), fitted]), "-fps_mode", "vfr"),
        *(*_THREADS, "-c:v", "libx264", "-crf", str(PLAIN_CRF), "-preset", "fast", "-pix_fmt", "yuv420p"),
        *("-map_metadata", "-1", "-map_chapters", "-1", "-movflags", "+faststart", "-f", "mp4", "-y", str(plain)),
    ]
    done = _run(command, given_up)
    if done.code:
        raise _refuse(done.complaints)


def _run(command: list[str], given_up: threading.Event | None = None) -> _Ended:
    """Runs ffmpeg to its end; raises what read_frames raises, OSError where the disk is full.

    VideoInterruptedError, too, once it is `given_up`.
    """
    until_s = time.monotonic() + MOST_READ_S
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            while True:
                left_s = max(0.0, until_s - time.monotonic())
                with suppress(subprocess.TimeoutExpired):
                    stdout, stderr = process.communicate(
                        timeout=left_s if given_up is None else min(left_s, GIVEN_UP_S)
                    )
                    break
                if given_up is not None and given_up.is_set():
                    raise VideoInterruptedError
                if time.monotonic() >= until_s:
                    raise _refuse_time()
        finally:
            process.kill()
    complaints = stderr.decode("utf-8", "replace")
    _check_end(process.returncode, complaints)
    if process.returncode and os.strerror(errno.ENOSPC) in complaints:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _Ended(code=process.returncode, stdout=stdout.decode("ascii", "replace"), complaints=complaints)


def _check_end(code: int, complaints: str) -> None:
    """Raises VideoInterruptedError where ffmpeg was told to end."""
    if code in _ENDED_FROM_OUTSIDE or (code == _CAUGHT and _TOLD_CAUGHT in complaints):
        raise VideoInterruptedError


def _read_from(pipe: int, size: int, *, within_s: float) -> bytearray:
    """Reads `size` bytes, or less at the end; raises ForeignVideoError where they take too long to come."""
    content, count, until_s = bytearray(size), 0, time.monotonic() + within_s
    news = select.poll()  # select knows of no pipes with high numbers, as a busy server has
    news.register(pipe, select.POLLIN)
    with memoryview(content) as view:
        while count < size:
            if not news.poll(max(0.0, until_s - time.monotonic()) * 1000):
                raise _refuse_time()
            if not (came := os.readv(pipe, [view[count:]])):
                break
            count += came
    del content[count:]
    return content


def _find_span_s(file: Path, stream: _Stream) -> float:
    """Returns the seconds from a video's first frame to its last one, which are not decoded; 0 if that is not known.

    What a file says of its length may be that of its sound.
    """
    done = _run(_command(file, stream) + ["-c", "copy", "-f", "mkvtimestamp_v2", "-"])
    times_ms = [int(line) for line in done.stdout.split() if line.isdigit()]
    return (max(times_ms) - min(times_ms)) / 1000 if times_ms else 0.0


def _open_stream(file: Path) -> _Stream:
    """Reads what a file's first stream of pictures is; raises ForeignVideoError where it has none, and OSError."""
    if not file.stat().st_size:
        raise ForeignVideoError(say("The file is empty."))
    text = _run(_command(file, None)).complaints
    streams = re.split(r"^\[info\]   Stream #0:", text, flags=re.MULTILINE)[1:]
    videos = [one for one in streams if ": Video: " in one.splitlines()[0] and "(attached pic)" not in one]
    if _TOO_LARGE.search(text):
        raise _refuse(text)
    if streams and not videos:
        raise ForeignVideoError(say("It has no moving pictures, only sound or other things."))
    if not videos:
        raise _refuse(text)
    line, _, rest = videos[0].partition("\n")
    size = re.search(r", (\d+)x(\d+)\b", line)
    if size and int(size[1]) * int(size[2]) > MOST_PIXELS:
        raise _refuse_pixels(size)
    codec, *fields = re.split(r", (?![^(]*\))", line.partition(": Video: ")[2])
    name = codec.split()[0]
    is_marked = re.search(r"^\[info\] +alpha_mode +: 1", rest, re.MULTILINE) is not None and name in ALPHA_DECODERS
    pixels = fields[0] if fields else ""
    return _Stream(
        decoder=("-c:v", ALPHA_DECODERS[name]) if is_marked else (),
        has_alpha=is_marked or (name != "gif" and ALPHA_FORMATS.match(pixels) is not None),
        is_hdr=any(transfer in pixels for transfer in HDR_TRANSFERS),
        is_indexed=_INDEXED.search(text) is not None,
        late_s=max(0.0, _find_start_s(line) - _find_start_s(text.partition("Stream #")[0])),
    )


def _find_start_s(told: str) -> float:
    """Returns when a file, or a stream of it, begins; ffmpeg does not say so of one that begins at 0."""
    found = re.search(r", start:? (-?\d+\.\d+)", told)
    return float(found[1]) if found else 0.0


def _command(file: Path, stream: _Stream | None, *limits: str) -> list[str]:
    """Returns the command that opens a file, and of its pictures those that are no cover."""
    # Levels stand in front of what it tells, so that complaints are known as such.
    base = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-nostats", "-v", "level+info", "-nostdin"]
    opened = ["-protocol_whitelist", "file", "-format_whitelist", CONTAINERS, *limits, "-i", f"file:{file}"]
    base += [*_THREADS, "-max_pixels", str(MOST_DECODED_PIXELS)]
    return base + [*(stream.decoder if stream else ())] + opened + (["-map", "0:V:0"] if stream else [])


def _refuse(told: str) -> ForeignVideoError:
    """Returns the error of a file that ffmpeg does not read.

    The first of its complaints, which says the most, is in the log: it is in English, and about bytes.
    """
    if size := _TOO_LARGE.search(told):
        return _refuse_pixels(size)
    complaint = _COMPLAINT.search(told)
    if complaint is None or "Format not on whitelist" in complaint[1]:
        return ForeignVideoError(say("It is no video of a kind that is read."))
    log.warning("ffmpeg does not read a video: %s", complaint[1])
    return ForeignVideoError(say("It is damaged, or no video."))


def _refuse_pixels(size: re.Match[str]) -> ForeignVideoError:
    return ForeignVideoError(
        say(
            "It has {width}x{height} pixels, and at most {most} megapixels are read.",
            width=size[1],
            height=size[2],
            most=MOST_PIXELS // 1_000_000,
        )
    )


def _refuse_time() -> ForeignVideoError:
    return ForeignVideoError(
        say("It takes too long to read."), advice=say("Cut it to what matters, or save it smaller.")
    )
