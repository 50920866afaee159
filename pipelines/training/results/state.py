"""A training's state on disk, by orbax: written in the background, whole or not at all, for any mesh and host count.

Several hosts write their parts of it into a folder that all see. Where they have none in common, the whole state is
fetched, which is little of a LoRA, and the first one writes it; to go on from it, each host must have a copy.

Beside the arrays lie facts: what the state was made with, so that a run with another model or other data says so
instead of going on with it (facts.py).
"""

import functools
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import Message, say
from pipelines.runtime.devices import hosts
from pipelines.training.results.facts import list_differences, tell_changes

_DAMAGED = ("DATA_LOSS", "OUT_OF_RANGE", "NOT_FOUND")
"""What tensorstore says of files that are cut off, changed, or gone."""
_ABANDONED = "Event loop is closed"
WRITTEN_S = 2.0
"""How long a state that the disk refused may be written to."""
SHORT_S = 0.02
_OF_SYSTEM = re.compile(r"os_error_code='(\d+)'")
"""How tensorstore says which error the operating system gave it, such as 28 of a full disk."""


def find_newest(folder: Path) -> int | None:
    """Returns the step of the newest whole state in a folder, without opening it; None without any."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=None)


def find_newest_of(output: Path) -> int:
    """Returns how many steps of a training, or of one of its experts, a state in its folder has; 0 without any."""
    return max((find_newest(folder) or 0 for folder in output.glob("state*")), default=0)


class StateFolder:
    """The folder of a training's states; close it to wait for what is still being written.

    `is_common` says whether all hosts see it.
    """

    def __init__(self, folder: Path, *, keep: int, is_common: bool = True) -> None:
        self._folder = folder
        self._is_own = hosts.count() > 1 and not is_common
        self._last: int | None = None
        """The step of the last state that was saved by the first host alone."""
        folder.mkdir(parents=True, exist_ok=True)
        self._manager = ocp.CheckpointManager(
            folder.resolve(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                enable_async_checkpointing=True,
                create=False,
                multiprocessing_options=_alone() if self._is_own else ocp.options.MultiprocessingOptions(),
            ),
            item_names=("state", "facts"),
        )

    @property
    def newest(self) -> int | None:
        """Returns the step of the newest whole state."""
        return self._manager.latest_step() if self._last is None else self._last

    def save(self, step: int, state: Any, facts: Mapping[str, Any]) -> None:
        """Starts to write the state after so many steps; copies of its arrays are made before this returns.

        Raises OSError for a disk that refuses it; `wait` before, or this raises what the state before it met.
        """
        if step == self.newest:
            return
        if self._is_own:
            state = jax.tree.map(hosts.fetch, state)
            self._last = step
            if not hosts.is_leader():
                return
        with self._as_os_error():
            self._manager.save(
                step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), facts=ocp.args.JsonSave(dict(facts)))
            )

    def load(
        self, described: Any, facts: Mapping[str, Any], *, tell: Callable[[Message], None] = lambda _text: None
    ) -> Any:
        """Reads the newest state with the shapes and shardings `described`; raises RecipeError if facts differ.

        What may differ is told (facts.py). One that the disk has damaged is put aside, which is told, and the one
        before is read; raises LumeshError if there is none. Of several hosts none can put it aside for the others, and
        ValueError is raised.
        """
        while True:
            newest = self.newest
            assert newest is not None, "ask `newest` first"
            _silence_abandoned_tasks()
            try:
                return self._read(newest, described, facts, tell)
            except ValueError as error:
                if hosts.count() > 1 or not any(sign in str(error) for sign in _DAMAGED):
                    raise
            self._put_aside(newest)
            text = say("The state after {count} steps is damaged; the one before is taken.", count=newest)
            if self.newest is None:
                raise LumeshError(
                    say("The state after {count} steps is damaged, and there is no other.", count=newest),
                    advice=say("Choose another output folder, or remove {folder}, to begin anew.", folder=self._folder),
                )
            tell(text)

    def _put_aside(self, step: int) -> None:
        (self._folder / str(step)).rename(self._folder / f"damaged-{step}")
        self._manager.reload()

    def _read(self, newest: int, described: Any, facts: Mapping[str, Any], tell: Callable[[Message], None]) -> Any:
        found = self._manager.restore(newest, args=ocp.args.Composite(facts=ocp.args.JsonRestore()))["facts"]
        wanted = json.loads(json.dumps(dict(facts)))
        differences = {
            name: say(
                "{folder} holds a training with {found} in place of {value}; go on with that, or choose another output "
                "folder",
                folder=self._folder.parent,
                found=before,
                value=value,
            )
            for name, (before, value) in list_differences(found, wanted).items()
        }
        if differences:
            raise RecipeError(differences)
        changes = tell_changes(found, wanted)
        if changes is not None:
            tell(changes)
        wanted = jax.tree.map(_hold, described) if self._is_own else described
        state = self._manager.restore(newest, args=ocp.args.Composite(state=ocp.args.StandardRestore(wanted)))["state"]
        if self._is_own:
            state = jax.tree.map(lambda value, leaf: hosts.place(value, leaf.sharding), state, described)
        return state

    def wait(self) -> None:
        """Returns when everything is on disk; raises OSError if the disk refused the last state."""
        with self._as_os_error():
            self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()

    def _remove_partial(self) -> None:
        """Removes the parts of a state that the disk refused; threads of tensorstore may still write to it."""
        deadline_s = time.monotonic() + WRITTEN_S
        while partial := [*self._folder.glob("*.orbax-checkpoint-tmp")]:
            for folder in partial:
                shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > deadline_s:
                return
            time.sleep(SHORT_S)

    @contextmanager
    def _as_os_error(self) -> Iterator[None]:
        """Context in which what the operating system refuses is an OSError, and the part that was written is removed.

        tensorstore raises ValueError, later and from another thread.
        """
        _silence_refusals()
        _silence_abandoned_tasks()
        try:
            yield
        except OSError:
            self._last = None
            self._remove_partial()
            raise
        except ValueError as error:
            number = _find_os_error(error)
            if number is None:
                raise
            self._last = None
            self._remove_partial()
            raise OSError(number, os.strerror(number), str(self._folder)) from error


def _find_os_error(error: BaseException | None) -> int | None:
    """Returns the number of the operating system's error, also of one that tensorstore tells; None for others."""
    if isinstance(error, OSError):
        return error.errno
    found = _OF_SYSTEM.search(str(error))
    return int(found[1]) if found else None


@functools.cache
def _silence_refusals() -> None:
    """Keeps orbax and asyncio from logging tracebacks of a state that a disk refuses: one for each of its arrays.

    It is told in one line.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(
            lambda record: not (record.exc_info and _find_os_error(record.exc_info[1]) is not None)
        )


@functools.cache
def _silence_abandoned_tasks() -> None:
    """Keeps quiet about what ends after the first read or write that failed: orbax has closed its event loop by then.

    Each of them would print a traceback that nobody can do anything about.
    """
    report = sys.unraisablehook

    def report_others(unraisable: "sys.UnraisableHookArgs") -> None:
        if not (isinstance(unraisable.exc_value, RuntimeError) and str(unraisable.exc_value) == _ABANDONED):
            report(unraisable)

    sys.unraisablehook = report_others


def _alone() -> ocp.options.MultiprocessingOptions:
    """Returns the options of a host that reads and writes a folder of its own, and waits for no other."""
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"host-{own}"
    )


def _hold(leaf: Any) -> np.ndarray:
    """Returns room in this host's memory for an array that is described."""
    return np.zeros(leaf.shape, leaf.dtype)
