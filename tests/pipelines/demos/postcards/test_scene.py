"""Scenes that this small world does not have are refused."""

import pytest

from pipelines.demos.postcards import WEATHERS, Scene, SceneError, Subject


def test_impossible_scenes_are_refused_with_what_is_allowed() -> None:
    with pytest.raises(SceneError, match="sunrise, noon, sunset, night"):
        Scene(time="tea time", place="ocean", subjects=(), weather="clear", layout=0)
    with pytest.raises(SceneError, match="red, blue"):
        Subject(kind="house", colour="pink")
    with pytest.raises(SceneError, match="at most two"):
        Scene(
            time="noon",
            place="ocean",
            subjects=(Subject(kind="house", colour="red"), Subject(kind="house", colour="blue")),
            weather=WEATHERS[0],
            layout=0,
        )
