"""The files of the studio that a job needs, by the hash of their bytes, to be sent to a worker that lacks them."""

from pathlib import Path

from pipelines.loras import find_lora_file
from studio.cluster.protocol import Attachment
from studio.cluster.stock import Hashes
from studio.database import Database
from studio.jobs.job import Job
from studio.library import inputs
from studio.settings import Settings


class Attachments:
    """Finds, hashes and reads files; each is hashed again only when it changed."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._hashes = Hashes()
        self._files: dict[str, Path] = {}

    def find(self, job: Job) -> tuple[list[Attachment], list[Attachment]]:
        """Returns a job's pictures, and its LoRAs as far as they are here; raises InputGoneError.

        A LoRA that is not here may be on the worker's machine, which says so if it is not.
        """
        pictures = inputs.find_files(self._database, self._settings, job.recipe.images, owner=job.owner)
        loras = [
            self._attach(file, ref=lora.ref)
            for lora in job.recipe.loras
            if (file := find_lora_file(lora.ref, self._settings.loras_dir)) is not None
        ]
        return [self._attach(file) for file in pictures], loras

    def read(self, one: Attachment) -> bytes:
        """Returns the bytes of a file that was found."""
        return self._files[one.sha].read_bytes()

    def _attach(self, file: Path, *, ref: str = "") -> Attachment:
        sha = self._hashes.find(file)
        self._files[sha] = file
        return Attachment(sha=sha, name=file.name, size=file.stat().st_size, ref=ref)
