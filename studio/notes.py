"""Notes of a job: what is not followed as it was asked, or happened since, as sentences in the column `notes`."""

import json
from collections.abc import Iterable

from pipelines.messages import Message, add_codes, read_codes, say

BEGINS_ANEW = say("What it had learnt was deleted to make room; it begins anew.")
"""The note of an ended training that lost its state, until it is queued again."""


def write_notes(notes: Iterable[Message]) -> str:
    """Returns notes, each once, as the column `notes` keeps them."""
    return json.dumps(add_codes({"notes": [*dict.fromkeys(notes)]}))


def read_notes(text: str) -> list[Message]:
    """Undoes write_notes."""
    return read_codes(json.loads(text))["notes"]
