"""What happened in a training, as lines of JSON in its folder, and for TensorBoard, trackio or wandb on wish."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.errors import RecipeError
from pipelines.messages import say

_MODULES = {"tensorboard": "tensorboardX", "trackio": "trackio", "wandb": "wandb"}
_NUMBERS = ("loss", "learning_rate", "gradient_norm", "update_norm", "validation_loss")


def check_report(name: str | None) -> None:
    """Raises RecipeError if the library of this name is not installed."""
    if name is None:
        return
    try:
        importlib.import_module(_MODULES[name])
    except ImportError as error:
        raise RecipeError(
            {
                "report_to": say(
                    "{name} needs the package {package}, which is not here: pip install {package}",
                    name=name,
                    package=_MODULES[name],
                )
            }  # fmt: skip
        ) from error


class Report:
    """Writes events as they come; a training that goes on drops the lines of the steps that it makes again."""

    def __init__(self, log: Path, name: str | None, *, first: int) -> None:
        self._log = log
        self._send, self._end = _connect(name, log.parent)
        kept = [line for line in _read_lines(log) if line.get("step", 0) <= first] if first else []
        log.write_text("".join(f"{_write(line)}\n" for line in kept), "utf-8")

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()

    def has(self, event: str, step: int, *, count: int = 1) -> bool:
        """Tells whether the log has so many of these events after a step, of this run or of one before."""
        told = [line for line in _read_lines(self._log) if (line.get("event"), line.get("step")) == (event, step)]
        return len(told) >= count

    def write(self, event: dict[str, Any]) -> None:
        """Appends one event as a line, and sends its numbers on."""
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{_write(event)}\n")
        numbers = {name: event[name] for name in _NUMBERS if event.get(name) is not None}
        if numbers:
            self._send(numbers, event["step"])


def _write(event: dict[str, Any]) -> str:
    return json.dumps(event, default=str, allow_nan=False)


def _read_lines(log: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    try:
        text = log.read_text("utf-8")
    except FileNotFoundError:
        return lines
    for line in text.splitlines():
        try:
            lines.append(json.loads(line, parse_constant=lambda _name: None))  # older logs have NaN
        except ValueError:  # cut off by a crash
            continue
    return lines


def _connect(name: str | None, folder: Path) -> tuple[Callable[[dict[str, float], int], None], Callable[[], None]]:
    if name is None:
        return (lambda _numbers, _step: None), (lambda: None)
    library: Any = importlib.import_module(_MODULES[name])
    if name == "tensorboard":
        writer = library.SummaryWriter(str(folder / "tensorboard"))

        def send(numbers: dict[str, float], step: int) -> None:
            for title, value in numbers.items():
                writer.add_scalar(title, value, step)

        return send, writer.close
    library.init(project="lumesh", name=folder.name)  # wandb's interface, which trackio has too
    return (lambda numbers, step: library.log(numbers, step=step)), library.finish
