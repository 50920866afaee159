"""Every picture goes to the size of the nearest proportions, few sizes are used, and nothing is left out."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models.catalog import load_catalog
from pipelines.models.model import Shape
from pipelines.training.data.buckets import MOST_UPSCALING, choose_buckets, choose_square, join_buckets
from pipelines.training.data.cuts import Bucket
from tests.pipelines.training.data.pictures import make_example

SDXL = load_catalog().get("sdxl-base").shapes
WAN = tuple(map(Shape.parse, ("832x480x33", "480x832x33", "832x480x81", "480x832x81")))
SIDES = st.integers(16, 4000)


def ratio(size: object) -> float:
    return math.log(size.width / size.height)


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=40), most=st.integers(1, 6))
def test_every_picture_has_a_cut_that_fits_its_bucket(sizes: list[tuple[int, int]], most: int) -> None:
    examples = [make_example(str(number), *size) for number, size in enumerate(sizes)]
    chosen = choose_buckets(examples, SDXL, multiple=64, area=1024 * 1024, most=most)
    assert len(chosen.cuts) == len(examples)
    assert len(chosen.buckets) <= most
    assert sorted(at for members in chosen.buckets.values() for at in members) == list(range(len(examples)))
    for example, cut in zip(examples, chosen.cuts, strict=True):
        assert cut.bucket.width % 64 == cut.bucket.height % 64 == 0
        assert 0 <= cut.left <= cut.scaled_width - cut.bucket.width
        assert 0 <= cut.top <= cut.scaled_height - cut.bucket.height
        assert cut.bucket.width == cut.scaled_width or cut.bucket.height == cut.scaled_height
        nearest = min(abs(ratio(example) - ratio(bucket)) for bucket in chosen.buckets)
        assert abs(ratio(example) - ratio(cut.bucket)) <= nearest + 0.5  # a bucket that others left may be nearer
    enlarged = {one.id for one, cut in zip(examples, chosen.cuts, strict=True) if cut.upscaling > MOST_UPSCALING}
    assert bool(enlarged) == bool(chosen.notes)


def choose(*sizes: tuple[int, int], **options: object) -> list[tuple[int, ...]]:
    examples = [make_example(str(number), *size) for number, size in enumerate(sizes)]
    given_options = {"multiple": 64, "area": 1024 * 1024, **options}
    return [cut.bucket for cut in choose_buckets(examples, SDXL, **given_options).cuts]


def test_the_models_own_sizes_come_first_and_others_fill_the_gaps() -> None:
    own = {Bucket(shape.width, shape.height) for shape in SDXL}
    photos = choose((4000, 4000), (4032, 3024), (3024, 4032), (1920, 1080), (1500, 1000))
    assert set(photos) <= own and photos[0] == (1024, 1024, 1)
    few = SDXL[:3]
    examples = [make_example("a", 4000, 1000), make_example("b", 1300, 1000), make_example("c", 1000, 1050)]
    chosen = [cut.bucket for cut in choose_buckets(examples, few, multiple=64, area=1024 * 1024).cuts]
    assert chosen == [(2048, 512, 1), (1152, 896, 1), (1024, 1024, 1)]


def test_sizes_of_another_area_are_not_those_of_the_model() -> None:
    assert choose((1000, 1000), (1500, 1000), area=512 * 512) == [(512, 512, 1), (640, 448, 1)]


def test_the_rarest_size_joins_the_nearest() -> None:
    sizes = [(1000, 1000)] * 5 + [(1344, 768)] * 3 + [(1152, 896)]
    assert choose(*sizes, most=2)[-1] == (1024, 1024, 1)
    assert len(set(choose(*sizes, most=3))) == 3
    examples = [make_example("a", 1000, 1000), make_example("b", 1344, 768, repeats=10)]
    chosen = choose_buckets(examples, SDXL, multiple=64, area=1024 * 1024, most=1)
    assert [*chosen.buckets] == [(1344, 768, 1)], "a picture that is used ten times counts ten times"


def test_enlarging_is_told_by_name() -> None:
    examples = [make_example("small.png", 512, 512), make_example("fine.png", 900, 900)]
    (note,) = choose_buckets(examples, SDXL, multiple=64, area=1024 * 1024).notes
    assert "small.png (2.0x)" in note and "fine.png" not in note
    assert "small.png (2.0x)" in choose_square(examples, 1024).notes[0]


@pytest.mark.parametrize(
    ("seconds", "frames"), [(10, 81), (5.1, 81), (5.0, 33), (2.1, 33), (1.9, 25), (1.6, 25), (0.2, 1)]
)
def test_a_clip_keeps_the_most_frames_that_it_has(seconds: float, frames: int) -> None:
    clips = [make_example("a", 800, 450, frames=round(seconds * 30), fps=30.0)]
    clips.append(make_example("short", 800, 450, frames=48, fps=30.0))  # 25 frames at 16 a second
    chosen = choose_buckets(clips, WAN, multiple=16, area=832 * 480, fps=16)
    assert [cut.bucket.frames for cut in chosen.cuts] == [frames, 25]
    assert any("first frame" in note for note in chosen.notes) == (frames == 1)


def test_clips_with_fewer_frames_than_asked_for_are_told_with_how_many_they_have() -> None:
    asked = [Shape.parse("832x480x41")]
    lengths = {"film.mp4": 200, "a.mp4": 40, "b.mp4": 12, "blink.mp4": 3}
    clips = [make_example(name, 832, 480, frames=frames, fps=16.0) for name, frames in lengths.items()]
    chosen = choose_buckets(clips, asked, multiple=16, area=832 * 480, fps=16)
    assert [cut.bucket.frames for cut in chosen.cuts] == [41, 9, 9, 1]
    still, short, long = chosen.notes
    assert "2 clips have fewer than 41 frames" in short and "with 9," in short
    assert "b.mp4 (12), a.mp4 (40)" in short, "the shortest, for which the others are cut, comes first"
    assert "blink.mp4" in still and "blink.mp4" not in short
    assert "film.mp4 (2.6 s of 12.5), a.mp4 (0.6 s of 2.5)" in long, "the longest comes first"
    as_long = [make_example("film.mp4", 832, 480, frames=50, fps=16.0)]
    assert not choose_buckets(as_long, asked, multiple=16, area=832 * 480, fps=16).notes


def test_a_clip_of_fewer_frames_a_second_is_told() -> None:
    clips = [make_example(f"{fps}.mp4", 832, 480, frames=3 * fps, fps=float(fps)) for fps in (12, 15, 30)]
    notes = choose_buckets(clips, WAN, multiple=16, area=832 * 480, fps=16).notes
    assert [note for note in notes if "12.mp4 (12)" in note and "15.mp4" not in note]


def test_one_frame_of_a_clip_is_told_as_what_was_asked() -> None:
    clips = [make_example("a.mp4", 832, 480, frames=90, fps=16.0)]
    (note,) = choose_buckets(clips, [Shape.parse("832x480")], multiple=16, area=832 * 480, fps=16).notes
    assert "one frame is asked for" in note and "too short" not in note


def test_a_square_of_a_clip_keeps_its_frames() -> None:
    examples = [make_example("a.mp4", 640, 360, frames=90, fps=30.0), make_example("b.png", 640, 360)]
    chosen = choose_square(examples, 256, frames={17, 33}, fps=16)
    assert [(cut.bucket, cut.fps) for cut in chosen.cuts] == [((256, 256, 33), 16), ((256, 256, 1), 0)]


def test_pictures_are_single_frames_and_lengths_outlast_giving_up() -> None:
    clips = [make_example(f"{at}", 800, 450, frames=200, fps=16.0) for at in range(3)]
    mixed = [*clips, make_example("p", 450, 800), make_example("q", 800, 450), make_example("r", 800, 450)]
    chosen = choose_buckets(mixed, WAN, multiple=16, area=832 * 480, fps=16, most=2)
    assert {bucket.frames for bucket in chosen.buckets} == {81, 1}
    assert [cut.fps for cut in chosen.cuts] == [16, 16, 16, 0, 0, 0]
    assert [*choose_buckets(mixed, WAN, multiple=16, area=832 * 480, fps=16, most=1).buckets] == [(832, 480, 1)]


def test_prior_pictures_join_sizes_that_are_learnt_and_make_none() -> None:
    sizes = [Bucket(1024, 1024), Bucket(1344, 768)]
    examples = [make_example("a", 900, 1000), make_example("b", 1920, 1080), make_example("c", 500, 2000)]
    joined = join_buckets(examples, sizes)
    assert [cut.bucket for cut in joined.cuts] == [sizes[0], sizes[1], sizes[0]]
    assert not joined.notes


def test_a_clip_joins_a_size_of_no_more_frames_than_it_has_and_else_is_told() -> None:
    sizes = [Bucket(832, 480, 33), Bucket(832, 480, 81)]
    clips = [make_example("long", 832, 480, frames=90, fps=16.0), make_example("brief", 832, 480, frames=40, fps=16.0)]
    joined = join_buckets([*clips, make_example("still", 832, 480)], sizes, fps=16.0)
    assert [cut.bucket.frames for cut in joined.cuts] == [81, 33, 1]
    assert [note for note in joined.notes if "still" in note and "brief" not in note]
