"""Training shows every motion with each of its places, kinds, colours and times, but never a held-out combination."""

from collections import Counter

import numpy as np
import pytest

from pipelines.demos.motions import MOTIONS, draw_clip, is_held_out
from pipelines.demos.motions.choice import is_combination_held_out, list_combinations
from pipelines.demos.motions.clip import MOVING, STILL


def test_training_never_draws_a_held_out_clip() -> None:
    rng = np.random.default_rng(0)
    assert not any(is_held_out(draw_clip(rng)) for _ in range(1000))


@pytest.mark.parametrize("motion", MOVING)
def test_each_motion_holds_out_some_combinations_and_shows_every_attribute(motion: str) -> None:
    combinations = list(list_combinations(motion))
    shown = [combination for combination in combinations if not is_combination_held_out(combination)]
    assert 2 <= len(combinations) - len(shown) <= 0.2 * len(combinations)
    for attribute in range(1, 5):
        assert {combination[attribute] for combination in shown} == {
            combination[attribute] for combination in combinations
        }


def test_motions_are_drawn_alike_and_stillness_now_and_then() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(draw_clip(rng).motion for _ in range(3000))
    assert set(counts) == set(MOTIONS)
    assert max(counts[motion] for motion in MOVING) < 1.4 * min(counts[motion] for motion in MOVING)
    assert 0.04 < counts[STILL] / counts.total() < 0.1
