"""What a training says while it learns is for people; standard output is for the place of its result."""

from typing import Any, cast

import pytest

from pipelines.commands.training_terminal import TrainingTerminal
from pipelines.training.checks import Checked

NO_CHECKED = cast("Checked", None)  # these events say nothing of what was checked


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"event": "note", "text": "a state could not be saved"}, "a state could not be saved"),
        ({"event": "sample", "step": 4, "file": "/x/a.png"}, "step 4: /x/a.png"),
        ({"event": "resumed", "step": 6}, "going on after step 6"),
        (
            {"event": "validation", "step": 6, "validation_loss": 0.25},
            "step 6: the loss of what is held back is 0.2500",
        ),
        ({"event": "validation", "step": 6, "validation_loss": None}, "the loss of what is held back is no number"),
    ],
)
def test_events_are_told_beside_standard_output(
    capsys: pytest.CaptureFixture[str], event: dict[str, Any], said: str
) -> None:
    TrainingTerminal(NO_CHECKED, is_json=False).hear(event)
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""
