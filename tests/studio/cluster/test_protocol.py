"""What dispatcher and worker tell each other survives the wire: JSON there and back is the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines.messages import say, write_code
from studio.cluster import protocol
from studio.database import Database
from studio.jobs import claims
from studio.jobs.costs.estimates import History, Measured
from studio.jobs.job import Job
from studio.library.files import save_outputs
from studio.worker.desk import Made

MEASURED = Measured(model="demo-sdxl", shape="512x512", batch_size=1, step_s=0.5)


def test_a_job_arrives_as_it_was_claimed(database: Database, submit: Callable[..., Job]) -> None:
    submit(negative_prompt="fog")
    job = claims.claim_next(database, "two", resident=None)
    assert job is not None
    job = replace(job, notes=[say("{count} jobs", count=2)])
    found = protocol.read_job(json.loads(json.dumps(protocol.write_job(job))))
    assert found == job
    assert (found.claim, found.state) == (job.claim, job.state)


def test_a_result_arrives_with_its_recipes_measurements_and_notes_that_can_be_translated(
    submit: Callable[..., Job], tmp_path: Path
) -> None:
    files = save_outputs(tmp_path, "a", np.zeros((2, 16, 16, 3), np.uint8), submit(batch_size=2).recipe)
    note = say("{count} jobs", count=2)
    made = Made(
        files=files,
        made_at=1.5,
        made_with={"device": "a chip"},
        timings={"total_s": 2.0},
        compiles=1,
        revision="abc",
        measured=MEASURED,
        notes=(note,),
    )
    found = protocol.read_made(json.loads(json.dumps(protocol.write_made(made))))
    assert (list(found.files), found.measured, found.timings) == (list(made.files), MEASURED, made.timings)
    assert write_code(found.notes[0]) == write_code(note)
    assert protocol.read_made(protocol.write_made(replace(made, measured=None))).measured is None


def test_the_history_of_a_model_is_sent_and_no_other() -> None:
    history = History((MEASURED, replace(MEASURED, model="other")))
    rows = protocol.write_history(history, "demo-sdxl")
    assert protocol.read_history(json.loads(json.dumps(rows))) == History((MEASURED,))
