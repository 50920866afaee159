"""The app's context in one object: settings, database, catalogue, and the services that routes use."""

from dataclasses import dataclass, field

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.models.catalog import Catalog, Model
from studio.access.few import FewAtOnce
from studio.access.identify import Door
from studio.access.limits import Limiter
from studio.access.turns import Turns
from studio.database import Database
from studio.jobs.workers import WorkerRow, read_worker
from studio.library.uploads import TRAINER_QUOTA, UPLOAD_QUOTA, Quota
from studio.models import LiveCatalog
from studio.services import first_model
from studio.services.condition import Condition
from studio.services.downloads import Downloads
from studio.services.feed import Feed
from studio.services.plans import Planner
from studio.settings import Settings
from studio.storage import Reserve

PINGS_EACH = 6  # a minute
UPLOADS_WAITING = 40  # of one client; large ones wait unread before that (api/middleware/limits.py)
UPLOADS_TOO_MANY = say("Too many files of yours wait to be read.")
CLIPS_EACH, CLIPS_ALL = 3, 24  # of at most 300 MB
CLIPS_WAITING, CLIP_WAIT_S = 20, 30.0  # of one client, unread
CLIPS_TOO_MANY = say("Too many clips of yours are on their way or wait to be read.")
HUB_THREADS, HUB_WAITING = 4, 20  # the hub may take a minute for a pull of many presets, or not answer at all


@dataclass(frozen=True, kw_only=True)
class Studio:
    """The objects that routes use; one per application."""

    settings: Settings
    database: Database
    live_catalog: LiveCatalog
    feed: Feed
    planner: Planner
    door: Door
    reserve: Reserve
    condition: Condition = field(default_factory=Condition)
    downloads: Downloads = field(default_factory=Downloads)
    upload_quota: Quota = UPLOAD_QUOTA
    trainer_quota: Quota = TRAINER_QUOTA
    """The quota of unused uploads for those who may train."""
    hub_endpoint: str | None = None
    """The hub's address, if it is neither the public one nor HF_ENDPOINT."""
    pings: Limiter = field(default_factory=lambda: Limiter(count=PINGS_EACH, period_s=60.0))
    """Test messages to webhooks, by owner: they tell what another server answers."""
    hub_turns: FewAtOnce = field(default_factory=lambda: FewAtOnce("hub", threads=HUB_THREADS, waiting=HUB_WAITING))
    """Who waits for the hub, so that a hub that hangs keeps no other request waiting."""
    upload_turn: Turns = field(
        default_factory=lambda: Turns(each=1, all_=1, waiting=UPLOADS_WAITING, refusal=UPLOADS_TOO_MANY)
    )
    """Held while an uploaded file is decoded, one at a time: it takes up to 960 MB (pipelines/pictures/reading.py)."""
    clip_room: Turns = field(
        default_factory=lambda: Turns(
            each=CLIPS_EACH, all_=CLIPS_ALL, waiting=CLIPS_WAITING, wait_s=CLIP_WAIT_S, refusal=CLIPS_TOO_MANY
        )
    )
    """Held by a client's clip from its first byte until it is stored: whole clips lie on the disk meanwhile."""
    clip_turn: Turns = field(default_factory=lambda: Turns(each=1, all_=1, waiting=CLIPS_EACH, refusal=CLIPS_TOO_MANY))
    """Held while a clip is written anew, one at a time, which takes minutes: pictures do not wait for it."""

    @property
    def catalog(self) -> Catalog:
        """The models that there are now."""
        return self.live_catalog.now

    @property
    def default_model(self) -> Model:
        """The model of whoever names none: `--model`, else the one that suits the worker's devices."""
        return self._choose_default(read_worker(self.database))

    @property
    def opening_model_id(self) -> str | None:
        """The model that a new visitor's page opens with; None until the worker knows its devices."""
        worker = read_worker(self.database)
        default = self._choose_default(worker) if self.settings.model or worker.devices else None
        return first_model.choose_opening(self.settings, self.catalog, default, resident=worker.model)

    def _choose_default(self, worker: WorkerRow) -> Model:
        try:
            return first_model.choose(self.settings, self.catalog, worker.devices, chips=worker.chips)
        except ModelError:  # its folder was taken away since the start
            return self.catalog.default
