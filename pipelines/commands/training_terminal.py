"""A training on the terminal: what it will do, a bar while it learns, and where the result is; or lines of JSON."""

import json
import sys
from typing import Any

import typer
from tqdm import tqdm

from pipelines.commands.progress import TerminalProgress
from pipelines.commands.training_estimate import TrainingEstimate
from pipelines.messages import english
from pipelines.stages import Progress
from pipelines.training.checks import Checked
from pipelines.training.engine.loop import Stop
from pipelines.training.run import Result


class TrainingTerminal:
    """Shows events as they come; with `is_json` each is one line of JSON on standard output, `is_silent` is nothing."""

    def __init__(self, checked: Checked, *, is_json: bool, is_silent: bool = False) -> None:
        self._checked = checked
        self._is_json = is_json
        self._is_silent = is_silent
        self._progress = TerminalProgress(is_silent=is_json or is_silent)
        self._bar: Any = None

    def __enter__(self) -> "TrainingTerminal":
        self._progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._close_bar()
        self._progress.__exit__(*error)

    def on_progress(self, progress: Progress) -> None:
        """Shows what is loaded or compiled."""
        self._progress(progress)

    def tell_plan(self, estimate: TrainingEstimate | None = None) -> None:
        """Says what was read and what will be done, and what it will take where that was asked for."""
        if self._is_silent:
            return
        plan = {**self._checked.describe(), **(estimate.describe() if estimate is not None else {})}
        if self._is_json:
            typer.echo(json.dumps({"event": "plan", **plan}))
            return
        for line in [*self._checked.tell(), *(estimate.tell() if estimate is not None else ())]:
            typer.echo(f"lumesh: {english(line)}", err=True)

    def hear(self, event: dict[str, Any]) -> None:
        """Shows one event."""
        if self._is_silent:
            return
        if self._is_json:
            typer.echo(json.dumps(event, default=str, allow_nan=False))
            return
        match event["event"]:
            case "step":
                self._show_step(event)
            case "preparing" | "prior":
                self._count(event)
            case "validation":
                loss = "no number" if event["validation_loss"] is None else f"{event['validation_loss']:.4f}"
                _tell(f"lumesh: step {event['step']}: the loss of what is held back is {loss}")
            case "sample":
                _tell(f"lumesh: step {event['step']}: {event['file']}")
            case "expert":
                self._close_bar()
                _tell(f"lumesh: expert {event['number'] + 1} of {event['count']} learns ({event['component']})")
            case "too_large":
                _tell(f"lumesh: {tell_refusal(event)}")
            case "note":
                _tell(f"lumesh: {event['text']}")
            case "resumed":
                _tell(f"lumesh: going on after step {event['step']}")
            case _:
                pass

    def tell_result(self, result: Result, files: tuple[Any, ...], stop: Stop, *, model_id: str = "") -> None:
        """Says where the result is, and as which model it is listed, or how to go on."""
        self._close_bar()
        if self._is_json:
            typer.echo(
                json.dumps(
                    {
                        "event": "done" if files else "stopped",
                        "output": str(files[0]) if files else None,
                        "outputs": [str(file) for file in files],
                        "steps": result.steps,
                        "loss": result.loss,
                        "seconds": round(result.seconds, 3),
                        "compiles": result.compiles,
                    },
                    allow_nan=False,
                )
            )
            return
        if not files:
            typer.echo(
                f"lumesh: stopped after step {result.steps} ({stop.reason}); run the same command again to go on.",
                err=True,
            )
            return
        for file in files:
            typer.echo(file)
        if model_id:
            typer.echo(f"lumesh: the studio lists it as {model_id}: generate --model {model_id}", err=True)
        typer.echo(f"{result.steps} steps, {result.seconds:.0f} s", err=True)

    def _show_step(self, event: dict[str, Any]) -> None:
        self._open_bar("training", event["steps"])
        self._bar.n = event["step"]
        skipped = f", {event['skipped']} skipped" if event["skipped"] else ""
        loss = "no number" if event["loss"] is None else f"{event['loss']:.4f}"
        self._bar.set_postfix_str(f"loss {loss}{skipped}", refresh=False)
        self._bar.refresh()

    def _count(self, event: dict[str, Any]) -> None:
        self._open_bar("preparing" if event["event"] == "preparing" else "own pictures", event["total"])
        self._bar.n = event["done"]
        self._bar.refresh()
        if event["done"] == event["total"]:
            self._close_bar()

    def _open_bar(self, title: str, total: int) -> None:
        if self._bar is None:
            self._bar = tqdm(total=total, desc=title, mininterval=1.0)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _tell(line: str) -> None:
    """Writes above the bar; standard output is for the result's place alone, which scripts read."""
    tqdm.write(line, file=sys.stderr)


def tell_refusal(event: dict[str, Any]) -> str:
    """Says that a step did not fit into the devices' memory, and what is tried next."""
    said = f"a step with remat {event['remat']} does not fit into the devices' memory"
    following = event["next"]
    if following is None:
        return said
    if following["accumulate"] == event["accumulate"]:
        return f"{said}; trying {following['remat']}, which computes more of it twice"
    return f"{said}; trying the same batch in {following['accumulate']} parts, one after the other (--strict refuses)"
