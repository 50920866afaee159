"""A trace lies where it says, and one that cannot be written costs nobody a picture."""

import logging
from pathlib import Path

import jax.numpy as jnp
import pytest

from pipelines.runtime.programs.profiling import HOW_TO_OPEN, describe_trace, trace_to


def test_without_a_trace_there_is_a_sentence(tmp_path: Path) -> None:
    assert describe_trace(tmp_path).startswith(f"JAX's profiler left no trace of this job in {tmp_path}: ")


# One after the other in one process: JAX does not let go of a session that it could not write.
def test_a_job_whose_trace_cannot_be_written_ends_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "traces"
    with trace_to(folder):
        (jnp.ones(8) + 1).block_until_ready()
    assert describe_trace(folder).endswith(f"perfetto_trace.json.gz: {HOW_TO_OPEN}.")
    (file := tmp_path / "file").touch()
    made = []
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with trace_to(file):
                made.append(float(jnp.ones(8).sum()))
    assert made == [8, 8]
    assert [record.message.partition(":")[0] for record in caplog.records] == ["JAX's profiler failed"] * 2
