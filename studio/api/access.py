"""Who asks, and what they may touch: every job and file route reaches its things through here.

For now everybody is the owner `local`. A thing that is somebody else's answers exactly like one that does not exist.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from pipelines.catalog import Catalog
from pipelines.errors import LumeshError
from studio.api.feed import Feed
from studio.database import Database
from studio.jobs import queue
from studio.jobs.job import LOCAL_OWNER, Job
from studio.library import records, uploads
from studio.library.records import Output
from studio.library.uploads import Upload
from studio.settings import Settings


class NotFoundError(LumeshError):
    """Something that does not exist, or not for who asks."""

    title = "Not found"


@dataclass(frozen=True, kw_only=True)
class Studio:
    """What the routes work with; one per application."""

    settings: Settings
    database: Database
    catalog: Catalog
    feed: Feed
    upload_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a picture is decoded: 40 megapixels take 250 MB for a moment, so they come one after the other."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request: who asks, and the studio as far as it is theirs."""

    owner: str
    studio: Studio

    @property
    def database(self) -> Database:
        return self.studio.database

    def get_job(self, job_id: str) -> Job:
        """Raises NotFoundError."""
        job = queue.read_job(self.database, job_id)
        if job is None or not self.may_see(job.owner):
            raise NotFoundError(f"There is no job {job_id!r}.", advice="GET /api/v1/jobs lists the jobs.")
        return job

    def get_output(self, output_id: str) -> Output:
        """Raises NotFoundError."""
        output = records.read_output(self.database, output_id)
        if output is None or not self.may_see(output.owner):
            raise NotFoundError(f"There is no output {output_id!r}.", advice="GET /api/v1/outputs lists the outputs.")
        return output

    def get_upload(self, upload_id: str) -> Upload:
        """Raises NotFoundError."""
        upload = uploads.read_upload(self.database, upload_id)
        if upload is None or not self.may_see(upload.owner):
            raise NotFoundError(f"There is no upload {upload_id!r}.", advice="Unused uploads are kept for a day.")
        return upload

    def may_see(self, owner: str) -> bool:
        return owner == self.owner


def _open_visit(request: Request) -> Visit:
    return Visit(owner=LOCAL_OWNER, studio=request.app.state.studio)


Visitor = Annotated[Visit, Depends(_open_visit)]
"""The type of a route's parameter that says who asks."""
