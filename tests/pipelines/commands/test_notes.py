"""What a command says of its work: once for people, under `notes` for scripts."""

import pytest

from pipelines.commands.notes import Notes
from pipelines.messages import english


@pytest.mark.parametrize("is_silent", [False, True])
def test_each_sentence_is_said_once(capsys: pytest.CaptureFixture[str], is_silent: bool) -> None:  # noqa: FBT001
    notes = Notes(is_silent=is_silent)
    for sentence in ("A is left out.", "B is cut.", "A is left out."):
        notes.add([english(sentence)])
    assert notes.all == ["A is left out.", "B is cut."]
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "" if is_silent else "A is left out.\nB is cut.\n")
