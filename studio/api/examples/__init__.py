"""Example requests for every route, shown by /api/docs and the OpenAPI document.

The examples share one small set of things with fixed ids. Tests send each of them; a new route without an example fails
the tests.
Not here: examples of answers (answers/), how both get into the document (describe.py).
"""

from studio.api.examples import (
    accounts,
    grids,
    jobs,
    loras,
    models,
    openai,
    outputs,
    presets,
    queue,
    studio,
    system,
    trainings,
    uploads,
    workers,
)
from studio.api.examples.example import Example

EXAMPLES: tuple[Example, ...] = (
    *studio.EXAMPLES,
    *jobs.EXAMPLES,
    *queue.EXAMPLES,
    *trainings.EXAMPLES,
    *grids.EXAMPLES,
    *outputs.EXAMPLES,
    *uploads.EXAMPLES,
    *loras.EXAMPLES,
    *models.EXAMPLES,
    *presets.EXAMPLES,
    *system.EXAMPLES,
    *workers.EXAMPLES,
    *accounts.EXAMPLES,
    *openai.EXAMPLES,
)
