"""Clips that this small world does not have are refused."""

import pytest

from pipelines.demos.motions import Clip, ClipError
from pipelines.demos.postcards import Scene, Subject

BOAT = Subject(kind="sailboat", colour="red")
OCEAN = Scene(time="noon", place="ocean", subjects=(BOAT,), weather="clear", layout=0)


def test_an_unknown_motion_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ClipError, match="sails left, sails right"):
        Clip(scene=OCEAN, motion="sinks")


def test_a_motion_needs_a_scene_it_suits() -> None:
    with pytest.raises(ClipError, match="does not suit 'snow falls'"):
        Clip(scene=OCEAN, motion="snow falls")


def test_two_subjects_are_one_too_many() -> None:
    subjects = (BOAT, Subject(kind="lighthouse", colour="red"))
    with pytest.raises(ClipError, match="one subject at most"):
        Clip(scene=Scene(time="noon", place="ocean", subjects=subjects, weather="clear", layout=0), motion="sails left")


def test_any_scene_that_can_move_can_stand_still() -> None:
    assert Clip(scene=OCEAN, motion="still").motion == "still"
