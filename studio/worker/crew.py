"""This machine's workers: a supervisor for each, with its share of the devices.

Each is a process with a row, a lock and a log of its own; one that ends is restarted without the others noticing.
Not here: keeping one alive (supervisor.py), how the devices are divided (shares.py).
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from studio.database import Database
from studio.jobs import claims, workers
from studio.jobs.workers import LOCAL
from studio.services.condition import Condition
from studio.settings import Settings
from studio.worker.lock import hold_lock
from studio.worker.shares import divide
from studio.worker.supervisor import NO_VARIABLES, ORPHAN_TIMEOUT_S, Supervisor


class Crew:
    """Supervises all of this machine's workers. `start` and `stop` are called once each."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        condition: Condition | None = None,
        *,
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        """Supervises workers whose devices are those that `environment` allows this process."""
        self._environment = environment
        self._settings = settings
        self._database = database
        self._condition = condition
        self._supervisors: list[Supervisor] = []

    def start(self) -> None:
        """Interrupts jobs of earlier workers, then starts this machine's; raises AlreadyRunningError, ShareError."""
        names = self._settings.local_workers
        shares = divide(len(names), self._environment)
        self._retire(set(names))
        try:
            for name, devices in zip(names, shares, strict=True):
                supervisor = Supervisor(self._settings, self._database, self._condition, worker=name, devices=devices)
                supervisor.start()
                self._supervisors.append(supervisor)
            self._database.on_commit = self._wake
        except BaseException:
            self.stop()
            raise

    def stop(self, *, finish_s: float | None = None) -> None:
        """Ends all workers at the same time, as Supervisor.stop does."""
        self._database.on_commit = None
        if not self._supervisors:
            return
        with ThreadPoolExecutor(len(self._supervisors), thread_name_prefix="stop") as threads:
            for done in [threads.submit(one.stop, finish_s=finish_s) for one in self._supervisors]:
                done.result()

    def _wake(self) -> None:
        for supervisor in self._supervisors:
            supervisor.wake()

    def _retire(self, staying: set[str]) -> None:
        """Forgets workers that an earlier run had and this one has not; `local` is kept, for what it measured."""
        for row in workers.read_workers(self._database):
            if row.id in staying or row.id == LOCAL:
                continue
            with hold_lock(
                self._settings.find_worker_lock(row.id), who="The worker of an earlier run", timeout_s=ORPHAN_TIMEOUT_S
            ):
                claims.interrupt_running(self._database, row.id)
            with self._database.write() as tx:
                workers.forget(tx, row.id)
