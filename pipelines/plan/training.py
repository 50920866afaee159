"""Plans a training: compiles its step for chips that are not here, and says memory, time and money.

The step comes as Programs from whoever knows how to train; this file compiles the least rematerialisation that fits.
Answers are kept one a line in training.jsonl, which is shipped: what was asked before is answered without tracing or
compiling, with the day and the versions that it was compiled with.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.plan.answers import read_estimate, read_lines, write_estimate, write_lines
from pipelines.plan.compiler import Answer, Compiler, read_versions
from pipelines.plan.estimate import Estimate
from pipelines.plan.topologies import TPU_SOURCE, Topology
from pipelines.runtime.programs.compiled import Program

SHIPPED = Path(__file__).with_name("training.jsonl")
USABLE = 0.98
"""Share of a chip's memory that a step may take; the rest is for what lies around it."""


@dataclass(frozen=True, kw_only=True)
class TrainingQuestion:
    """A training to plan: `kind` is lora or full, `rank` 0 without a LoRA, `remat` may be auto."""

    model: str
    kind: str
    topology: str
    shape: str
    batch_size: int
    rank: int
    accumulate: int = 1
    remat: str = "auto"


@dataclass(frozen=True, kw_only=True)
class TrainingAnswer:
    """What the compiler said of the step with rematerialisation `remat`; bytes are of one chip.

    `weights_bytes` are all weights, those that learn in fp32, and the optimizer's state; `learnt` counts weights.
    """

    question: TrainingQuestion
    remat: str
    mesh: str
    learnt: int
    weights_bytes: int
    program: str
    answer: Answer
    estimate: Estimate | None
    day: str
    versions: Mapping[str, str]
    is_kept: bool = False

    def hbm_bytes(self) -> dict[str, int]:
        """Returns bytes by kind; rows of pictures count as working memory."""
        answer = self.answer
        whole = answer.temp_bytes if answer.refusal else answer.temp_bytes + answer.arguments_bytes
        sizes = {
            "weights": self.weights_bytes,
            "temp": max(0, whole - self.weights_bytes),
            "code": answer.code_bytes,
        }
        return sizes | {"total": sum(sizes.values())}

    def fits(self, topology: Topology) -> bool:
        if self.answer.refusal:
            return False
        return topology.chip is None or self.hbm_bytes()["total"] <= USABLE * topology.chip.hbm_bytes

    @property
    def step_s(self) -> float | None:
        """Returns the estimated seconds of a step, None on CPU and after a refusal."""
        return None if self.estimate is None else self.estimate.run.total_s


def ask(
    question: TrainingQuestion,
    *,
    build: Callable[[str], Program],
    remats: Sequence[str],
    topology: Topology,
    mesh: str,
    learnt: int,
    weights_bytes: int,
    compiler: Compiler,
    on_compile: Callable[[str], None],
) -> TrainingAnswer:
    """Compiles the step with each of `remats` in turn until one fits; returns the last one's. Raises CompilerError."""
    found: TrainingAnswer | None = None
    for remat in remats:
        verdict = compiler.ask(build(remat), on_compile=lambda remat=remat: on_compile(remat))
        found = TrainingAnswer(
            question=question,
            remat=remat,
            mesh=mesh,
            learnt=learnt,
            weights_bytes=weights_bytes,
            program=verdict.program,
            answer=verdict.answer,
            estimate=verdict.estimate,
            day=f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}",
            versions=read_versions(),
        )
        if found.fits(topology):
            break
    assert found is not None
    return found


def find(file: Path, question: TrainingQuestion) -> TrainingAnswer | None:
    """Returns the kept answer to this question, None if there is none. Raises ValueError for malformed lines."""
    return next((_read(line) for line in read_lines(file) if line["question"] == asdict(question)), None)


def keep(file: Path, answer: TrainingAnswer) -> None:
    """Adds an answer to the file, in place of an earlier one to the same question."""
    others = [line for line in read_lines(file) if line["question"] != asdict(answer.question)]
    lines = sorted([*others, _write(answer)], key=lambda line: [*map(str, line["question"].values())])
    write_lines(file, lines)


