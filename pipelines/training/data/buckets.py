"""Which size each picture is trained at: a few sizes of about equal area, so that nothing is stretched and little cut.

The model's own sizes come first, since samples and the finished LoRA use them; others of equal area fill the gaps.
Every size is one more compiled program, so the rarest are given up: their pictures go to the nearest that stays. No
picture is ever left out.
Not here: how a picture is cut (cuts.py), in which order buckets are trained (batches.py).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pipelines.messages import Message, say, say_count
from pipelines.models.model import VIDEO_STRIDE, Shape
from pipelines.training.data.clip_notes import count_frames, note_clips
from pipelines.training.data.cuts import Bucket, Cut, cover, cut_square
from pipelines.training.data.examples import Example, list_names

MOST = 6
MOST_UPSCALING = 1.25  # more enlarging teaches blur, so it is told
AREA_SHARE = 0.2  # a model's own size is of the asked area if it is within this share of it
MADE_SHARE = 0.1  # sizes that are made are nearer to it, if any are
OWN_REACH = 0.06  # in log ratio: no other size is made where one of the model's own is so near, which cuts off 6 %
LONGEST_RATIO = 4.0


@dataclass(frozen=True, kw_only=True)
class Bucketing:
    """A cut for each example, in their order, and what should be known."""

    cuts: tuple[Cut, ...]
    notes: tuple[Message, ...] = ()

    @property
    def buckets(self) -> dict[Bucket, tuple[int, ...]]:
        """The numbers of each bucket's examples; buckets with the most come first."""
        members: dict[Bucket, list[int]] = {}
        for number, cut in enumerate(self.cuts):
            members.setdefault(cut.bucket, []).append(number)
        return {name: tuple(members[name]) for name in sorted(members, key=lambda name: (-len(members[name]), name))}


def choose_buckets(
    examples: Sequence[Example],
    shapes: Collection[Shape],
    *,
    multiple: int,
    area: int,
    most: int = MOST,
    fps: float = 0.0,
) -> Bucketing:
    """Chooses at most `most` buckets of about `area` pixels, sides multiples of `multiple`, and a cut for each example.

    Clips are read at `fps` frames a second and keep as many frames as one of the shapes has; shorter ones share a
    length of their own.
    """
    sizes = _list_sizes(shapes, multiple=multiple, area=area)
    lengths = _choose_lengths(examples, {shape.frames for shape in shapes}, fps)
    chosen = [
        _find_nearest(example, [Bucket(size.width, size.height, frames) for size in sizes])
        for example, frames in zip(examples, lengths, strict=True)
    ]
    chosen = _give_up_rare(examples, chosen, most)
    cuts = tuple(
        cover(example.width, example.height, bucket, fps=fps if example.fps else 0.0)
        for example, bucket in zip(examples, chosen, strict=True)
    )
    notes = (_note_enlarged(examples, cuts), *note_clips(examples, cuts, {shape.frames for shape in shapes}, fps))
    return Bucketing(cuts=cuts, notes=tuple(note for note in notes if note is not None))


def join_buckets(examples: Sequence[Example], buckets: Iterable[Bucket], *, fps: float = 0.0) -> Bucketing:
    """Gives every example the nearest of these buckets; what is too short for all of them keeps its first frame only.

    So no size is trained because of these examples alone.
    """
    kept = sorted(buckets)
    cuts: list[Cut] = []
    for example in examples:
        frames = count_frames(example, fps)
        fitting = [bucket for bucket in kept if bucket.frames <= frames]
        longest = max((bucket.frames for bucket in fitting), default=1)
        nearest = _find_nearest(example, [one for one in fitting if one.frames == longest] or kept)
        bucket = nearest._replace(frames=longest)
        cuts.append(cover(example.width, example.height, bucket, fps=fps if example.fps else 0.0))
    unused = [example.id for example, cut in zip(examples, cuts, strict=True) if cut.bucket not in kept]
    note = say(
        "These prior pictures are shorter than all that is learnt, and are not used: {names}.", names=list_names(unused)
    )
    return Bucketing(cuts=tuple(cuts), notes=(note,) if unused else ())


def choose_square(
    examples: Sequence[Example], resolution: int, *, frames: Collection[int] = (), fps: float = 0.0
) -> Bucketing:
    """Gives every example the same square, as diffusers' training scripts do.

    Clips keep as many of their frames at `fps` as one of the lengths in `frames` has, as in `choose_buckets`.
    """
    lengths = _choose_lengths(examples, {*frames}, fps)
    cuts = tuple(
        cut_square(example.width, example.height, resolution, frames=length, fps=fps if example.fps else 0.0)
        for example, length in zip(examples, lengths, strict=True)
    )
    notes = (_note_enlarged(examples, cuts), *note_clips(examples, cuts, {*frames}, fps))
    return Bucketing(cuts=cuts, notes=tuple(note for note in notes if note is not None))


