"""A training's state on disk, by orbax: written in the background, whole or not at all, for any mesh and host count.

Several hosts write their parts of it into a folder that all see. Where they have none in common, the whole state is
fetched, which is little of a LoRA, and the first one writes it; to go on, it reads it and sends it to the others.

Beside the arrays lie facts: what the state was made with, so that a run with another model or other data says so
instead of going on with it (facts.py).
"""

import itertools
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from pipelines.errors import LumeshError, RecipeError
from pipelines.messages import Message, english, say
from pipelines.runtime.devices import hosts
from pipelines.training.results import abandoned
from pipelines.training.results.facts import refuse_differences, tell_changes
from pipelines.training.results.sums import ChangedError, check_sums, write_sums

UNFINISHED = "*.orbax-checkpoint-tmp"
"""Folders of states that are being written, or were when the process was killed."""
SENT_BYTES = 2**28
"""How much of a state is sent to other hosts at once."""
_folders = itertools.count()
_PROGRESS = "ThreadSaveMultiHostValueHolder"
"""What orbax calls its note, on all hosts, that something is being written."""
WRITTEN_S = 2.0
"""How long a state that the disk refused may be written to."""
SHORT_S = 0.02


def find_newest(folder: Path) -> int | None:
    """Returns the step of the newest whole state in a folder, without opening it; None without any."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=None)


def list_states(output: Path) -> list[str]:
    """Lists the folders of a training that hold states: one, or one for each expert."""
    return sorted(folder.name for folder in output.glob("state*") if find_newest(folder) is not None)


def find_newest_of(output: Path) -> int:
    """Returns how many steps of a training, or of one of its experts, a state in its folder has; 0 without any."""
    return max((find_newest(folder) or 0 for folder in output.glob("state*")), default=0)


def read_facts(folder: Path) -> dict[str, Any] | None:
    """Returns the facts of the newest state in a folder, without opening it; None where there is none, or damaged."""
    newest = find_newest(folder)
    if newest is None:
        return None
    state = folder / str(newest)
    try:
        check_sums(state, below="facts/")
        return json.loads((state / "facts" / "metadata").read_text("utf-8"))
    except (OSError, ValueError, ChangedError):
        return None  # `load` puts it aside


class StateFolder:
    """The folder of a training's states; close it to wait for what is still being written.

    `is_common` says whether all hosts see it. What a killed process left half written is removed. Raises LumeshError
    where it is not common, and another host than the first has the newest state.
    """

    def __init__(self, folder: Path, *, keep: int, is_common: bool = True) -> None:
        self._folder = folder
        self._number, self._saves = next(_folders), 0
        self._met = Counter[str]()
        self._is_own = hosts.count() > 1 and not is_common
        self._last: int | None = None
        """The step of the last state that the first host alone has saved."""
        folder.mkdir(parents=True, exist_ok=True)
        if self._is_own:
            self._last = _choose_first_hosts(folder)
        if self._is_own or hosts.is_leader():
            for partial in folder.glob(UNFINISHED):
                shutil.rmtree(partial, ignore_errors=True)
        own = ocp.options.MultiprocessingOptions()
        self._manager = ocp.CheckpointManager(
            folder.resolve(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                enable_async_checkpointing=True,
                async_options=ocp.AsyncOptions(
                    barrier_sync_fn=None if hosts.count() == 1 or self._is_own else self._meet,
                    post_finalization_callback=self._write_sums,
                ),
                create=False,
                multiprocessing_options=_alone() if self._is_own else own,
            ),
            item_names=("state", "facts"),
        )

    @property
    def newest(self) -> int | None:
        """Returns the step of the newest whole state."""
        return self._last if self._is_own else self._manager.latest_step()

    def save(self, step: int, state: Any, facts: Mapping[str, Any]) -> None:
        """Starts to write the state after so many steps; copies of its arrays are made before this returns.

        Raises OSError for a disk that refuses it; `wait` before, or this raises what the state before it met. All hosts
        save together.
        """
        if self._is_own:  # that the disk refused the last one, the first host alone knows
            self._last = hosts.agree("the newest state", self._last)
        if step == self.newest:
            return
        if self._is_own:
            state = jax.tree.map(hosts.fetch, state)
            self._last = step
            if not hosts.is_leader():
                return
        with self._as_os_error():
            self._manager.wait_until_finished()
            self._saves += 1
            self._met.clear()
            self._manager.save(
                step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), facts=ocp.args.JsonSave(dict(facts)))
            )

    def load(
        self, described: Any, facts: Mapping[str, Any], *, tell: Callable[[Message], None] = lambda _text: None
    ) -> Any:
        """Reads the newest state with the shapes and shardings `described`; raises RecipeError if facts differ.

        What may differ is told (facts.py). One that the disk has damaged is put aside, which is told, and the one
        before is read; raises LumeshError if there is none. Of several hosts with a common folder none can put it aside
        for the others, and LumeshError is raised.
        """
        if not self._is_own:
            return self._read_newest(described, facts, tell)
        held = jax.tree.map(_hold, described)
        problem: LumeshError | None = None
        if hosts.is_leader():
            try:
                held = self._read_newest(held, facts, tell)
            except LumeshError as error:
                problem = error
        told = None if problem is None else [isinstance(problem, RecipeError), str(problem)]
        told = hosts.agree("the state is read", told)
        if problem is not None:
            raise problem
        if told is not None:  # of the same kind as on the first host
            text = english(f"the first host cannot go on from its state: {told[1]}")
            raise RecipeError({"output": text}) if told[0] else LumeshError(text)
        self._last = hosts.agree("the state that is read", self._manager.latest_step())
        return jax.tree.map(lambda value, leaf: hosts.place(value, leaf.sharding), _send(held), described)

    def _read_newest(self, wanted: Any, facts: Mapping[str, Any], tell: Callable[[Message], None]) -> Any:
        while True:
            newest = self._manager.latest_step()
            assert newest is not None, "ask `newest` first"
            abandoned.keep_quiet()
            try:
                self._check_sums(newest)
                return self._read(newest, wanted, facts, tell)
            except LumeshError:
                raise
            except Exception as error:  # orbax raises that itself for what tensorstore cannot read
                abandoned.free(error)
                abandoned.note_told(abandoned.find_os_error(error))
                if abandoned.is_of_strange_arrays(error):
                    raise LumeshError(
                        say(
                            "The state after {count} steps has other arrays than this training, as if another version "
                            "of Lumesh had made it.",
                            count=newest,
                        ),
                        advice=self._advise(),
                    ) from error
                if not isinstance(error, ChangedError) and not abandoned.is_of_damage(error):
                    raise
                if hosts.count() > 1 and not self._is_own:
                    raise LumeshError(
                        say("The state after {count} steps is damaged.", count=newest),
                        advice=say("Remove {folder} to go on from the one before.", folder=self._folder / str(newest)),
                    ) from error
            if len(self._manager.all_steps()) == 1:  # which stays: put aside, the next run would begin anew unasked
                raise LumeshError(
                    say("The state after {count} steps is damaged, and there is no other.", count=newest),
                    advice=self._advise(),
                )
            self._put_aside(newest)
            tell(say("The state after {count} steps is damaged; the one before is taken.", count=newest))

    def _write_sums(self) -> None:
        """Writes the sums of a state that is there but for its name; orbax asks the first host alone for it."""
        for state in self._folder.glob(UNFINISHED):
            write_sums(state)

    def _check_sums(self, step: int) -> None:
        """Raises ChangedError for a state with a changed file; the first of several hosts reads them for all."""
        changed: str | None = None
        if self._is_own or hosts.is_leader():
            try:
                check_sums(self._folder / str(step))
            except ChangedError as error:
                changed = str(error)
        if not self._is_own:
            changed = hosts.agree("changed files of the state", changed)
        if changed is not None:
            raise ChangedError(changed)

    def _advise(self) -> Message:
        return say("Choose another output folder, or remove {folder}, to begin anew.", folder=self._folder)

    def _put_aside(self, step: int) -> None:
        aside = self._folder / f"damaged-{step}"
        shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
        (self._folder / str(step)).rename(aside)
        self._manager.reload()

    def _read(self, newest: int, wanted: Any, facts: Mapping[str, Any], tell: Callable[[Message], None]) -> Any:
        found = self._manager.restore(newest, args=ocp.args.Composite(facts=ocp.args.JsonRestore()))["facts"]
        asked = json.loads(json.dumps(dict(facts)))
        refuse_differences(found, asked, self._folder.parent)
        changes = tell_changes(found, asked)
        if changes is not None:
            tell(changes)
        return self._manager.restore(newest, args=ocp.args.Composite(state=ocp.args.StandardRestore(wanted)))["state"]

    def wait(self) -> None:
        """Returns when everything is on disk; raises OSError if the disk refused the last state."""
        with self._as_os_error():
            self._manager.wait_until_finished()
        abandoned.tell_held(went_well=True)

    def close(self) -> None:
        self._manager.close()
        abandoned.tell_held()

    def _remove_partial(self) -> None:
        """Removes the parts of a state that the disk refused; threads of tensorstore may still write to it."""
        deadline_s = time.monotonic() + WRITTEN_S
        while partial := [*self._folder.glob(UNFINISHED)]:
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
        abandoned.keep_quiet()
        try:
            yield
        except OSError as error:
            abandoned.free(error)
            abandoned.note_told(error.errno)
            self._give_up(error)
            raise
        except ValueError as error:
            abandoned.free(error)
            number = abandoned.find_os_error(error)
            if number is None:
                raise
            abandoned.note_told(number)
            refused = OSError(number, os.strerror(number), str(self._folder))
            self._give_up(refused)
            raise refused from error

    def _give_up(self, error: OSError) -> None:
        """Ends the save under way on all hosts, which would wait for this one's part."""
        if self._is_own:
            self._last = self._manager.latest_step()
        else:
            hosts.call_off(self._name_save(), error)
        self._remove_partial()

    def _meet(self, *, key: str, timeout_ms: int) -> None:  # noqa: ARG002 - whoever dies is missed by JAX
        """Waits for the other hosts within a save, as orbax asks, in any thread; raises OSError if a disk refused it.

        Orbax comes here while it fails, too, to note that nothing is written any more, which it must get to do.
        """
        number = abandoned.find_os_error(sys.exception())
        if number is not None:
            hosts.call_off(self._name_save(), OSError(number, os.strerror(number)))
        self._met[key] += 1
        try:
            hosts.meet(f"{self._name_save()}/{key}/{self._met[key]}", off=self._name_save())
        except OSError:
            if _PROGRESS not in key:
                raise

    def _name_save(self) -> str:
        return f"states {self._number}, save {self._saves}"


