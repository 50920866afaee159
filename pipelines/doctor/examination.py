"""Runs the doctor's checks in a process of their own, with a time limit each, and keeps what they found.

One process runs them all, because opening the chips takes seconds. If it hangs or ends, the check at fault is known by
what it told last, and another process goes on with those that are left. This process never imports JAX: a chip has one
owner at a time, and whoever calls this will want it next.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from pipelines.doctor import machine
from pipelines.doctor.report import Report
from pipelines.runtime.devices.platform import extend_environment
from pipelines.runtime.kernels import switches
from pipelines.runtime.kernels.switches import Checked, Found

ROOT = Path(__file__).parents[2]
OPENING, PICTURE = "devices", "picture"  # as child.py names them
OPENING_LIMIT_S = 120.0
"""For importing JAX and opening the chips, which is 10 to 20 s on a machine that has just started."""
CHECK_LIMIT_S = 90.0
"""For one kernel, which compiles in seconds."""
PICTURE_LIMIT_S = 240.0
END_S = 5.0
SETTLE_S, MOST_TRIES = 2.0, 5
"""Between a process that was killed and the next: a driver may hold the chips for a moment longer."""
_MOST_WORDS = 400

OnCheck = Callable[[str], object]
"""Is called with a check's name before it begins."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds that a process may take to open the devices, for a check, for the picture, and for everything.

    `hangs` are other limits of single checks, by name.
    """

    opening_s: float = OPENING_LIMIT_S
    check_s: float = CHECK_LIMIT_S
    picture_s: float = PICTURE_LIMIT_S
    whole_s: float | None = None
    hangs: Mapping[str, float] = field(default_factory=dict[str, float])

    def choose(self, name: str) -> float:
        return {OPENING: self.opening_s, PICTURE: self.picture_s, **self.hangs}.get(name, self.check_s)


@dataclass(kw_only=True)
class _Examination:
    """The checks of one machine; `names` are all checks of its devices, None until they are open.

    `task` is what every process is told, `deadline_s` when all of them must be done.
    """

    task: Mapping[str, Any]
    limits: Limits
    on_check: OnCheck
    deadline_s: float | None
    found: dict[str, Found] = field(default_factory=dict[str, Found])
    devices: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    names: list[str] | None = None

    @property
    def off(self) -> tuple[str, ...]:
        return tuple(sorted({name for found in self.found.values() for name in found.off}))

    def run(self) -> None:
        """Starts processes until every check has a verdict; each one ends or loses at least one check, so this ends."""
        tries = 0
        while True:
            left = self._list_left()
            if self.names is not None and not left:
                break
            wanted = None if self.names is None and self.task["checks"] is None else left
            if self._run_process({**self.task, "checks": wanted, "off": self.off}):
                continue
            if self.names is None or tries == MOST_TRIES:
                break
            tries += 1
            time.sleep(SETTLE_S)
        if (picture := self.found.get(PICTURE)) is not None and picture.is_bad:
            self.found[PICTURE] = self._blame(picture)

    def _list_left(self) -> list[str]:
        names = self.names if self.task["checks"] is None else self.task["checks"]
        if names is not None and self.names is not None:
            names = [name for name in names if name in self.names]
        return [name for name in names or () if name not in self.found]

    def _blame(self, picture: Found) -> Found:
        """Makes the picture again without any kernel; if it is right then, all of them are switched off."""
        without = {**self.task, "checks": [PICTURE], "off": [*switches.INSTEAD], "pretends": {}}
        again = replace(self, task=without, found={})
        again._run_process(without)  # noqa: SLF001 - of the same class
        plain = again.found.get(PICTURE)
        if plain is None or plain.verdict != "right" or set(self.off) == switches.INSTEAD.keys():
            return picture
        detail = f"{picture.detail}; without our kernels {plain.detail}"
        return replace(picture, detail=detail, off=tuple(switches.INSTEAD))

    def _run_process(self, task: Mapping[str, Any]) -> bool:
        """Runs one process to its end, or kills it at a limit; returns False where there is no sense in another one."""
        with subprocess.Popen(
            [sys.executable, "-m", "pipelines.doctor.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=extend_environment(HF_HUB_DISABLE_PROGRESS_BARS="1"),
            start_new_session=True,
        ) as process:
            assert process.stdin and process.stdout and process.stderr
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()  # and stays open: at its end the process ends, which must not outlive this one
            lines: queue.Queue[str | None] = queue.Queue()
            threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True).start()
            errors: list[str] = []
            reading = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
            reading.start()
            try:
                running, ran_out = self._follow(lines)
                if not ran_out:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(END_S)
            finally:
                _end(process)
            reading.join(END_S)
        last = next((line.strip() for line in reversed(errors) if line.strip()), "")[:_MOST_WORDS]
        return self._conclude(running, ran_out, f"exit code {process.returncode}{': ' if last else ''}{last}")

    def _follow(self, lines: queue.Queue[str | None]) -> tuple[str, str]:
        """Notes what the process tells until it ends or a limit runs out.

        Returns the check that was running, "" if none was, and the limit: `check`, `whole`, or "".
        """
        running, begun_s = OPENING, time.monotonic()
        while True:
            left_s, limit = begun_s + self.limits.choose(running) - time.monotonic(), "check"
            if self.deadline_s is not None and self.deadline_s - time.monotonic() < left_s:
                left_s, limit = self.deadline_s - time.monotonic(), "whole"
            try:
                line = lines.get(timeout=max(0.0, left_s))
            except queue.Empty:
                return running, limit
            if line is None:
                return running, ""
            told, begun_s = json.loads(line), time.monotonic()
            running = told.get("begin", "")
            if running:
                self.on_check(running)
            else:
                self._note(told)

    def _note(self, told: Mapping[str, Any]) -> None:
        if "devices" in told:
            self.devices, self.names = told["devices"], told["checks"]
        self.found[told["end"]] = Found(
            verdict=told["verdict"],
            detail=told.get("detail", ""),
            off=tuple(told.get("off", ())),
            seconds=round(told.get("seconds", 0.0), 2),
        )

    def _conclude(self, running: str, ran_out: str, ending: str) -> bool:
        """Gives a check that did not end its verdict; returns whether another process may go on."""
        if ran_out == "whole":
            for name in self._list_left() or [OPENING]:
                self.found[name] = Found(verdict="skipped", detail=f"no time left of {self.limits.whole_s:.0f} s")
            return False
        if running:
            off = _find_off(running)
            if ran_out:
                self.found[running] = Found(verdict="hung", detail=f"{self.limits.choose(running):.0f} s", off=off)
            else:
                self.found[running] = Found(verdict="ended", detail=ending, off=off)
        return self.found[OPENING].verdict == "right"


def examine(
    data_dir: Path,
    *,
    cache_dir: Path,
    allow_cpu: bool = False,
    limits: Limits | None = None,
    only: Sequence[str] | None = None,
    pretends: Mapping[str, str] | None = None,
    on_check: OnCheck = lambda _name: None,
    is_kept: bool = True,
) -> Report:
    """Checks this machine; with `only`, runs those checks alone. Unless told otherwise, what was found is kept.

    `pretends` makes checks fail on purpose: wrong, refused, hung or ended, by their names (child.py).
    """
    started_s, at = time.monotonic(), time.time()
    limits = limits or Limits()
    examination = _Examination(
        task={
            "cache_dir": str(cache_dir),
            "allow_cpu": allow_cpu,
            "pretends": dict(pretends or {}),
            "checks": None if only is None else list(only),
        },
        limits=limits,
        on_check=on_check,
        deadline_s=None if limits.whole_s is None else started_s + limits.whole_s,
    )
    access = machine.look_at_access()  # before our own process holds the chips
    examination.run()
    checked = Checked(
        kind=examination.devices[0]["kind"] if examination.devices else "",
        hardware=machine.identify_hardware(),
        versions=switches.list_versions(),
        at=at,
        checks={name: found for name, found in examination.found.items() if name != OPENING},
    )
    return Report(
        at=at,
        seconds=time.monotonic() - started_s,
        versions=machine.read_versions(),
        hardware=checked.hardware,
        kind=checked.kind,
        devices=examination.devices,
        host_bytes=psutil.virtual_memory().total,
        disk=machine.look_at_disk(data_dir),
        access=access,
        checks=examination.found,
        off=examination.off,
        remembered=_keep(switches.find_file(cache_dir), checked) if checked.kind and is_kept else "",
    )


def find_known(cache_dir: Path) -> Checked | None:
    """Returns what is remembered of this machine's accelerator with these versions; None if it was never checked."""
    file = switches.find_file(cache_dir)
    return switches.find(file, versions=switches.list_versions(), hardware=machine.identify_hardware())


def _keep(file: Path, checked: Checked) -> str:
    """Remembers what was found, with earlier verdicts of checks that were not run.

    Returns the file, "" if that cannot be written, which the report says of the disk.
    """
    known = switches.find(file, versions=checked.versions, kind=checked.kind, hardware=checked.hardware)
    checks = dict(known.checks) if known else {}
    for name, found in checked.checks.items():
        if found.verdict != "skipped" or name not in checks:
            checks[name] = found
    try:
        switches.remember(file, replace(checked, checks=checks))
    except OSError:
        return ""
    return str(file)


def _find_off(check: str) -> tuple[str, ...]:
    """Returns the kernels that a check without an answer is about, by its name (kernels.CHECKS needs JAX)."""
    more = {"attention": ("flash", "ulysses"), "convolution": ("conv3x3",)}
    return more.get(check, (check,) if check in switches.INSTEAD else ())


def _forward(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the process and those that it started, unless it has ended; a hanging driver call takes nothing less."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
