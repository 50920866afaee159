"""Many plans as one Markdown page: a line a model, then a table of stages for each."""

from collections.abc import Sequence

from pipelines.plan.compiler import read_versions
from pipelines.plan.planner import SOURCE, Plan
from pipelines.plan.report import COLUMNS, describe_machine, describe_stage, show_bytes

_SUMMARY = ("model", "shape", "topology", "mesh", "placement", "worst, a chip", "compile", "a step", "in all")


def write_matrix(plans: Sequence[Plan], *, command: str) -> str:
    """The page; `command` is how it was made."""
    versions = ", ".join(f"{name} {version}" for name, version in read_versions().items())
    lines = [
        "# Plans",
        "",
        f"{SOURCE} ({versions}); nothing was run. Made by `{command}`. Bytes are a chip's; seconds to compile",
        "are those of the machine that made this page.",
        "",
        *_make_table(_SUMMARY, [_summarise(plan) for plan in plans]),
    ]
    for plan in plans:
        lines += ["", f"## {plan.model.id} {plan.shape} on {plan.topology.name}", ""]
        lines += [f"{describe_machine(plan)}. {plan.placement.advice}", ""]
        lines += _make_table(COLUMNS, [describe_stage(one) for one in plan.stages])
        lines += [f"\n`{one.stage.name}`: {one.answer.refusal}" for one in plan.stages if one.answer.refusal]
    return "\n".join(lines) + "\n"


def _summarise(plan: Plan) -> list[str]:
    step = next((one.estimated_ms for one in plan.stages if one.stage.name == "denoise"), None)
    total_s = plan.estimated_total_s
    return [
        plan.model.id,
        str(plan.shape),
        plan.topology.name,
        plan.mesh,
        plan.placement.kind.replace("_", " "),
        show_bytes(plan.placement.resident_bytes),
        f"{sum(one.answer.compile_s for one in plan.stages):.0f} s",
        "-" if step is None else f"{step:.1f} ms",
        "-" if total_s is None else f"{total_s:.3g} s",
    ]


def _make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
