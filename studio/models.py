"""The catalogue of this studio's data directory, read anew while it runs.

A folder that arrives in `models/`, or leaves, or an entry of models.toml counts without a restart, in the app and in
the worker. Reading costs milliseconds, so the app, which asks for the catalogue many times a request, reads it at most
once a second, and the worker once a job.
Not here: what the files mean (pipelines/models/catalog.py).
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence

from pipelines.errors import LumeshError
from pipelines.messages import english
from pipelines.models.catalog import Catalog, read_data_dir
from pipelines.models.model import Model
from pipelines.models.own_models import TEXT_ENCODERS
from pipelines.program_sets import choose_prewarmed
from studio.settings import Settings

REREAD_S = 1.0


def read_catalog(settings: Settings) -> Catalog:
    """Reads the catalogue as it is now; a model may lack a text encoder's weights where another machine has them."""

    def is_enough(model: Model, lacking: Collection[str]) -> bool:
        return TEXT_ENCODERS.issuperset(lacking) and settings.find_text_encoder(model) is not None

    return read_data_dir(settings.data_dir).with_partial(is_enough).with_weights(settings.weights)


def check_prewarm(entries: Sequence[str], catalog: Catalog) -> None:
    """Raises LumeshError for a value of `--prewarm` that would compile nothing, ModelError for an unknown model."""
    for entry in entries:
        owner = entry.rpartition(":")[0]
        models = [catalog.get(owner)] if owner else catalog.models
        if any(choose_prewarmed([entry], model) for model in models):
            continue
        known = f"{owner} has {models[0].shape_list()}" if owner else "no model has this size"
        raise LumeshError(
            english(f"--prewarm {entry} names nothing to compile: {known}, or not for so many images or pictures."),
            advice=english(
                "Write WIDTHxHEIGHT of one of its sizes, +N for input pictures of a model that compiles for them, and "
                f"*N for at most {max(model.max_batch_size for model in models)} images at once."
            ),
            title=english("Nothing to compile"),
        )


class LiveCatalog:
    """A catalogue that `read` reads anew when the last reading is older than `REREAD_S`; safe on any thread."""

    def __init__(
        self, catalog: Catalog, read: Callable[[], Catalog], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._read = read
        self._clock = clock
        self._read_at = clock()
        self._lock = threading.Lock()

    @property
    def now(self) -> Catalog:
        """The catalogue, at most `REREAD_S` old."""
        if self._clock() - self._read_at >= REREAD_S:
            with self._lock:
                if self._clock() - self._read_at >= REREAD_S:  # another thread may have read it meanwhile
                    self._catalog = self._read()
                    self._read_at = self._clock()
        return self._catalog