def _choose_first_hosts(folder: Path) -> int | None:
    """Returns the step of the first host's newest state, which counts; raises LumeshError where another has a newer."""
    found = hosts.collect("states", find_newest(folder))
    newest = max((step for step in found if step is not None), default=None)
    if newest != found[0]:
        raise LumeshError(
            say("Host {host} has a state after {count} steps, and the first host, which keeps them, has none so new.",
                host=found.index(newest), count=newest),
            advice=say("Copy {folder} of that host to the first one, or remove it there to do without it.",
                       folder=folder),
        )  # fmt: skip
    return found[0]


def _send(state: Any) -> Any:
    """Returns the first host's arrays on all hosts, each of which has room for them."""
    leaves, tree = jax.tree.flatten(state)
    sent: list[np.ndarray] = []
    while len(sent) < len(leaves):
        group = [leaves[len(sent)]]
        for leaf in leaves[len(sent) + 1 :]:
            if sum(one.nbytes for one in group) + leaf.nbytes > SENT_BYTES:
                break
            group.append(leaf)
        own = [np.asarray(leaf, order="C").tobytes() for leaf in group] if hosts.is_leader() else []
        content = hosts.share("the state", b"".join(own))
        start = 0
        for leaf in group:
            sent.append(np.frombuffer(content, leaf.dtype, leaf.size, start).reshape(leaf.shape))
            start += leaf.nbytes
    return jax.tree.unflatten(tree, sent)


def _alone() -> ocp.options.MultiprocessingOptions:
    """Returns the options of a host that reads and writes a folder of its own, and waits for no other."""
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"host-{own}"
    )


def _hold(leaf: Any) -> np.ndarray:
    """Returns room in this host's memory for an array that is described."""
    return np.zeros(leaf.shape, leaf.dtype)
