"""What a worker can do: a runner for each kind of job.

A runner runs a claimed job to its end, and may claim others to run with it. What it raises ends the job: Cancelled as
somebody wished, anything else with a card. Whoever adds a kind adds a runner here; the queue knows no kinds.
"""

from collections.abc import Callable, Mapping

from studio.jobs.job import GENERATE, Job
from studio.worker.bench import Bench
from studio.worker.runners import generate

Runner = Callable[[Bench, Job], None]

RUNNERS: Mapping[str, Runner] = {GENERATE: generate.run}
