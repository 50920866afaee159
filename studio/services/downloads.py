"""Downloads that an admin asked for, one after the other; each may be paused and goes on where it stopped.

They are models of the catalogue, and files that are to be models or LoRAs.

What has arrived is in the hub's cache or the data directory, so a restart of the studio loses nothing but the list of
who waits.
Not here: the files (pipelines/runtime/weights), what a job lacks when it starts (its worker downloads that itself).
"""

import hashlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pipelines.errors import Cancelled, LumeshError
from pipelines.messages import NOTHING, Message, add_codes, join, say
from pipelines.models.catalog import Model
from pipelines.models.model_manager import download_model
from pipelines.web.web_files import OnBytes

log = logging.getLogger(__name__)


class CannotDownloadError(LumeshError):
    """There is nothing to download."""

    title = say("This cannot be downloaded")
    status = 409


@dataclass(frozen=True, kw_only=True)
class Download:
    """A download: `waiting` for another one, `running`, `paused`, `done` or `failed`; sizes in bytes.

    Its id is a model's; or that of an arrival, which has a `kind` (`model` or `lora`), a `title` that says where it
    comes from, and once it is done what it `made`: the model's id, or the LoRA's name.
    """

    id: str
    kind: str = ""
    title: str = ""
    made: str = ""
    state: str = "waiting"
    done_bytes: int = 0
    total_bytes: int = 0
    error: Message = NOTHING

    def to_json(self) -> dict[str, Any]:
        sizes = {"done_bytes": self.done_bytes, "total_bytes": self.total_bytes}
        return {"state": self.state, **sizes, **add_codes({"error": self.error})}

    def describe_arrival(self) -> dict[str, Any]:
        """Describes a file on its way for REST."""
        return {"id": self.id, "kind": self.kind, "title": self.title, "made": self.made or None, **self.to_json()}


def name_arrival(kind: str, title: str, version: str = "") -> Download:
    """Returns a file's download, whose id is that of its source: asked for twice it is one."""
    arrival_id = hashlib.sha256(f"{kind} {title} {version}".encode()).hexdigest()[:12]
    return Download(id=f"{kind}:{arrival_id}", kind=kind, title=title)


Fetch = Callable[[Model, OnBytes], object]
"""Downloads a model."""

Bring = Callable[[OnBytes], str]
"""Downloads a file, and returns the id of the model or the name of the LoRA that it is."""


def fetch(model: Model, on_bytes: OnBytes) -> None:
    download_model(model, on_bytes=on_bytes)


class Downloads:
    """Downloads in a thread of its own while there are any; safe on any thread."""

    def __init__(self, fetch: Fetch = fetch) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._downloads: dict[str, Download] = {}
        self._brings: dict[str, Bring] = {}
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

        def bring(on_bytes: OnBytes) -> str:
            self._fetch(model, on_bytes)
            return model.id

        return self.bring(Download(id=model.id), bring)

    def bring(self, wanted: Download, bring: Bring) -> Download:
        """Puts a download into the line, or lets a paused or failed one of the same id go on."""
        with self._lock:
            known = self._downloads.get(wanted.id)
            if known is None or known.state not in ("waiting", "running"):
                known = wanted
                self._downloads.pop(wanted.id, None)  # at the end of the line
                self._downloads[wanted.id] = known
                self._brings[wanted.id] = bring
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="downloads", daemon=True)
                self._thread.start()
            return known

    def go_on(self, download_id: str) -> Download | None:
        """Lets a paused or failed arrival go on; None if there is none of this id."""
        with self._lock:
            known, bring = self._downloads.get(download_id), self._brings.get(download_id)
        if known is None or bring is None:
            return None
        fresh = Download(id=known.id, kind=known.kind, title=known.title)
        return self.bring(fresh, bring) if known.state in ("paused", "failed") else known

    def list_arrivals(self) -> list[Download]:
        """Lists the files that are to be models or LoRAs, in the order in which they were asked for."""
        with self._lock:
            return [one for one in self._downloads.values() if one.kind]

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
            self._brings.pop(model_id, None)

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            download_id, bring = taken
            try:
                made = bring(lambda done, total, of=download_id: self._note(of, done, total))
            except Cancelled:
                continue
            except LumeshError as error:
                self._end(download_id, "failed", error=join([error.detail, error.advice]))
            except Exception as error:
                log.exception("the download of %s", download_id)
                self._end(download_id, "failed", error=say("It failed: {error}.", error=error))
            else:
                self._end(download_id, "done", made=made)

    def _take(self) -> tuple[str, Bring] | None:
        """Returns the next download; without one the thread ends."""
        with self._lock:
            for name, one in self._downloads.items():
                if one.state == "waiting":
                    self._downloads[name] = replace(one, state="running")
                    return name, self._brings[name]
            self._thread = None
            return None

    def _note(self, model_id: str, done: int, total: int) -> None:
        with self._lock:
            known = self._downloads.get(model_id)
            if known is None or known.state != "running":
                raise Cancelled
            self._downloads[model_id] = replace(known, done_bytes=done, total_bytes=total)

    def _end(self, model_id: str, state: str, *, error: Message = NOTHING, made: str = "") -> None:
        with self._lock:
            known = self._downloads.get(model_id)
            if known is not None and known.state == "running":
                self._downloads[model_id] = replace(known, state=state, error=error, made=made)
