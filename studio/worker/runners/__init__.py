"""The runners: one for each kind of job.

A runner runs a claimed job to its end, and may claim others to run with it. An exception ends the job: Cancelled as
cancelled, any other as failed with a card. A new kind needs a runner here; the queue does not distinguish kinds.
"""

from collections.abc import Callable, Mapping

from studio.jobs.job import GENERATE, TRAIN, Job
from studio.worker.bench import Bench
from studio.worker.runners import generate, train

Runner = Callable[[Bench, Job], None]

RUNNERS: Mapping[str, Runner] = {GENERATE: generate.run, TRAIN: train.run}
