"""What should be known of clips before they are learnt: what of them is left out, repeated, or too short.

Not here: which size and length a clip gets (buckets.py).
"""

import math
from collections.abc import Iterator, Sequence

from pipelines.messages import Message, say, say_count
from pipelines.training.data.cuts import Cut
from pipelines.training.data.examples import Example, list_names, shorten

UNSEEN_S = 1.0  # of a clip that may stay unlearnt without a word
SLOW_SHARE = 0.9  # of the model's frame rate: at a lower one, frames are shown twice


def count_frames(example: Example, fps: float) -> int:
    """Returns how many frames an example has when it is read at `fps`."""
    return math.floor(example.seconds * fps + 1e-6) if example.fps else 1


def note_clips(examples: Sequence[Example], cuts: Sequence[Cut], lengths: set[int], fps: float) -> Iterator[Message]:
    """Yields what there is to say of clips that are read at `fps`, where `lengths` are those that were wanted."""
    clips = [(example, cut.bucket.frames) for example, cut in zip(examples, cuts, strict=True) if example.fps]
    wanted = {frames for frames in lengths if frames > 1}
    stills = [example.id for example, frames in clips if frames == 1]
    if stills and wanted:
        yield say(
            "Only the first frame of these clips is used, for they are too short: {names}.", names=list_names(stills)
        )
    elif stills:
        yield say(
            "Only the first frame of these clips is used, for one frame is asked for: {names}.",
            names=list_names(stills),
        )
    moving = [(example, frames) for example, frames in clips if frames > 1]
    yield from _note_short(moving, min(wanted, default=0), fps)
    yield from _note_long(moving, fps)
    yield from _note_slow(moving, fps)


def _note_short(clips: Sequence[tuple[Example, int]], least: int, fps: float) -> Iterator[Message]:
    """Names the clips that have fewer frames than are wanted at least, the shortest first."""
    short = sorted((count_frames(example, fps), shorten(example.id)) for example, frames in clips if frames < least)
    if short:
        yield say_count(
            "{count} clip has fewer than {least} frames at {fps} a second, and is learnt with {frames}: {names}.",
            "{count} clips have fewer than {least} frames at {fps} a second. All of them are learnt with {frames}, for "
            "which the first of these has enough: {names}.",
            count=len(short),
            least=least,
            fps=f"{fps:g}",
            frames=min(frames for _, frames in clips),
            names=list_names([f"{name} ({frames})" for frames, name in short]),
        )


def _note_long(clips: Sequence[tuple[Example, int]], fps: float) -> Iterator[Message]:
    """Names the clips of which more is left out than UNSEEN_S, the longest first."""
    long = sorted(
        (
            (example.seconds, f"{shorten(example.id)} ({frames / fps:.1f} s of {example.seconds:.1f})")
            for example, frames in clips
            if example.seconds - frames / fps >= UNSEEN_S
        ),
        key=lambda one: -one[0],
    )
    if long:
        yield say_count(
            "Of {count} clip only the beginning is learnt: {names}. Cut it to what matters.",
            "Of {count} clips only the beginning is learnt: {names}. Cut them to what matters.",
            count=len(long),
            names=list_names([name for _, name in long]),
        )


def _note_slow(clips: Sequence[tuple[Example, int]], fps: float) -> Iterator[Message]:
    slow = [f"{shorten(example.id)} ({example.fps:.3g})" for example, _ in clips if example.fps < SLOW_SHARE * fps]
    if slow:
        yield say_count(
            "{count} clip has fewer frames a second than the {fps} of the model, so frames are repeated and its motion "
            "is learnt in jerks: {names}.",
            "{count} clips have fewer frames a second than the {fps} of the model, so frames are repeated and their "
            "motion is learnt in jerks: {names}.",
            count=len(slow),
            fps=f"{fps:g}",
            names=list_names(slow),
        )
