"""An example of every route, as /api/docs and the OpenAPI document show it: what is sent.

They tell one small story, in which things keep their ids. Tests send each of them. Whoever adds a route adds its
example: a route without one fails the tests.
Not here: what comes back (answers/), how both get into the document (describe.py).
"""

from studio.api.examples import grids, jobs, loras, openai, outputs, presets, queue, studio, system, uploads
from studio.api.examples.example import Example

EXAMPLES: tuple[Example, ...] = (
    *studio.EXAMPLES,
    *jobs.EXAMPLES,
    *queue.EXAMPLES,
    *grids.EXAMPLES,
    *outputs.EXAMPLES,
    *uploads.EXAMPLES,
    *loras.EXAMPLES,
    *presets.EXAMPLES,
    *system.EXAMPLES,
    *openai.EXAMPLES,
)
