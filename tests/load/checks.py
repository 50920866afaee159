"""What must be true of a studio after any load: no job lost or made twice, no event missing."""

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from studio.database import open_database
from studio.jobs.job import EVENT_OF_STATE
from studio.jobs.states import JobState

ENDS = {EVENT_OF_STATE[state] for state in JobState if state.is_final}


def find_mistakes(data_dir: Path, submitted: Sequence[str], *, batch_size: int = 1) -> list[str]:
    """One line for each thing that is wrong; every job here is one of `submitted`, and must be done."""
    with closing(open_database(data_dir / "jobs.db")) as database:
        jobs = {row["id"]: row["state"] for row in database.read("SELECT id, state FROM jobs")}
        events = database.read("SELECT id, kind, job_id FROM events ORDER BY id")
        outputs = database.read("SELECT job_id, file FROM outputs")
    mistakes = [f"job {job_id} was answered twice" for job_id, count in Counter(submitted).items() if count > 1]
    mistakes += [f"job {job_id} is unknown" for job_id in set(submitted) - set(jobs)]
    mistakes += [f"job {job_id} was never asked for" for job_id in set(jobs) - set(submitted)]
    mistakes += [f"job {job_id} is {state}" for job_id, state in jobs.items() if state != JobState.DONE]
    ends = Counter(event["job_id"] for event in events if event["kind"] in ENDS)
    mistakes += [f"job {job_id} ended {ends[job_id]} times" for job_id in jobs if ends[job_id] != 1]
    made = Counter(output["job_id"] for output in outputs)
    mistakes += [f"job {job_id} has {made[job_id]} outputs" for job_id in jobs if made[job_id] != batch_size]
    files = {output["file"] for output in outputs}
    if len(files) != len(outputs):
        mistakes.append("two outputs share a file")
    mistakes += [f"{file} is missing" for file in files if not (data_dir / "outputs" / file).is_file()]
    gaps = [later["id"] for earlier, later in itertools.pairwise(events) if later["id"] != earlier["id"] + 1]
    return mistakes + [f"there is a gap before event {event_id}" for event_id in gaps]
