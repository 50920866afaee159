"""The TPU compiler's answers, one plan per line of JSON; answers.jsonl is shipped, so its plans need no compilation.

A line holds a plan's totals, how the `weights` lie if not in full, and, for every stage, the program's fingerprint, the
compiler's answer and the estimate made from it. A program that has changed since, or another compiler, has another
fingerprint and is compiled.

After a change to a program without planning everything again, `"is_earlier": true` is added to the lines that stay:
their unchanged stages are still valid, and the page marks them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipelines.files.locked import hold_file
from pipelines.models.model import FULL
from pipelines.plan.estimate import find_estimator, is_current
from pipelines.plan.lines import read_estimate, read_lines, write_estimate, write_lines
from pipelines.plan.planner import Plan, describe_placement
from pipelines.plan.verdicts import Answer, Verdict
from pipelines.recipes.step_cache import OFF

SHIPPED = Path(__file__).with_name("answers.jsonl")

_ID = ("model", "shape", "topology", "mode", "mesh", "weights", "step_cache")


def describe(plan: Plan) -> dict[str, Any]:
    """Returns one plan's line as a dict."""
    return {
        "model": plan.model.id,
        **({} if plan.model.weights == FULL else {"weights": plan.model.weights}),
        "shape": str(plan.shape),
        "topology": plan.topology.name,
        "mode": plan.mode,
        "mesh": plan.mesh,
        "batch_size": plan.batch_size,
        "steps": plan.model.steps,
        **({} if plan.step_cache == OFF else {"step_cache": plan.step_cache}),
        "placement": describe_placement(plan),
        "estimated_moves_s": plan.estimated_moves_s,
        "estimated_total_s": plan.estimated_total_s,
        "estimator": find_estimator(plan.topology.chip),
        "stages": [
            {
                "stage": one.stage.name,
                "runs": one.stage.runs,
                **({"reused": one.stage.reused} if one.stage.reused else {}),
                "fits": one.fits,
                "estimated_s": one.estimated_s,
                "program": one.verdict.program,
                "answer": asdict(one.answer),
                "estimate": one.estimate and write_estimate(one.estimate),
            }
            for one in plan.stages
        ],
    }


def add_lines(file: Path, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Adds lines to the file, replacing earlier plans of the same thing; returns all lines in a stable order."""
    with hold_file(file):
        found = {_identify(line): dict(line) for line in (*read_lines(file), *lines)}
        ordered = [found[key] for key in sorted(found)]
        write_lines(file, ordered)
    return ordered


def _identify(line: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(line.get(name, "") for name in _ID)  # weights and step cache are said where they are not the usual


def collect_verdicts(lines: Sequence[Mapping[str, Any]]) -> dict[str, Verdict]:
    """Maps program fingerprint -> known verdict; lines from other versions of the estimator are skipped."""
    stages = (stage for line in lines if is_current(line) for stage in line["stages"])
    return {
        stage["program"]: Verdict(
            program=stage["program"],
            answer=Answer(**stage["answer"]),
            is_known=True,
            estimate=stage["estimate"] and read_estimate(stage["estimate"]),
        )
        for stage in stages
    }
