"""Downloads of models that an admin asked for, one after the other; each may be paused and goes on where it stopped.

What has arrived is in the hub's cache, so a restart of the studio loses nothing but the list of who waits.
Not here: the files (pipelines/runtime/weights), what a job lacks when it starts (its worker downloads that itself).
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pipelines.catalog import Model
from pipelines.errors import Cancelled, LumeshError
from pipelines.messages import NOTHING, Message, add_codes, join, say
from pipelines.model_manager import download_model

log = logging.getLogger(__name__)


class CannotDownloadError(LumeshError):
    """There is nothing to download."""

    title = say("This cannot be downloaded")
    status = 409


@dataclass(frozen=True, kw_only=True)
class Download:
    """A download: `waiting` for another one, `running`, `paused`, `done` or `failed`; sizes in bytes."""

    model: str
    state: str = "waiting"
    done_bytes: int = 0
    total_bytes: int = 0
    error: Message = NOTHING

    def to_json(self) -> dict[str, Any]:
        sizes = {"done_bytes": self.done_bytes, "total_bytes": self.total_bytes}
        return {"state": self.state, **sizes, **add_codes({"error": self.error})}


Fetch = Callable[[Model, Callable[[int, int], None]], object]
"""Downloads a model; what it is given is called with the bytes that have arrived and those of all, and may raise."""


def fetch(model: Model, on_bytes: Callable[[int, int], None]) -> None:
    download_model(model, on_bytes=on_bytes)


class Downloads:
    """Downloads in a thread of its own while there are any; safe on any thread."""

    def __init__(self, fetch: Fetch = fetch) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._downloads: dict[str, Download] = {}
        self._models: dict[str, Model] = {}
        self._thread: threading.Thread | None = None

    def find(self, model_id: str) -> Download | None:
        """Returns how far a model is; None when nobody asked for it since the start."""
        with self._lock:
            return self._downloads.get(model_id)

    def start(self, model: Model) -> Download:
        """Puts a model into the line, or lets a paused or failed one go on; raises CannotDownloadError."""
        if model.path is not None:
            raise CannotDownloadError(
                say("{model} is a folder on this machine.", model=model.id), advice=say("It needs no download.")
            )
        with self._lock:
            known = self._downloads.get(model.id)
            if known is None or known.state not in ("waiting", "running"):
                known = Download(model=model.id)
                self._downloads.pop(model.id, None)  # at the end of the line
                self._downloads[model.id] = known
                self._models[model.id] = model
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="downloads", daemon=True)
                self._thread.start()
            return known

    def pause(self, model_id: str) -> None:
        """Stops a download; what has arrived is kept. Nothing happens to one that ended."""
        with self._lock:
            known = self._downloads.get(model_id)
            if known is not None and known.state in ("waiting", "running"):
                self._downloads[model_id] = replace(known, state="paused")

    def forget(self, model_id: str) -> None:
        """Stops a download and forgets it, because its files are deleted."""
        self.pause(model_id)
        with self._lock:
            self._downloads.pop(model_id, None)

    def _work(self) -> None:
        while (model := self._take()) is not None:
            try:
                self._fetch(model, lambda done, total, of=model.id: self._note(of, done, total))
            except Cancelled:
                continue
            except LumeshError as error:
                self._end(model.id, "failed", error=join([error.detail, error.advice]))
            except Exception as error:
                log.exception("the download of %s", model.id)
                self._end(model.id, "failed", error=say("It failed: {error}.", error=error))
            else:
                self._end(model.id, "done")

    def _take(self) -> Model | None:
        """Returns the next model to download; without one the thread ends."""
        with self._lock:
            for name, one in self._downloads.items():
                if one.state == "waiting":
                    self._downloads[name] = replace(one, state="running")
                    return self._models[name]
            self._thread = None
            return None

    def _note(self, model_id: str, done: int, total: int) -> None:
        with self._lock:
            known = self._downloads.get(model_id)
            if known is None or known.state != "running":
                raise Cancelled
            self._downloads[model_id] = replace(known, done_bytes=done, total_bytes=total)

    def _end(self, model_id: str, state: str, *, error: Message = NOTHING) -> None:
        with self._lock:
            known = self._downloads.get(model_id)
            if known is not None and known.state == "running":
                self._downloads[model_id] = replace(known, state=state, error=error)
