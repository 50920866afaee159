"""The states of a job, their meanings, and the allowed moves between them, written once.

`job.move` turns a move into one conditional UPDATE, so two processes can never both make it.
"""

from enum import StrEnum
from typing import Self


class MeaningfulEnum(StrEnum):
    """A text enum whose members also carry their `meaning` in words for people: `QUEUED = "queued", "waits"`."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class JobState(MeaningfulEnum):
    """A state's value is its name in REST and in the database."""

    QUEUED = "queued", "waits for its turn; kept over restarts"
    RUNNING = "running", "the worker holds it"
    DONE = "done", "its outputs are in the library"
    FAILED = "failed", "ended by an error, which says what to try"
    CANCELLED = "cancelled", "ended because somebody asked for it"
    INTERRUPTED = "interrupted", "was running when the server stopped; nobody knows how far it came"
    PAUSED = "paused", "a training whose state is saved; it goes on when it is queued again"

    @property
    def is_final(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


# target state -> the states from which it can be reached
MOVES: dict[JobState, tuple[JobState, ...]] = {
    JobState.RUNNING: (JobState.QUEUED,),
    JobState.DONE: (JobState.RUNNING,),
    JobState.FAILED: (JobState.RUNNING,),
    JobState.CANCELLED: (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED),
    JobState.INTERRUPTED: (JobState.RUNNING,),
    JobState.PAUSED: (JobState.QUEUED, JobState.RUNNING),
    # Ended jobs by a retry; running ones when a server that was told to stop could not finish them.
    JobState.QUEUED: (
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.INTERRUPTED,
        JobState.PAUSED,
        JobState.RUNNING,
    ),
}
