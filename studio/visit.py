"""Authorization: who asks, and what they may access; every protocol gets jobs and files through here.

api/middleware/auth.py has identified the visitor. Other people's things raise the same NotFoundError as things that do
not exist; admins see everything, and with a shared gallery everybody sees everybody's outputs and presets.
Not here: queueing (asking.py), how a route gets its Visit (api/visitor.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError
from pipelines.messages import say
from studio.access.people import Person
from studio.access_settings import EVERYBODY, Mode
from studio.context import Studio
from studio.database import Database
from studio.jobs import queue, trainings
from studio.jobs.job import Job
from studio.jobs.many import grid_store
from studio.jobs.many.grid_store import GridRow
from studio.jobs.trainings import Training
from studio.library import records, uploads
from studio.library.presets import gallery
from studio.library.presets.store import Entry
from studio.library.records import Output
from studio.library.uploads import Quota, Upload


class NotFoundError(LumeshError):
    """The thing does not exist, or belongs to somebody else."""

    title = say("Not found")
    status = 404


class NotAllowedError(LumeshError):
    """The visitor has no right to this action."""

    title = say("Not allowed")
    status = 403


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One visitor's access to the studio, for one request."""

    person: Person
    studio: Studio

    @property
    def owner(self) -> str:
        return self.person.owner

    @property
    def database(self) -> Database:
        return self.studio.database

    @property
    def presets_dir(self) -> Path:
        return self.studio.settings.presets_dir

    def get_job(self, job_id: object) -> Job:
        """Returns a job that the visitor may see; raises NotFoundError, also for what other protocols pass as an id."""
        job = queue.read_job(self.database, job_id) if isinstance(job_id, str) and job_id.isascii() else None
        if job is None or not self.may_see(job.owner):
            raise NotFoundError(
                say("There is no job {id}.", id=repr(job_id)[:100]), advice=say("GET /api/v1/jobs lists the jobs.")
            )
        return job

    def get_grid(self, grid_id: str) -> GridRow:
        """Returns a grid that the visitor may see; raises NotFoundError."""
        grid = grid_store.read_grid(self.database, grid_id)
        if grid is None or not self.may_see(grid.owner):
            raise NotFoundError(
                say("There is no grid {id}.", id=repr(grid_id)), advice=say("GET /api/v1/grids lists the grids.")
            )
        return grid

    def get_output(self, output_id: str) -> Output:
        """Returns an output that the visitor may see; raises NotFoundError."""
        return self._find_output(output_id, is_shared=self.shares_gallery)

    def get_own_output(self, output_id: str) -> Output:
        """Returns an output that the visitor may change; raises NotFoundError."""
        return self._find_output(output_id, is_shared=False)

    def get_upload(self, upload_id: str) -> Upload:
        """Returns an upload that the visitor may see; raises NotFoundError."""
        upload = uploads.read_upload(self.database, upload_id)
        if upload is None or not self.may_see(upload.owner):
            raise NotFoundError(
                say("There is no upload {id}.", id=repr(upload_id)), advice=say("Unused uploads are kept for a day.")
            )
        return upload

    def get_preset(self, preset_id: str) -> Entry:
        """Returns a shipped preset, which is everybody's, or one of the visitor's; raises NotFoundError."""
        return self._find_preset(preset_id, is_shared=self.shares_gallery)

    def get_own_preset(self, preset_id: str) -> Entry:
        """Returns a preset that the visitor may delete, or a shipped one; raises NotFoundError."""
        return self._find_preset(preset_id, is_shared=False)

    def may_see(self, owner: str) -> bool:
        return owner == self.owner or self.person.is_admin

    @property
    def whose_to_change(self) -> str | None:
        """The owner whose things the visitor may change by id: the visitor, or anybody (None)."""
        return None if self.person.is_admin else self.owner

    @property
    def shares_gallery(self) -> bool:
        return self.studio.settings.access.shared_gallery

    def choose_owner(self, *, is_everyone: bool, is_shared: bool = False) -> str | None:
        """Returns whose things to list: the visitor's, or everybody's (None); raises NotAllowedError."""
        if not is_everyone:
            return self.owner
        if not self.person.is_admin and not is_shared:
            raise NotAllowedError(say("Only admins see what everybody has."), advice=say("Leave out `everyone`."))
        return None

    @property
    def is_operator(self) -> bool:
        return self.person.is_operator

    @property
    def may_train(self) -> bool:
        """Tells whether the visitor may train: anybody where nobody logs in, else admins and those who were named."""
        access, person = self.studio.settings.access, self.person
        if access.mode is Mode.OPEN or person.is_admin:
            return True
        return not access.who_may_train.isdisjoint((EVERYBODY, person.name.casefold(), person.owner.casefold()))

    @property
    def upload_quota(self) -> Quota:
        """The limits on the visitor's unused uploads: those who may train bring more."""
        return self.studio.trainer_quota if self.may_train else self.studio.upload_quota

    def require_trainer(self) -> None:
        """Raises NotAllowedError for somebody who may not train."""
        if not self.may_train:
            raise NotAllowedError(
                say("Only admins, and those whom they name, may train models here."),
                advice=say("Ask an admin of this studio."),
            )

    def get_training(self, job_id: str) -> tuple[Job, Training]:
        """Returns a training that the visitor may see, with its job; raises NotFoundError, also for other jobs."""
        job = queue.read_job(self.database, job_id)
        training = trainings.read_training(self.database, job_id)
        if job is None or training is None or not self.may_see(job.owner):
            raise NotFoundError(
                say("There is no training {id}.", id=repr(job_id)[:100]),
                advice=say("GET /api/v1/trainings lists the trainings."),
            )
        return job, training

    def note(self, what: str, **fields: Any) -> None:
        """Writes to the audit log; for actions that cannot be undone, or that concern everybody."""
        self.studio.door.audit.note(what, owner=self.owner, address=self.person.address, **fields)

    def _find_output(self, output_id: str, *, is_shared: bool) -> Output:
        output = records.read_output(self.database, output_id)
        if output is None or not (self.may_see(output.owner) or (is_shared and output.trashed_at is None)):
            raise NotFoundError(
                say("There is no output {id}.", id=repr(output_id)),
                advice=say("GET /api/v1/outputs lists the outputs."),
            )
        return output

    def _find_preset(self, preset_id: str, *, is_shared: bool) -> Entry:
        entry = gallery.find_entry(self.database, self.presets_dir, preset_id)
        if entry is None or not (entry.origin == "shipped" or self.may_see(entry.owner) or is_shared):
            raise NotFoundError(
                say("There is no preset {id}.", id=repr(preset_id)),
                advice=say("GET /api/v1/presets lists the presets."),
            )
        return entry
