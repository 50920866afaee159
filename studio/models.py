"""The catalogue of this studio's data directory, read anew while it runs.

A folder that arrives in `models/`, or leaves, or an entry of models.toml counts without a restart, in the app and in
the worker. Reading costs milliseconds, so the app, which asks for the catalogue many times a request, reads it at most
once a second, and the worker once a job.
Not here: what the files mean (pipelines/catalog.py).
"""

import threading
import time
from collections.abc import Callable, Collection

from pipelines.catalog import Catalog, read_data_dir
from pipelines.model import Model
from pipelines.own_models import TEXT_ENCODERS
from studio.settings import Settings

REREAD_S = 1.0


def read_catalog(settings: Settings) -> Catalog:
    """Reads the catalogue as it is now; a model may lack a text encoder's weights where another machine has them."""

    def is_enough(model: Model, lacking: Collection[str]) -> bool:
        return TEXT_ENCODERS.issuperset(lacking) and settings.find_text_encoder(model) is not None

    return read_data_dir(settings.data_dir).with_partial(is_enough)


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
