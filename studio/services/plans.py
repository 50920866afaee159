"""Plans for other machines, made by `python -m pipelines plan` in a process of its own, one at a time.

Planning imports jax and compiles for minutes, so it runs outside the app, at low priority, with progress as lines of
JSON. A finished plan is cached on disk under a key of everything that it depends on, and shows at once the next time.
Not here: the routes (system.py), how a plan is made (pipelines/plan), plans that come with Lumesh (shipped_plans.py).
"""

import contextlib
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import IO, Any

from pipelines.errors import LumeshError
from pipelines.files.whole import write_whole
from pipelines.messages import NOTHING, Message, add_codes, english, read_codes, say
from pipelines.models.catalog import Model
from pipelines.models.fingerprints import fingerprint_plans
from pipelines.models.model import FULL
from pipelines.plan.topologies import CHIP_OF_KIND, TOPOLOGIES, Topology
from studio.services.shipped_plans import find_shipped
from studio.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_TOPOLOGY = "v6e-8"
MODES = ("latency", "throughput")
STOP_TIMEOUT_S = 5.0
NICE = 10  # added to our own niceness: the worker's host thread and the pages come first

log = logging.getLogger(__name__)

CPU = "cpu"


class PlanBusyError(LumeshError):
    """Another plan is being made; only one is made at a time."""

    title = say("Another plan is being made")
    status = 409


@dataclass(frozen=True, kw_only=True)
class Question:
    """A requested plan. `key` identifies it on disk; it covers configs, sources and versions, which change plans."""

    model: str
    sources: str
    shape: str
    topology: str
    mode: str
    mesh: str | None = None
    """The mesh to plan for, such as the worker's `--mesh`; None lets the planner choose."""
    weights: str = FULL

    @classmethod
    def of(cls, model: Model, *, shape: str, topology: str, mode: str, mesh: str | None = None) -> "Question":
        """Makes a question about the model with its current configs and code."""
        sources = fingerprint_plans(model)
        return cls(
            model=model.program_id,
            sources=sources,
            shape=shape,
            topology=topology,
            mode=mode,
            mesh=mesh,
            weights=model.weights,
        )

    @property
    def key(self) -> str:
        parts = (part or "" for part in astuple(self))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]

    def to_json(self) -> dict[str, Any]:
        """What was asked for, without the sources, which mean nothing outside."""
        return {name: value for name, value in vars(self).items() if name != "sources"}


@dataclass(kw_only=True)
class Run:
    """A plan in its current state: `running`, `done`, `failed`, `cancelled`, or `shipped` with Lumesh."""

    question: Question
    state: str = "running"
    phase: str = "starting"
    done: int = 0
    total: int = 0
    started_s: float = field(default_factory=time.monotonic)
    plan: dict[str, Any] | None = None
    error: Message = NOTHING

    def to_json(self) -> dict[str, Any]:
        return {
            **self.question.to_json(),
            "state": self.state,
            "progress": {
                "phase": self.phase,
                "done": self.done,
                "total": self.total,
                "elapsed_s": round(time.monotonic() - self.started_s, 1) if self.state == "running" else None,
            },
            "plan": self.plan,
            **add_codes({"error": self.error}),
        }


