"""What a person sees and wants of a running job, on several hosts: the first one asks, and the others do the same.

A preview is a program on all devices, and whoever stops must stop on all hosts behind the same chunk.
"""

from dataclasses import replace

import numpy as np

from pipelines.errors import Cancelled
from pipelines.runtime.devices import hosts
from pipelines.stages import OnProgress, Progress

_TOPIC = "what is done between chunks"
_PREVIEW, _STOP, _GO_ON = "preview", "stop", "go on"


def tell_together(on_progress: OnProgress, progress: Progress) -> None:
    """Calls `on_progress` on all hosts, where only the leader's may draw a preview, or raise to stop.

    The others then draw, too, or raise Cancelled.
    """
    draw = progress.draw_preview
    if hosts.count() == 1 or draw is None:
        on_progress(progress)
    elif hosts.is_leader():

        def draw_on_all() -> np.ndarray:
            hosts.agree(_TOPIC, _PREVIEW)
            return draw()

        try:
            on_progress(replace(progress, draw_preview=draw_on_all))
        except BaseException:
            hosts.agree(_TOPIC, _STOP)
            raise
        hosts.agree(_TOPIC, _GO_ON)
    else:
        while (said := hosts.agree(_TOPIC, None)) == _PREVIEW:
            draw()
        if said == _STOP:
            raise Cancelled
        on_progress(replace(progress, draw_preview=None))
