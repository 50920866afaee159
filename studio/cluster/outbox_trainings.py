"""The desk of trainings on another machine: what they tell goes into the outbox, with each saved state as a file.

So the studio has all that a training needs to go on, and a worker that is lost costs the steps since the last state
that arrived. A state is written in the background while steps go on: it is sent with the first word after it is whole.
"""

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import Cancelled
from pipelines.loras.files import SUFFIX
from studio.cluster import protocol
from studio.cluster.outbox import Outbox
from studio.cluster.protocol import Claim, Order
from studio.cluster.stock import Stock
from studio.jobs.job import Job
from studio.jobs.trainings import Training
from studio.library import training_files, training_packs
from studio.settings import Settings

LORAS = "loras/"
"""What the names of a result's files begin with that become LoRAs of the studio."""
ANSWER_S = 1.0  # between two looks whether anybody still wants the training


class OutboxTrainingDesk:
    """The TrainingDesk of a worker whose dispatcher pulls; `held` are the jobs here, `unwanted` those to end.

    `end` tells that a job has ended, and how.
    """

    def __init__(
        self,
        settings: Settings,
        outbox: Outbox,
        stock: Stock,
        *,
        held: Mapping[Claim, Order],
        unwanted: set[Claim],
        end: Callable[[Job, str], None],
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._stock = stock
        self._held = held
        self._unwanted = unwanted
        self._end = end
        self._changed = threading.Condition()
        self._pausing: set[Claim] = set()
        self._refs: dict[Claim, tuple[str, ...] | None] = {}
        self._saved: dict[Claim, int] = {}
        """The steps whose states were not sent yet."""
        self._sent: set[Claim] = set()
        """The trainings of which a state was sent."""
        self._learnt: dict[Claim, dict[str, bytes]] = {}

    # The dispatcher's side.

    def pause(self, claim: Claim) -> None:
        """Makes a training stop after its next step."""
        if claim in self._held:
            self._pausing.add(claim)

    def answer_refs(self, claim: Claim, refs: Sequence[str] | None) -> None:
        """Answers under which refs a result will be; None: the job was lost."""
        with self._changed:
            self._refs[claim] = None if refs is None else tuple(refs)
            self._changed.notify_all()

    # The worker's side.

    def read(self, job: Job) -> Training:
        """Reads what was asked, and puts the work that came with it into its place."""
        claim = protocol.claim_of(job)
        order, folder = self._held[claim], self._settings.training_dir / job.id
        training_packs.forget(folder)  # of an earlier attempt, older than what came
        if order.state is not None:
            training_packs.unpack(self._stock.find(order.state).read_bytes(), folder)
        return self._read_asked(claim)

    def _read_asked(self, claim: Claim) -> Training:
        asked = self._held[claim].training
        assert asked is not None, "the dispatcher sends it with a training"
        return protocol.read_training(asked)

    def find_pictures(self, job: Job, training: Training) -> tuple[Path, ...]:  # noqa: ARG002 - they came along
        return tuple(self._stock.find(one) for one in self._held[protocol.claim_of(job)].inputs)

    def is_pause_wanted(self, job: Job) -> bool:
        self._send_state(job)
        return protocol.claim_of(job) in self._pausing

    def go_back(self, job: Job, step: int) -> None:
        self._tell(job, "go_back", {"step": step})

    def add_point(self, job: Job, *, step: int, loss: float, learning_rate: float) -> None:
        self._tell(job, "add_point", {"step": step, "loss": loss, "learning_rate": learning_rate})

    def add_sample(self, job: Job, *, step: int, number: int, prompt: str, width: int, height: int) -> None:
        folder = self._settings.training_dir / job.id
        blobs = {"shown": training_files.shown_file(folder, step, number).read_bytes()}
        moving = training_files.shown_file(folder, step, number, is_moving=True)
        if moving.exists():  # of a video
            blobs["moving"] = moving.read_bytes()
        told = {"step": step, "number": number, "prompt": prompt, "width": width, "height": height}
        self._tell(job, "add_sample", told, blobs)

    def note_saved(self, job: Job, step: int) -> None:
        self._saved[protocol.claim_of(job)] = step
        self._send_state(job)

    def choose_refs(self, job: Job, training: Training, names: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Asks the studio, however long it is away; raises Cancelled."""
        claim = protocol.claim_of(job)
        self._outbox.put("refs", claim, {"names": [*names]})
        with self._changed:
            while claim not in self._refs:
                self._changed.wait(ANSWER_S)
                if claim in self._unwanted:
                    raise Cancelled
            refs = self._refs.pop(claim)
        if refs is None:
            raise Cancelled
        return refs

    def keep_loras(self, job: Job, files: Mapping[str, Path]) -> None:
        """Keeps the files until the end of the job is told, which they go with."""
        self._learnt[protocol.claim_of(job)] = {
            f"{LORAS}{ref}{SUFFIX}": file.read_bytes() for ref, file in files.items()
        }

    def end_paused(self, job: Job) -> None:
        self._end(job, "paused")

    def take_learnt(self, job: Job) -> dict[str, bytes]:
        """Returns the files that go with a job's end, by the names that the dispatcher knows."""
        return self._learnt.pop(protocol.claim_of(job), {})

    def end(self, job: Job, *, is_done: bool) -> None:
        """Sends the last state of a training that may go on, and forgets the training.

        One that ends before its first state sends the pictures that the model made before.
        """
        claim = protocol.claim_of(job)
        if not is_done:
            if claim not in self._sent:
                self._saved.setdefault(claim, self._read_asked(claim).saved_step)
            self._send_state(job)
        self._sent.discard(claim)
        self._pausing.discard(claim)
        self._refs.pop(claim, None)
        self._saved.pop(claim, None)
        self._learnt.pop(claim, None)
        shutil.rmtree(self._settings.training_dir / job.id, ignore_errors=True)

    def _send_state(self, job: Job) -> None:
        claim, folder = protocol.claim_of(job), self._settings.training_dir / job.id
        if claim not in self._saved or training_packs.is_being_written(folder):
            return
        step = self._saved.pop(claim)
        if (packed := training_packs.pack(folder)) is not None:
            self._outbox.put("state", claim, {"step": step}, {"packed": packed})
            self._sent.add(claim)

    def _tell(self, job: Job, what: str, data: dict[str, Any], blobs: dict[str, bytes] | None = None) -> None:
        self._send_state(job)
        self._outbox.put(what, protocol.claim_of(job), data, blobs)
