"""The files of the studio that a job needs, by the hash of their bytes, to be sent to a worker that lacks them."""

from collections.abc import Sequence
from pathlib import Path

from pipelines.files.whole import write_whole
from pipelines.loras.files import find_lora_file
from pipelines.loras.settings import ADAPTER_CONFIG, ADAPTER_MODEL, find_adapter_config
from studio.cluster.protocol import Attachment
from studio.cluster.stock import Hashes
from studio.database import Database
from studio.jobs.job import TRAIN, Job
from studio.library import inputs, training_packs, training_starts
from studio.settings import Settings


class Attachments:
    """Finds, hashes and reads files; each is hashed again only when it changed."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._packs = settings.data_dir / "cache" / "sending"
        self._hashes = Hashes()
        self._files: dict[str, Path] = {}

    def find(self, job: Job) -> tuple[list[Attachment], list[Attachment]]:
        """Returns a job's pictures, and its LoRAs as far as they are here; raises InputGoneError."""
        refs = [lora.ref for lora in job.recipe.loras]
        return self.find_pictures(job, job.recipe.images), self.find_loras(refs)

    def find_loras(self, refs: Sequence[str]) -> list[Attachment]:
        """Returns LoRAs as far as they are here.

        One that is not may be on the worker's machine, which says so if it is not. One with peft's description beside
        it goes as a folder of peft's.
        """
        loras: list[Attachment] = []
        for ref in refs:
            file = find_lora_file(ref, self._settings.loras_dir)
            config = None if file is None else find_adapter_config(file)
            if file is not None:
                loras.append(self._attach(file, ref=ref, name=ADAPTER_MODEL if config is not None else ""))
            if config is not None:
                loras.append(self._attach(config, ref=ref, name=ADAPTER_CONFIG))
        return loras

    def find_pictures(self, job: Job, ids: Sequence[str]) -> list[Attachment]:
        """Returns pictures of a job's owner; raises InputGoneError."""
        view = "lessons" if job.kind == TRAIN else "inputs"
        files = inputs.find_files(self._database, self._settings, ids, owner=job.owner, view=view)
        return [self._attach(file) for file in files]

    def pack_training(self, job: Job, *, start: str | None) -> Attachment | None:
        """Returns a training's work so far, with the LoRA `start` that it learns on from; None where it has neither.

        Raises StartGoneError.
        """
        folder = self._settings.training_dir / job.id
        if start is not None:
            training_starts.keep_start(folder, start, self._settings.loras_dir)
        packed = training_packs.pack(folder)
        if packed is None:
            return None
        file = self._find_pack(job)
        write_whole(file, packed, is_flushed=False)
        return self._attach(file)

    def forget_pack(self, job: Job) -> None:
        """Deletes what was packed of a training."""
        self._find_pack(job).unlink(missing_ok=True)

    def forget_packs(self) -> None:
        """Deletes what an earlier dispatcher, which was killed, had packed; nobody may be sending."""
        for file in self._packs.glob("*.zip"):
            file.unlink(missing_ok=True)

    def read(self, one: Attachment) -> bytes:
        """Returns the bytes of a file that was found."""
        return self._files[one.sha].read_bytes()

    def _find_pack(self, job: Job) -> Path:
        return self._packs / f"{job.id}-{job.attempt}.zip"  # an earlier attempt's may still be sent

    def _attach(self, file: Path, *, ref: str = "", name: str = "") -> Attachment:
        sha = self._hashes.find(file)
        self._files[sha] = file
        return Attachment(sha=sha, name=name or file.name, size=file.stat().st_size, ref=ref)
