"""Plans a training: compiles its step for chips that are not here, and says memory, time and money.

The step comes as Programs from whoever knows how to train; this file compiles the first way to compute it that fits,
in the order in which a training tries them. Answers are kept one a line: those in training.jsonl are shipped. What was
asked before is answered without tracing or compiling, and without jax, with the day and the versions that it was
compiled with. Answers of one's own are valid as long as all that they were `made_of` is the same; of no file are those
given whose seconds another version of the estimates has counted (estimate.py).
Not here: what is said of an answer (training_report.py).
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.files.locked import hold_file
from pipelines.messages import english
from pipelines.plan.estimate import Estimate, find_estimator, is_of_today
from pipelines.plan.lines import read_estimate, read_lines, read_sound_lines, write_estimate, write_lines
from pipelines.plan.topologies import Topology
from pipelines.plan.verdicts import Answer, read_versions

if TYPE_CHECKING:
    from pipelines.plan.compiler import Compiler
    from pipelines.runtime.programs.compiled import Program

SHIPPED = Path(__file__).with_name("training.jsonl")
USABLE = 0.98
"""Share of a chip's memory that a step may take; the rest is for what lies around it."""


@dataclass(frozen=True, kw_only=True)
class TrainingQuestion:
    """A training to plan: `kind` is lora or full, `rank` 0 without a LoRA, `remat` may be auto.

    `others` are settings that change memory or time of a step, such as the optimizer, where they are not the default.
    """

    model: str
    kind: str
    topology: str
    shape: str
    batch_size: int
    rank: int
    accumulate: int = 1
    remat: str = "auto"
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def describe(self) -> dict[str, Any]:
        """Returns the question for JSON, which names other settings only where there are any."""
        fields = dict(vars(self))
        others = dict(fields.pop("others"))
        return fields | ({"others": others} if others else {})


@dataclass(frozen=True, kw_only=True)
class TrainingAnswer:
    """What the compiler said of the step with rematerialisation `remat`; bytes are of one chip.

    `weights_bytes` are all weights, those that learn in fp32, and the optimizer's state; `learnt` counts weights.
    The batch is in `accumulate` parts: as many as were asked for, or more where that was too large. Of two experts
    that learn one after the other, each for all steps, there are two `rounds`. Without a `program` nothing was
    compiled, because the weights alone are too large.
    """

    question: TrainingQuestion
    remat: str
    accumulate: int = 1
    rounds: int = 1
    mesh: str
    learnt: int
    weights_bytes: int
    program: str
    answer: Answer
    estimate: Estimate | None
    day: str
    versions: Mapping[str, str]
    estimator: int
    made_of: str = ""
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


@dataclass(frozen=True, kw_only=True)
class Described:
    """A training's step as it can be compiled: `build(remat, accumulate)` gives its program, `ways` what to try."""

    build: "Callable[[str, int], Program]"
    ways: Sequence[tuple[str, int]]
    mesh: str
    learnt: int
    weights_bytes: int
    rounds: int = 1


def ask(
    question: TrainingQuestion,
    step: Described,
    *,
    topology: Topology,
    compiler: "Compiler",
    made_of: str,
    on_compile: Callable[[str], None],
) -> TrainingAnswer:
    """Compiles the step in each of its ways in turn until one fits; returns the last one's. Raises CompilerError.

    Nothing is compiled where the weights alone are more than a chip holds.
    """

    def answer(remat: str, accumulate: int, program: str, said: Answer, estimate: Estimate | None) -> TrainingAnswer:
        return TrainingAnswer(
            question=question,
            remat=remat,
            accumulate=accumulate,
            rounds=step.rounds,
            mesh=step.mesh,
            learnt=step.learnt,
            weights_bytes=step.weights_bytes,
            program=program,
            answer=said,
            estimate=estimate,
            day=f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}",
            versions=read_versions(),
            estimator=find_estimator(topology.chip),
            made_of=made_of,
        )

    if topology.chip is not None and step.weights_bytes > USABLE * topology.chip.hbm_bytes:
        refusal = english("Weights and optimizer alone are more than a chip holds.")
        too_large = Answer(
            compile_s=0.0, arguments_bytes=0, temp_bytes=step.weights_bytes, code_bytes=0, refusal=refusal
        )
        return answer(*step.ways[-1], "", too_large, None)
    found: TrainingAnswer | None = None
    for remat, accumulate in step.ways:
        name = f"remat {remat}" + (f", {accumulate} parts" if accumulate > 1 else "")
        verdict = compiler.ask(step.build(remat, accumulate), on_compile=lambda name=name: on_compile(name))
        found = answer(remat, accumulate, verdict.program, verdict.answer, verdict.estimate)
        if found.fits(topology):
            break
    assert found is not None
    return found


def find(
    file: Path, question: TrainingQuestion, *, made_of: str = "", on_damaged: Callable[[int], None] | None = None
) -> TrainingAnswer | None:
    """Returns the kept answer to this question that was `made_of` this and is of today, None if there is none.

    Where lines hold something else, `on_damaged` hears how many, and they are passed over; without it, raises
    ValueError, KeyError or TypeError.
    """
    wanted = question.describe()
    lines, damaged = (read_lines(file), 0) if on_damaged is None else read_sound_lines(file)
    found: TrainingAnswer | None = None
    for line in lines:
        if line["question"] != wanted or line.get("made_of", "") != made_of or found is not None:
            continue
        try:
            if not _is_current(line):
                continue
            found = _read(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            if on_damaged is None:
                raise
            damaged += 1
    if damaged and on_damaged is not None:
        on_damaged(damaged)
    return found


def list_answers(file: Path) -> list[TrainingAnswer]:
    """Returns the file's answers that are of today; raises what `find` raises."""
    return [_read(line) for line in read_lines(file) if _is_current(line)]


def keep(file: Path, answer: TrainingAnswer) -> None:
    """Adds an answer to the file, in place of an earlier one to the same question, and of lines that hold none."""
    asked = answer.question.describe()
    with hold_file(file):
        others = [line for line in read_sound_lines(file)[0] if line["question"] != asked]
        lines = sorted([*others, _write(answer)], key=lambda line: [*map(str, line["question"].values())])
        write_lines(file, lines)


def _is_current(line: Mapping[str, Any]) -> bool:
    """Whether the seconds are as they would be counted today; lines of long ago do not say how theirs were."""
    return is_of_today(line.get("estimator"), line["question"]["topology"])


def _write(answer: TrainingAnswer) -> dict[str, Any]:
    usual = {"accumulate": answer.question.accumulate, "rounds": 1, "made_of": ""}
    fields = {name: value for name, value in vars(answer).items() if name != "is_kept"}
    return {name: value for name, value in fields.items() if name not in usual or value != usual[name]} | {
        "question": answer.question.describe(),
        "answer": dict(vars(answer.answer)),
        "estimate": answer.estimate and write_estimate(answer.estimate),
        "versions": dict(answer.versions),
    }


def _read(line: Mapping[str, Any]) -> TrainingAnswer:
    question = TrainingQuestion(**line["question"])
    fields: dict[str, Any] = {
        "accumulate": question.accumulate,
        **line,
        "question": question,
        "answer": Answer(**line["answer"]),
        "estimate": line["estimate"] and read_estimate(line["estimate"]),
    }
    return TrainingAnswer(**fields, is_kept=True)