class Planner:
    """Starts, follows and cancels the planning process; remembers how the last one ended."""

    def __init__(self, settings: Settings, *, command: Sequence[str] = ()) -> None:
        self._settings = settings
        self._command = command or (sys.executable, "-m", "pipelines", "plan")
        self._lock = threading.Lock()
        self._last: Run | None = None
        self._process: subprocess.Popen[str] | None = None
        self._follower: threading.Thread | None = None

    @property
    def last(self) -> Run | None:
        """Returns the plan that is being made, or the one that ended last; None before the first."""
        return self._last

    @property
    def is_running(self) -> bool:
        return self._last is not None and self._last.state == "running"

    def find(self, question: Question) -> Run | None:
        """Finds the current plan, a cached one, or a shipped one that answers the question; else None."""
        if self._last is not None and self._last.question == question:
            return self._last
        return self._find_kept(question) or _find_shipped(question)

    def ask(self, question: Question) -> Run:
        """Returns the cached plan, or starts one; raises PlanBusyError when another one is being made."""
        with self._lock:
            if self._last is not None and self._last.question == question and self._last.state in ("running", "done"):
                return self._last
            if kept := self._find_kept(question):
                return kept
            if self.is_running:
                raise PlanBusyError(
                    say(
                        "{model} is being planned, one at a time.",
                        model=self._last.question.model if self._last else "It",
                    ),
                    advice=say("Wait until it is done, or cancel it."),
                )
            return self._start(question)

    def cancel(self) -> None:
        """Cancels the plan that is being made; the compiler's answers so far are kept for the next try."""
        with self._lock:
            if self._last is None or self._process is None or self._last.state != "running":
                return
            self._last.state = "cancelled"
            self._process.terminate()

    def close(self) -> None:
        """Cancels the plan that is being made, and waits for its process to end."""
        self.cancel()
        if self._follower is not None:
            self._follower.join(STOP_TIMEOUT_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def _start(self, question: Question) -> Run:
        run = Run(question=question)
        with contextlib.ExitStack() as opened:
            try:
                answer = opened.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
                process = opened.enter_context(self._open_process(question, answer))
                opened.callback(process.kill)
                follower = threading.Thread(target=self._follow, args=(run, process, answer), name="plan", daemon=True)
                follower.start()
            except (OSError, RuntimeError) as error:  # no disk space, no memory, no more processes or threads
                self._last = Run(
                    question=question, state="failed", error=say("The planner could not start: {error}.", error=error)
                )
                return self._last
            opened.pop_all()  # the thread closes them from here on
        self._last, self._process, self._follower = run, process, follower
        return run

    def _open_process(self, question: Question, answer: IO[str]) -> subprocess.Popen[str]:
        flags = {"--model": question.model, "--shape": question.shape, "--topology": question.topology}
        flags |= {"--mode": question.mode, "--weights": question.weights}
        flags["--data-dir"] = str(self._settings.data_dir)
        if question.mesh is not None:
            flags["--mesh"] = question.mesh
        process = subprocess.Popen(
            [*self._command, "--json", "--progress-json", *sum(flags.items(), ())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl+C in the terminal is for the app, which then ends this
        )
        with contextlib.suppress(OSError):  # the process may have ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        return process

    def _follow(self, run: Run, process: subprocess.Popen[str], answer: IO[str]) -> None:
        plan = None
        try:
            with answer:
                code, said = _wait_for(run, process)
                if code == 0:
                    answer.seek(0)
                    plan = json.loads(answer.read())
        except Exception as problem:
            log.exception("planning %s on %s", run.question.model, run.question.topology)
            code, said = 0, say("The planner's answer cannot be read: {problem}.", problem=problem)
        with self._lock:
            if run.state == "cancelled":
                return
            if plan is not None:
                run.plan, run.state = plan, "done"
                self._keep(run)
            else:
                run.error = said or say("The planner ended with code {code}.", code=code)
                run.state = "failed"

    def _find_kept(self, question: Question) -> Run | None:
        try:
            plan = json.loads(self._file(question).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return Run(question=question, state="done", phase="kept", plan=plan)

    def _keep(self, run: Run) -> None:
        """Caches the plan for the next time; on a full disk it is only shown."""
        try:
            write_whole(self._file(run.question), json.dumps(run.plan).encode())
        except OSError:
            log.exception("the plan of %s is not kept", run.question.model)

    def _file(self, question: Question) -> Path:
        return self._settings.plans_dir / f"{question.key}.json"


def suggest_topology(devices: Sequence[Mapping[str, Any]], *, chips: int) -> Topology | None:
    """Finds the topology of these devices; None when none matches."""
    kinds = {str(device["kind"]) for device in devices}
    if kinds == {CPU}:
        return TOPOLOGIES.get(f"cpu-{len(devices)}")
    name = CHIP_OF_KIND.get(kinds.pop()) if len(kinds) == 1 else None
    return next((one for one in TOPOLOGIES.values() if one.chip and one.chip.name == name and one.chips == chips), None)


def _find_shipped(question: Question) -> Run | None:
    plan = find_shipped(**question.to_json())
    return None if plan is None else Run(question=question, state="shipped", phase="kept", plan=plan)


def _wait_for(run: Run, process: subprocess.Popen[str]) -> tuple[int, Message]:
    """Waits for the process; returns its exit code and its error, or else the last line that was not progress."""
    assert process.stderr is not None
    said = NOTHING
    with process:
        for line in process.stderr:
            told = _read_line(run, line)
            said = told if told and not said.code else said
        return process.wait(), said


def _read_line(run: Run, line: str) -> Message:
    """Applies a line of progress; returns the text of any other line, because the last one says why it failed."""
    try:
        told = json.loads(line)
        if "error" in told:
            return english(read_codes(told)["error"])
        run.phase, run.done, run.total = str(told["phase"]), int(told["done"]), int(told["total"])
    except (ValueError, TypeError, KeyError):
        return english(line.strip().removeprefix("lumesh: "))
    return NOTHING
