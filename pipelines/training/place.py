"""Where a training works, and that no other works there at the same time."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pipelines.errors import RecipeError
from pipelines.messages import Message, say
from pipelines.runtime.devices import hosts
from pipelines.training.data.trainings import SETTINGS
from pipelines.training.settings import TrainingSettings

LOCK = ".lock"
MARK = ".hosts-"
"""How a file begins by which hosts find out whether they see the same folder."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a training works: `output` for its files, `cache` for rows, `cache_dir` for compiled programs.

    `packs` are files of `compile --train`, or folders of them. `is_common` says whether all hosts see the same
    `output`. Where each has its own, the first one keeps the states, the log and the samples, and all other files are
    written on every host.
    """

    output: Path
    cache: Path
    cache_dir: Path
    allow_cpu: bool = False
    packs: tuple[Path, ...] = ()
    is_common: bool = True

    @property
    def is_written_here(self) -> bool:
        """Tells whether this host writes what all have made."""
        return hosts.is_leader() or not self.is_common

    def write_settings(self, settings: TrainingSettings) -> None:
        """Writes down what was asked for, without secrets, wherever the result will be: by it a training is known."""
        if self.is_written_here:
            (self.output / SETTINGS).write_text(settings.model_dump_json(indent=1, exclude={"hub_token"}), "utf-8")

    @contextlib.contextmanager
    def hold(self, tell: Callable[[Message], None]) -> Iterator[None]:
        """Holds the folder, on the first host, until the context ends; raises RecipeError if another training does.

        Two trainings in one folder would take each other's states for their own. Where the file system gives no lock,
        nothing is held, which it may `tell`.
        """
        with contextlib.ExitStack() as stack:
            if hosts.is_leader():
                try:
                    stack.enter_context(FileLock(self.output / LOCK, fallback_to_soft=False).acquire(blocking=False))
                except Timeout as error:
                    # NFS may go on locking for a machine that was lost.
                    text = say("another training works in {folder} now; wait for its end, stop it, or choose another "
                               "folder. If none does, as where its machine was lost, remove {lock}",
                               folder=self.output, lock=self.output / LOCK)  # fmt: skip
                    raise RecipeError({"output": text}) from error
                except (NotImplementedError, OSError) as error:
                    tell(
                        say("{folder} cannot be locked ({error}): see that no other training works there meanwhile.",
                            folder=self.output, error=str(error) or type(error).__name__)
                    )  # fmt: skip
            yield
