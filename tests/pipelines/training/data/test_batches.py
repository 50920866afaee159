"""Each picture comes exactly as often as it should, whatever the batch, the buckets and the hosts."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.training.data.batches import BatchError, Row, Schedule, hold_out
from tests.pipelines.training.data.pictures import make_example


def make_schedule(sizes: list[int], batch: int, *, repeats: int = 1, seed: int = 0, **options: object) -> Schedule:
    """Makes a schedule of buckets of these sizes; every third picture is repeated."""
    examples = [make_example(str(at), repeats=repeats if at % 3 == 0 else 1) for at in range(sum(sizes))]
    buckets, start = [], 0
    for size in sizes:
        buckets.append(range(start, start + size))
        start += size
    return Schedule(examples, buckets, batch=batch, seed=seed, **options)


def read_epoch(schedule: Schedule, epoch: int, hosts: int = 1) -> list[list[Row]]:
    steps = range(epoch * schedule.steps_per_epoch, (epoch + 1) * schedule.steps_per_epoch)
    parts = [[schedule.rows(step, host=host, hosts=hosts) for host in range(hosts)] for step in steps]
    return [[row for rows in zip(*step, strict=True) for row in rows] for step in parts]


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5).filter(any),
    share=st.integers(1, 7),
    hosts=st.integers(1, 4),
    repeats=st.integers(1, 5),
    epoch=st.integers(0, 3),
)
def test_each_picture_comes_exactly_as_often_as_it_should(
    sizes: list[int], share: int, hosts: int, repeats: int, epoch: int
) -> None:
    schedule = make_schedule(sizes, share * hosts, repeats=repeats)
    steps = read_epoch(schedule, epoch, hosts)
    used = Counter((row.index, row.occurrence) for rows in steps for row in rows if row.weight)
    expected = {(at, turn) for at in range(sum(sizes)) for turn in range(repeats if at % 3 == 0 else 1)}
    assert used == Counter(expected)
    assert all(len(rows) == share * hosts and any(row.weight for row in rows) for rows in steps)
    for step, rows in enumerate(steps, epoch * schedule.steps_per_epoch):
        bucket = schedule.find_bucket(step)
        start = sum(sizes[:bucket])
        assert all(start <= row.index < start + sizes[bucket] and row.epoch == epoch for row in rows)
        assert rows == schedule.rows(step), "hosts take turns in the rows of one"


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    first = [make_schedule([7, 5], 4).rows(step) for step in range(20)]
    again = make_schedule([7, 5], 4)
    assert [again.rows(step) for step in reversed(range(20))] == first[::-1]
    assert [make_schedule([7, 5], 4, seed=1).rows(step) for step in range(20)] != first


def test_epochs_differ_in_order() -> None:
    schedule = make_schedule([40, 40], 4)
    orders = [tuple(row.index for rows in read_epoch(schedule, epoch) for row in rows) for epoch in range(4)]
    assert len(set(orders)) == 4
    assert len({tuple(schedule.find_bucket(step) for step in range(at, at + 20)) for at in (0, 20, 40)}) == 3


def test_filled_rows_count_nothing_and_show_a_picture_of_the_batch() -> None:
    (rows,) = read_epoch(make_schedule([3], 8), 0)
    assert [row.weight for row in rows] == [1.0] * 3 + [0.0] * 5
    assert {row.index for row in rows[3:]} <= {row.index for row in rows[:3]}


def test_prior_pictures_weigh_what_is_asked() -> None:
    examples = [make_example("a"), make_example("b", is_prior=True)]
    rows = Schedule(examples, [(0, 1)], batch=4, seed=0, prior_weight=0.25).rows(0)
    assert {row.index: row.weight for row in rows if row.weight} == {0: 1.0, 1: 0.25}


def test_half_of_the_rows_are_flipped_and_places_are_drawn_evenly() -> None:
    schedule = make_schedule([50], 10, flips=True, crops=4)
    rows = [row for epoch in range(40) for rows in read_epoch(schedule, epoch) for row in rows]
    assert sum(row.flip for row in rows) / len(rows) == pytest.approx(0.5, abs=0.04)
    places = Counter(row.crop for row in rows)
    assert set(places) == {0, 1, 2, 3} and min(places.values()) > 400
    assert {(row.flip, row.crop) for row in make_schedule([9], 4).rows(0)} == {(False, None)}


def test_what_cannot_be_drawn_or_shared_is_refused() -> None:
    with pytest.raises(BatchError, match="0 pictures"):
        Schedule([], [], batch=4, seed=0)
    with pytest.raises(BatchError, match="multiple of 3"):
        make_schedule([4], 4).rows(0, hosts=3)


def test_validation_holds_out_by_content_alone() -> None:
    examples = [make_example(f"{at}.png", known_content=str(at // 2)) for at in range(40)]
    trained, held = hold_out(examples, 0.2)
    assert len(held) == 8 and {one.content for one in held}.isdisjoint(one.content for one in trained)
    renamed = [make_example(f"x{one.id}", known_content=one.content) for one in reversed(examples)]
    assert {one.content for one in hold_out(renamed, 0.2)[1]} == {one.content for one in held}
    assert len(hold_out(examples[:2], 0.05)[1]) == 0, "what is the only picture is trained"
    assert len(hold_out(examples[:4], 0.05)[1]) == 2
    assert hold_out(examples, 0.0) == (tuple(examples), ())


def test_pictures_of_a_validation_folder_are_not_trained() -> None:
    examples = [make_example("a"), make_example("b"), make_example("p", known_content="b", is_prior=True)]
    trained, held = hold_out(examples, [make_example("other/b", known_content="b")])
    assert [one.id for one in trained] == ["a", "p"]
    assert [one.id for one in held] == ["other/b"]
