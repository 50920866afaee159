"""Clips are learnt as players show them, from their first frame on, and what of them is not learnt is told."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from pipelines.files import foreign_video
from pipelines.files.foreign_video import (
    ForeignVideoError,
    VideoInterruptedError,
    measure_video,
    read_frames,
    write_plain,
)
from pipelines.training.data.buckets import cut_into_pieces
from pipelines.training.data.cuts import Bucket, cover
from pipelines.training.data.pixels import read_pixels
from tests.pipelines.training.data.pictures import read_well, write_picture

FPS = 10
GREY = "color=c=gray:s=64x32:r=10:d=1.2"
RAMP = "nullsrc=s=64x32:r=10:d=1.2,geq=lum=N*20+5:cb=128:cr=128"  # each frame is lighter by 20
H264 = ("-c:v", "libx264", "-pix_fmt", "yuv420p")


def make(file: Path, *options: str, source: str = RAMP) -> Path:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", source, *options, "-y", str(file)]
    subprocess.run(command, check=True)
    return file


def read(file: Path, frames: int = 5) -> np.ndarray:
    size = measure_video(file)
    return np.stack([*read_frames(file, width=size.width, height=size.height, fps=FPS, frames=frames)])


def test_pixels_of_another_aspect_become_square(tmp_path: Path) -> None:
    file = make(tmp_path / "a.mp4", "-vf", "setsar=1/2", *H264)
    assert (measure_video(file).width, measure_video(file).height) == (32, 32)
    assert read(file).shape == (5, 32, 32, 3)


def test_a_phones_video_is_upright(tmp_path: Path) -> None:
    flat = make(tmp_path / "flat.mp4", *H264)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-display_rotation", "90", "-i", str(flat), "-c", "copy"]
    subprocess.run([*command, str(tmp_path / "a.mp4")], check=True)
    assert (measure_video(tmp_path / "a.mp4").width, measure_video(tmp_path / "a.mp4").height) == (32, 64)
    assert read(tmp_path / "a.mp4").shape == (5, 64, 32, 3)


def test_a_video_that_begins_after_its_sound_is_learnt_from_its_first_frame_on(tmp_path: Path) -> None:
    silent = make(tmp_path / "silent.mp4", *H264)
    late = ("-itsoffset", "0.6", "-i", str(silent), "-map", "0:a", "-map", "1:v", "-c:v", "copy")
    file = make(tmp_path / "a.mkv", *late, source="sine=d=2")
    assert np.all(np.diff(read(file).mean(axis=(1, 2, 3))) > 5), "no frame stands still before it begins"


@pytest.mark.parametrize(
    ("name", "options"),
    [("a.webm", ("-c:v", "libvpx-vp9", "-pix_fmt", "yuva420p")), ("a.mov", ("-c:v", "qtrle", "-pix_fmt", "argb"))],
)
def test_transparent_parts_lie_on_white_which_is_told(tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    write_picture(tmp_path / "still.png", text="x")
    make(tmp_path / name, *options, source="color=c=red@0:s=64x32:r=10:d=1,format=rgba")
    found = read_well(tmp_path, trigger="x", videos=True)
    assert read(tmp_path / name).min() > 250
    assert found.notes == (f"{name}: Its transparent parts lie on white.",)


def test_hdr_becomes_the_range_of_screens_which_is_told(tmp_path: Path) -> None:
    marks = "format=yuv420p10le,setparams=color_primaries=bt2020:color_trc=smpte2084:colorspace=bt2020nc:range=tv"
    options = ("-vf", marks, "-c:v", "libvpx-vp9", "-pix_fmt", "yuv420p10le")
    # PQ says 203 cd/m2, the white of a page, by 58 % of the range.
    file = make(tmp_path / "a.webm", *options, source="nullsrc=s=64x32:r=10:d=1,geq=lum=16+0.58*219:cb=128:cr=128")
    assert [str(note) for note in measure_video(file).notes if "HDR" in str(note)]
    assert read(file).mean() > 200


def test_half_frames_are_put_together(tmp_path: Path) -> None:
    laced = ("-vf", "interlace=lowpass=0", "-c:v", "mpeg2video", "-flags", "+ilme+ildct", "-q:v", "1")
    file = make(tmp_path / "a.mpg", *laced, source="testsrc2=s=64x64:r=20:d=1")
    rows = read(file, 3)[1].astype(int)
    combed = np.abs(rows[1:-1:2] - (rows[:-2:2] + rows[2::2]) / 2).mean()
    plain = read(make(tmp_path / "b.mpg", "-c:v", "mpeg2video", "-q:v", "1", source="testsrc2=s=64x64:r=10:d=1"), 3)
    rows = plain[1].astype(int)
    assert combed < 1.5 * np.abs(rows[1:-1:2] - (rows[:-2:2] + rows[2::2]) / 2).mean()


@pytest.mark.parametrize("matrix", ["bt709", "smpte170m"])
@pytest.mark.parametrize("levels", ["tv", "pc"])
def test_colours_are_those_that_the_file_says(tmp_path: Path, matrix: str, levels: str) -> None:
    said = f"scale=out_color_matrix={matrix}:out_range={levels},format=yuv444p"
    said += f",setparams=colorspace={matrix}:range={levels}"
    file = make(
        tmp_path / "a.mp4", "-vf", said, "-c:v", "libx264", "-crf", "1", source=GREY.replace("gray", "0xff4020")
    )
    assert np.abs(read(file).mean(axis=(0, 1, 2)) - (255, 64, 32)).max() < 4


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"", "The file is empty."),
        (b"hello", "It is damaged, or no video."),
        (b"ffconcat version 1.0\nfile secret.mp4\n", "It is no video of a kind that is read."),
    ],
)
def test_what_is_no_video_says_so_without_ffmpegs_words_and_opens_no_other_file(
    tmp_path: Path, content: bytes, detail: str
) -> None:
    make(tmp_path / "secret.mp4", *H264)
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(ForeignVideoError) as caught:
        measure_video(tmp_path / "a.mp4")
    assert str(caught.value.detail) == detail and str(tmp_path) not in str(caught.value.whole)


def test_the_first_frame_of_a_blink_is_read_at_any_rate(tmp_path: Path) -> None:
    file = make(tmp_path / "a.mp4", *H264, source="color=c=gray:s=64x32:r=60:d=0.05")
    assert len([*read_frames(file, width=64, height=32, fps=1, frames=1)]) == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", H264),
        ("a.gif", ()),
        ("a.avi", H264),
        ("a.mp4", (*H264, "-f", "mpegts")),  # where ffmpeg seeks to frames that it cannot decode
        ("a.mkv", ("-vf", "select='lt(n,3)+eq(n,11)'", "-fps_mode", "vfr", *H264)),  # its third frame stands for long
        ("a.mkv", ("-f", "lavfi", "-i", "sine=d=2", "-vf", "setpts=PTS+0.6/TB", *H264)),
    ],
    ids=["mp4", "gif", "avi", "stream", "still", "late"],
)
def test_a_piece_of_a_clip_is_read_from_where_it_begins(tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    make(tmp_path / name, *options)
    (whole,) = read_well(tmp_path, trigger="x", videos=True).examples
    pieces, _ = cut_into_pieces([whole], {5}, fps=FPS)
    cut = cover(64, 32, Bucket(64, 32, 5), fps=FPS)
    read_whole = read_pixels(whole, cover(64, 32, Bucket(64, 32, 10), fps=FPS))
    assert len(pieces) == 2
    assert np.array_equal(np.concatenate([read_pixels(piece, cut) for piece in pieces]), read_whole)


def test_frames_of_too_many_pixels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path / "a.mp4", *H264)
    monkeypatch.setattr(foreign_video, "MOST_PIXELS", 2000)
    with pytest.raises(ForeignVideoError, match="It has 64x32 pixels"):
        measure_video(file)
    monkeypatch.setattr(foreign_video, "MOST_PIXELS", 3000)
    with pytest.raises(ForeignVideoError, match="It has 128x32 pixels"):
        measure_video(make(tmp_path / "b.mp4", "-vf", "setsar=2", *H264))


def test_sound_alone_is_told_as_that(tmp_path: Path) -> None:
    make(tmp_path / "a.mp4", "-c:a", "aac", source="sine=d=1")
    with pytest.raises(ForeignVideoError, match="only sound"):
        measure_video(tmp_path / "a.mp4")


def test_of_a_long_video_the_beginning_is_decoded_and_the_rest_counted(tmp_path: Path) -> None:
    file = make(tmp_path / "a.mp4", *H264, source="color=c=gray:s=64x32:r=10:d=6")
    size = measure_video(file, most_seconds=2.0)
    assert (size.frames, size.fps) == (60, pytest.approx(10))


def test_sound_that_goes_on_behind_a_long_video_is_none_of_its_frames(tmp_path: Path) -> None:
    silent = make(tmp_path / "silent.mp4", *H264, source="color=c=gray:s=64x32:r=10:d=4")
    file = make(tmp_path / "a.mp4", "-i", str(silent), "-map", "0:a", "-map", "1:v", "-c:v", "copy", source="sine=d=9")
    assert measure_video(file, most_seconds=2.0).frames == 40


def test_a_picture_of_too_many_pixels_under_a_videos_name_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make(tmp_path / "a.png", "-frames:v", "1", source="color=c=gray:s=640x320").rename(tmp_path / "a.mp4")
    monkeypatch.setattr(foreign_video, "MOST_DECODED_PIXELS", 200_000)
    with pytest.raises(ForeignVideoError, match="It has 640x320 pixels"):
        measure_video(file)


def test_more_frames_a_second_than_cameras_film_are_refused_without_counting_them_all(tmp_path: Path) -> None:
    file = make(tmp_path / "a.mp4", *H264, source="color=c=gray:s=32x32:r=2000:d=1.5")
    with pytest.raises(ForeignVideoError, match="more than 300 frames a second"):
        measure_video(file, most_seconds=1.0)
    assert measure_video(make(tmp_path / "b.mp4", *H264, source="color=c=gray:s=32x32:r=240:d=1.5")).frames == 360


def test_what_takes_too_long_to_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path / "a.mp4", *H264)
    monkeypatch.setattr(foreign_video, "MOST_FRAME_S", 0.0)
    with pytest.raises(ForeignVideoError, match="It takes too long"):
        [*read_frames(file, width=64, height=32, fps=FPS, frames=3)]
    monkeypatch.setattr(foreign_video, "MOST_READ_S", 0.001)
    with pytest.raises(ForeignVideoError, match="It takes too long"):
        measure_video(file)


def test_what_is_no_fault_of_the_file_is_not_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path / "a.mp4", *H264)
    with pytest.raises(OSError, match="No space left"):
        write_plain(file, Path("/dev/full"), most_seconds=1.0, most_side=64)
    killed = tmp_path / "ffmpeg"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(killed))
    with pytest.raises(VideoInterruptedError):
        measure_video(file)


def test_a_video_is_not_cut_where_reading_it_was_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path / "a.mp4", *H264, source="testsrc2=s=512x512:r=10:d=20")
    pid, noted = tmp_path / "pid", tmp_path / "ffmpeg"
    noted.write_text(f'#!/bin/sh\necho $$ > {pid}\nexec {imageio_ffmpeg.get_ffmpeg_exe()} "$@"\n')
    noted.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(noted))
    frames = read_frames(file, width=512, height=512, fps=FPS, frames=200)
    next(frames)
    reading = int(pid.read_text())
    assert os.getsid(reading) != os.getsid(0), "Ctrl+C in a terminal is not heard there"
    os.kill(reading, signal.SIGTERM)
    with pytest.raises(VideoInterruptedError):
        list(frames)


def test_reading_that_nobody_waits_for_any_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, slow, given_up = make(tmp_path / "a.mp4", *H264), tmp_path / "ffmpeg", threading.Event()
    real = imageio_ffmpeg.get_ffmpeg_exe()
    slow.write_text(f'#!/bin/sh\ncase "$*" in *framehash*|*libx264*) exec sleep 60;; esac\nexec {real} "$@"\n')
    slow.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(slow))
    given_up.set()
    began_s = time.monotonic()
    with pytest.raises(VideoInterruptedError):
        measure_video(file, given_up=given_up)
    with pytest.raises(VideoInterruptedError):
        write_plain(file, tmp_path / "b.mp4", most_seconds=1.0, most_side=64, given_up=given_up)
    assert time.monotonic() - began_s < 30
