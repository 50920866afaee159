"""What `train --check` says of time and money: the plan of these steps on this machine, if it was made already.

Nothing is compiled here; where no plan is known, the command that makes one is told.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.commands import options
from pipelines.commands.known_plans import find_kept, make_question
from pipelines.models.catalog import Shape, find_folder
from pipelines.plan import training, training_report
from pipelines.plan.topologies import LARGEST_HOST, Topology, find_machine, find_topology
from pipelines.runtime.kernels import switches
from pipelines.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class TrainingEstimate:
    """A training's plan as it is known before: `answer` is None where nothing is; `command` asks the TPU compiler.

    Without a `command` no plan is made of such a training, for the reason `obstacle`, a clause.
    `machine` is this one, or where that is no TPU which is known, the one to plan for (not `is_here`).
    """

    answer: training.TrainingAnswer | None
    machine: Topology
    is_here: bool
    steps: int
    sizes: int
    command: str | None
    obstacle: str = ""
    other_batch: str = ""
    """What the command says otherwise, in brackets, where the batch of this training cannot be planned."""

    def describe(self) -> dict[str, Any]:
        """Returns it for JSON."""
        found = None
        if self.answer is not None:
            price = self.machine.chip.hourly_price if self.machine.chip else None
            found = training_report.to_json(self.answer, self.machine, steps=self.steps, chip_price=price)
        return {"estimate": found, "plan_command": self.command}

    def tell(self) -> list[str]:
        """Returns it in sentences."""
        if self.command is None:
            return [f"What it takes is not known before: {self.obstacle}"]
        if not self.is_here:
            return [f"What it would take on a TPU is estimated by its compiler, without one{self.other_batch}: "
                    f"{self.command}"]  # fmt: skip
        if self.answer is None:
            return [f"What it takes on {self.machine.name} was not planned yet; this does: {self.command}"]
        price = self.machine.chip.hourly_price if self.machine.chip else None
        lines = training_report.describe(self.answer, self.machine, steps=self.steps, chip_price=price)
        if self.sizes > 1:
            lines.append(
                f"All {self.sizes} sizes are counted as {self.answer.question.shape}, which most pictures have."
            )
        return lines


def estimate(
    settings: TrainingSettings, checked: Any, place: options.DataDirectory, *, kind: str, devices: int
) -> TrainingEstimate:
    """Finds the plan for so many devices of this kind, as JAX calls it; `checked` is a training/checks.py Checked."""
    here = find_machine(kind, devices)
    machine = here or find_topology(LARGEST_HOST)
    shape = Shape.parse(next(iter(checked.buckets)))
    question = make_question(settings, checked.model, machine, shape=shape, batch_size=checked.batch_size)
    obstacle = _find_obstacle(settings, checked, devices=devices)
    words = () if obstacle else _write_command(question, settings, machine, place, steps=checked.steps)
    is_planned = here is not None and not obstacle
    return TrainingEstimate(
        answer=find_kept(question, checked.model, place) if is_planned else None,
        machine=machine,
        is_here=here is not None,
        steps=checked.steps,
        sizes=len(checked.buckets),
        command=shlex.join(words) or None,
        obstacle=obstacle,
        other_batch=_tell_other_batch(question, machine),
    )


def _tell_other_batch(question: training.TrainingQuestion, machine: Topology) -> str:
    unit = machine.devices * question.accumulate
    if question.batch_size % unit == 0:
        return ""
    shares = f"{machine.devices} devices" + (f" in {question.accumulate} parts" if question.accumulate > 1 else "")
    return f" (of {unit} pictures a step: {question.batch_size} cannot be shared out among {shares})"


def _find_obstacle(settings: TrainingSettings, checked: Any, *, devices: int) -> str:
    """Returns why `plan --train` cannot be about this training, "" where it can."""
    if settings.mesh is not None and checked.devices != devices:
        return (f"a plan is for all devices of a topology, each with pictures of its own (dp={devices}), and this "
                f"training's mesh is {settings.mesh}")  # fmt: skip
    if find_folder(checked.model) is None:
        return f"plans are made by configs that lie here, and those of {checked.model.id} are on the hub"
    if off := [name for name in switches.list_off() if name != "cudnn"]:
        return f"plans are of steps with all kernels, and off are {', '.join(off)}"
    return ""


def _write_command(
    question: training.TrainingQuestion,
    settings: TrainingSettings,
    machine: Topology,
    place: options.DataDirectory,
    *,
    steps: int,
) -> Sequence[str]:
    words = ["python", "-m", "pipelines", "plan", "--train", "--model", settings.model, f"--{question.kind}"]
    words += ["--topology", machine.name, "--shape", question.shape, "--steps", str(steps)]
    if not _tell_other_batch(question, machine):
        words += ["--batch", str(question.batch_size)]
    for name in ("rank", "accumulate", "remat"):
        value = getattr(question, name)
        if value and value != TrainingSettings.model_fields[name].default:
            words += [f"--{name}", str(value)]
    for name, value in question.others.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    if place.data_dir != options.DATA_DIR:  # where the model may lie, and where the answer is kept
        words += ["--data-dir", str(place.data_dir)]
    return words