def to_json(answer: TrainingAnswer, topology: Topology, *, steps: int, chip_price: float | None) -> dict[str, Any]:
    """Returns the object that `plan --train --json` prints."""
    run = answer.estimate.run if answer.estimate else None
    return {
        **asdict(answer.question),
        "stage": "train",
        "remat": answer.remat,
        "mesh": answer.mesh,
        "chips": topology.chips,
        "learnt": answer.learnt,
        "fits": answer.fits(topology),
        "hbm_bytes": answer.hbm_bytes(),
        "hbm_limit_bytes": topology.chip.hbm_bytes if topology.chip else None,
        "compile_s": round(answer.answer.compile_s, 1),
        "step_ms": None if run is None else round(1000 * run.total_s, 2),
        "step_parts_ms": run
        and {
            "compute": round(1000 * run.compute_s, 2),
            "attention": round(1000 * run.attention_s, 2),
            "exposed_collectives": round(1000 * run.exposed_s, 2),
            "hidden_collectives": round(1000 * run.hidden_s, 2),
        },
        "steps": steps,
        "hours": count_hours(answer, steps),
        "chip_price": chip_price,
        "dollars": count_dollars(answer, topology, steps=steps, chip_price=chip_price),
        "refusal": answer.answer.refusal or None,
        "compiled_on": answer.day,
        "versions": dict(answer.versions),
    }


def count_hours(answer: TrainingAnswer, steps: int) -> float | None:
    """Returns the hours of so many steps, compiling not counted."""
    return None if answer.step_s is None else steps * answer.step_s / 3600


def count_dollars(answer: TrainingAnswer, topology: Topology, *, steps: int, chip_price: float | None) -> float | None:
    """Returns the price of so many steps at so much a chip and an hour; None where no price is known."""
    hours = count_hours(answer, steps)
    return None if hours is None or chip_price is None else hours * topology.chips * chip_price


def describe(answer: TrainingAnswer, topology: Topology, *, steps: int, chip_price: float | None) -> list[str]:
    """Returns the plan in sentences."""
    question, sizes = answer.question, answer.hbm_bytes()
    what = f"a LoRA of rank {question.rank}" if question.kind == "lora" else "all weights"
    total, weights, temp, code = (f"{sizes[name] / 1e9:.2f}" for name in ("total", "weights", "temp", "code"))
    limit = f" of {topology.chip.hbm_bytes / 1e9:.1f}" if topology.chip else ""
    lines = [
        f"{question.model}, {what}: {answer.learnt / 1e6:.1f} M weights learn from {question.batch_size} of "
        f"{question.shape} a step, on {topology.name}: {topology.title}, mesh {answer.mesh}",
        f"A chip holds {total}{limit} GB: {weights} weights and optimizer, {temp} while it runs, {code} code; "
        f"--remat {answer.remat}",
    ]
    if not answer.fits(topology):
        lines.append("This does not fit: take fewer pictures a step, --accumulate, or more chips.")
    if answer.answer.refusal:
        lines.append(str(answer.answer.refusal))
    hours = count_hours(answer, steps)
    dollars = count_dollars(answer, topology, steps=steps, chip_price=chip_price)
    if answer.step_s is not None:
        money = "no price is known for these chips: --chip-price"
        if dollars is not None:
            money = f"{dollars:.2f} US dollars at {chip_price:.2f} for a chip and an hour"
        lines.append(
            f"{TPU_SOURCE}, nothing was run: {answer.step_s:.3g} s a step, {steps} steps in {hours:.2g} h, {money}"
        )
    kept = ", and kept; --again compiles it anew" if answer.is_kept else ""
    return [*lines, f"Compiled on {answer.day}, in {answer.answer.compile_s:.0f} s{kept}"]


def _write(answer: TrainingAnswer) -> dict[str, Any]:
    fields = {name: value for name, value in vars(answer).items() if name != "is_kept"}
    return fields | {
        "question": asdict(answer.question),
        "answer": asdict(answer.answer),
        "estimate": answer.estimate and write_estimate(answer.estimate),
        "versions": dict(answer.versions),
    }


def _read(line: Mapping[str, Any]) -> TrainingAnswer:
    fields: dict[str, Any] = {
        **line,
        "question": TrainingQuestion(**line["question"]),
        "answer": Answer(**line["answer"]),
        "estimate": line["estimate"] and read_estimate(line["estimate"]),
    }
    return TrainingAnswer(**fields, is_kept=True)