def cut_into_pieces(
    examples: Sequence[Example], lengths: Collection[int], *, fps: float
) -> tuple[tuple[Example, ...], tuple[Message, ...]]:
    """Cuts clips into as many pieces as they have of the length that they would be learnt with, one after the other.

    What is left at an end is less than a piece.
    """
    pieces: list[Example] = []
    names: list[str] = []
    for example, frames in zip(examples, _choose_lengths(examples, {*lengths}, fps), strict=True):
        count = count_frames(example, fps) // frames if frames > 1 else 1
        if count == 1:
            pieces.append(example)
            continue
        own = math.ceil(frames / fps * example.fps - 1e-9)
        pieces += [
            replace(example, id=f"{example.id} ({number + 1} of {count})", start_s=number * frames / fps, frames=own)
            for number in range(count)
        ]
        names.append(f"{example.id} ({count})")
    if not names:
        return tuple(pieces), ()
    note = say("These clips are learnt in pieces, one after the other: {names}.", names=list_names(names))
    return tuple(pieces), (note,)


def _is_near(pixels: int, area: int) -> bool:
    return abs(pixels - area) <= AREA_SHARE * area


def choose_bucket(width: int, height: int, shapes: Collection[Shape], *, multiple: int, area: int) -> Bucket:
    """Returns the one of those sizes, in pixels, that a picture of these sides gets where it is learnt alone."""
    return _find_nearest(Bucket(width, height), _list_sizes(shapes, multiple=multiple, area=area))


def _list_sizes(shapes: Collection[Shape], *, multiple: int, area: int) -> list[Bucket]:
    """Lists the model's own sizes of about the area, and others for proportions that none of them has."""
    own = [Bucket(shape.width, shape.height) for shape in shapes if _is_near(shape.width * shape.height, area)]
    made = [one for one in _make_sizes(multiple, area) if all(_measure(one, other) > OWN_REACH for other in own)]
    return [*dict.fromkeys(own), *made]


def _make_sizes(multiple: int, area: int) -> list[Bucket]:
    """Makes sizes of about the area from 1:4 to 4:1: of each width the nearest height, and others that are as good."""
    side = math.sqrt(area)
    made: list[Bucket] = []
    for width in range(multiple, math.ceil(side * math.sqrt(LONGEST_RATIO)) + multiple, multiple):
        units = area / width / multiple
        for height in {max(round(units), 1), math.floor(units), math.ceil(units)}:
            size = Bucket(width, height * multiple)
            if height and (height == max(round(units), 1) or abs(size.width * size.height - area) <= MADE_SHARE * area):
                made.append(size)
    return [size for size in sorted(made) if abs(_log_ratio(size)) <= math.log(LONGEST_RATIO) + 1e-9]


def _log_ratio(size: Bucket | Example) -> float:
    return math.log(size.width / size.height)


def _measure(one: Bucket | Example, other: Bucket) -> float:
    return abs(_log_ratio(one) - _log_ratio(other))


def _find_nearest(example: Bucket | Example, buckets: Sequence[Bucket]) -> Bucket:
    """Returns the bucket of the nearest proportions; of equally near ones the first."""
    return min(buckets, key=lambda bucket: round(_measure(example, bucket), 6))


def _choose_lengths(examples: Sequence[Example], allowed: set[int], fps: float) -> list[int]:
    """Chooses each example's frames: the most that the clip has of the allowed numbers, 1 for pictures.

    Clips that are shorter than any allowed number all get what the shortest has, of the form 4n + 1.
    """
    allowed = {frames for frames in allowed if frames > 1}
    available = [count_frames(example, fps) for example in examples]
    short = [
        (frames - 1) // VIDEO_STRIDE * VIDEO_STRIDE + 1
        for frames in available
        if VIDEO_STRIDE < frames < min(allowed, default=0)
    ]
    if short:
        allowed.add(min(short))
    return [max((one for one in allowed if one <= frames), default=1) for frames in available]


def _give_up_rare(examples: Sequence[Example], chosen: list[Bucket], most: int) -> list[Bucket]:
    """Gives up the rarest bucket until at most `most` are left, and one of each length for as long as there is room."""
    while True:
        counts = Counter[Bucket]()
        for example, bucket in zip(examples, chosen, strict=True):
            counts[bucket] += example.repeats
        if len(counts) <= most:
            return chosen
        lengths = Counter(bucket.frames for bucket in counts)
        spare = [bucket for bucket in counts if lengths[bucket.frames] > 1] or [
            bucket for bucket in counts if bucket.frames > min(lengths)
        ]
        rarest = min(spare, key=lambda bucket: (counts[bucket], bucket))
        kept = sorted(bucket for bucket in counts if bucket != rarest)
        frames = max(bucket.frames for bucket in kept if bucket.frames <= rarest.frames)
        kept = [bucket for bucket in kept if bucket.frames == frames]
        chosen = [
            _find_nearest(example, kept) if bucket == rarest else bucket
            for example, bucket in zip(examples, chosen, strict=True)
        ]


def _note_enlarged(examples: Sequence[Example], cuts: Sequence[Cut]) -> Message | None:
    names = [
        f"{example.id} ({cut.upscaling:.1f}x)"
        for example, cut in zip(examples, cuts, strict=True)
        if cut.upscaling > MOST_UPSCALING
    ]
    if not names:
        return None
    return say_count(
        "{count} picture is smaller than it is trained at and is enlarged: {names}. Larger pictures learn sharper.",
        "{count} pictures are smaller than they are trained at and are enlarged: {names}. Larger ones learn sharper.",
        count=len(names),
        names=list_names(names),
    )
