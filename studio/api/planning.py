"""Plans for other machines, made by `python -m pipelines plan` in a process of its own, one at a time.

Planning imports jax and compiles for minutes, so it happens outside the app, with progress as lines of JSON. A finished
plan is kept whole under everything it depends on, and shows at once the next time.
Not here: the routes (system.py), how a plan is made (pipelines/plan).
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pipelines.catalog import Model
from pipelines.errors import LumeshError
from pipelines.plan.topologies import TOPOLOGIES, Topology
from pipelines.sources import fingerprint_code, fingerprint_configs
from studio.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_TOPOLOGY = "v6e-8"
MODES = ("latency", "throughput")
STOP_TIMEOUT_S = 5.0

# As JAX names a chip -> as the topologies do.
CHIP_OF_KIND = {
    "TPU v4": "TPU v4",
    "TPU v5 lite": "TPU v5e",
    "TPU v5e": "TPU v5e",
    "TPU v5": "TPU v5p",
    "TPU v5p": "TPU v5p",
    "TPU v6 lite": "TPU v6e",
    "TPU v6e": "TPU v6e",
}


CPU = "cpu"


class PlanBusyError(LumeshError):
    """Only one plan is made at a time."""

    title = "Another plan is being made"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is planned. `key` names the plan among those kept: other configs, sources or versions may plan otherwise."""

    model: str
    configs: str
    shape: str
    topology: str
    mode: str

    @classmethod
    def of(cls, model: Model, *, shape: str, topology: str, mode: str) -> "Question":
        """About the model as its configs are now."""
        return cls(model=model.id, configs=fingerprint_configs(model), shape=shape, topology=topology, mode=mode)

    @property
    def key(self) -> str:
        parts = (self.model, self.configs, self.shape, self.topology, self.mode, fingerprint_code())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


@dataclass(kw_only=True)
class Run:
    """One plan on its way, or as it ended: `running`, `done`, `failed` or `cancelled`."""

    question: Question
    state: str = "running"
    phase: str = "starting"
    done: int = 0
    total: int = 0
    started_at: float = field(default_factory=time.time)
    plan: dict[str, Any] | None = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self.question, name) for name in ("model", "shape", "topology", "mode")},
            "state": self.state,
            "progress": {
                "phase": self.phase,
                "done": self.done,
                "total": self.total,
                "elapsed_s": round(time.time() - self.started_at, 1) if self.state == "running" else None,
            },
            "plan": self.plan,
            "error": self.error,
        }


class Planner:
    """Starts, follows and cancels the one process; remembers how the last one ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._last: Run | None = None
        self._process: subprocess.Popen[str] | None = None
        self._follower: threading.Thread | None = None

    @property
    def last(self) -> Run | None:
        """What runs, or ended last; None before the first."""
        return self._last

    @property
    def is_running(self) -> bool:
        return self._last is not None and self._last.state == "running"

    def find(self, question: Question) -> Run | None:
        """The plan on its way or as it ended, or a kept one; None when nobody asked for it yet."""
        if self._last is not None and self._last.question == question:
            return self._last
        return self._find_kept(question)

    def ask(self, question: Question) -> Run:
        """The kept plan, or one that starts now; raises PlanBusyError when another one is being made."""
        with self._lock:
            if self._last is not None and self._last.question == question and self._last.state in ("running", "done"):
                return self._last
            if kept := self._find_kept(question):
                return kept
            if self.is_running:
                raise PlanBusyError(
                    f"{self._last.question.model if self._last else 'It'} is being planned, one at a time.",
                    advice="Wait until it is done, or cancel it.",
                )
            return self._start(question)

    def cancel(self) -> None:
        """Ends what runs; what the compiler has said so far is kept, so the next try goes on from there."""
        with self._lock:
            if self._last is None or self._process is None or self._last.state != "running":
                return
            self._last.state = "cancelled"
            self._process.terminate()

    def close(self) -> None:
        """Ends what runs, and waits for it."""
        self.cancel()
        if self._follower is not None:
            self._follower.join(STOP_TIMEOUT_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def _start(self, question: Question) -> Run:
        run = self._last = Run(question=question)
        answer = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by the thread that reads it
        flags = {"--model": question.model, "--shape": question.shape, "--topology": question.topology}
        flags |= {"--mode": question.mode, "--data-dir": str(self._settings.data_dir)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipelines", "plan", "--json", "--progress-json", *sum(flags.items(), ())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl+C in the terminal is for the app, which then ends this
        )
        self._follower = threading.Thread(
            target=self._follow, args=(run, self._process, answer), name="plan", daemon=True
        )
        self._follower.start()
        return run

    def _follow(self, run: Run, process: subprocess.Popen[str], answer: IO[str]) -> None:
        assert process.stderr is not None
        said = ""
        with process, answer:
            for line in process.stderr:
                said = _read_progress(run, line) or said
            code = process.wait()
            answer.seek(0)
            text = answer.read()
        with self._lock:
            if run.state == "cancelled":
                return
            if code == 0:
                run.plan = json.loads(text)
                run.state = "done"
                self._keep(run)
            else:
                run.error = said.removeprefix("lumesh: ") or f"The planner ended with code {code}."
                run.state = "failed"

    def _find_kept(self, question: Question) -> Run | None:
        try:
            plan = json.loads(self._file(question).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return Run(question=question, state="done", phase="kept", plan=plan)

    def _keep(self, run: Run) -> None:
        file = self._file(run.question)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(run.plan), "utf-8")
        partial.rename(file)

    def _file(self, question: Question) -> Path:
        return self._settings.plans_dir / f"{question.key}.json"


def suggest_topology(devices: Sequence[Mapping[str, Any]], *, chips: int) -> Topology | None:
    """The topology that is this hardware; None where there is no such thing."""
    kinds = {str(device["kind"]) for device in devices}
    if kinds == {CPU}:
        return TOPOLOGIES.get(f"cpu-{len(devices)}")
    name = CHIP_OF_KIND.get(kinds.pop()) if len(kinds) == 1 else None
    return next((one for one in TOPOLOGIES.values() if one.chip and one.chip.name == name and one.chips == chips), None)


def _read_progress(run: Run, line: str) -> str:
    """Takes a line of progress in; any other line is returned, because the last one says why it failed."""
    try:
        told = json.loads(line)
        run.phase, run.done, run.total = str(told["phase"]), int(told["done"]), int(told["total"])
    except (ValueError, TypeError, KeyError):
        return line.strip()
    return ""
