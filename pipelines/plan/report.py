"""Prints a plan for people: one table of stages, their total, and advice."""

import functools

from rich.console import Console
from rich.table import Table

from pipelines.models.model import FULL
from pipelines.plan.placement import HOST_BYTES_PER_S
from pipelines.plan.planner import Plan, StagePlan
from pipelines.plan.topologies import CPU_SOURCE, TPU_SOURCE
from pipelines.recipes.step_cache import OFF

COLUMNS = ("stage", "fits", "weights", "temp", "code", "total", "compile", "estimated", "kernels", "exposed")


def print_plan(plan: Plan, console: Console) -> None:
    """Prints a plan in 80 columns. HBM is per chip; all times are estimates."""
    chip = plan.topology.chip
    say = functools.partial(console.print, soft_wrap=True, markup=False, highlight=False)
    say(f"{plan.model.title}, {plan.shape}, on {plan.topology.name}: {describe_machine(plan)}")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("stage", "fits") else "right", no_wrap=True)
    for one in plan.stages:
        table.add_row(*describe_stage(one), style=None if one.fits else "red")
    if plan.estimated_moves_s:
        table.add_row(*_describe_moves(plan.estimated_moves_s))
    console.print(table)
    say("Weights, temp, code and their total in GB a chip, compile in s, the rest in ms.")
    for one in plan.stages:
        if one.estimate is not None and one.estimate.reused is not None:
            say(
                f"{one.stage.name}: {one.stage.reused} of {one.stage.runs} steps reuse what an earlier one computed, "
                f"{1000 * one.estimate.reused.total_s:.2f} ms each."
            )
    if plan.estimated_moves_s:
        say(f"Moves: what comes back from the host's memory, if at {HOST_BYTES_PER_S / 1e9:.0f} GB/s a chip.")
    for one in plan.stages:
        if one.estimate is not None and one.estimate.run.counts:
            kinds = sorted(one.estimate.run.counts.items())
            say(f"{one.stage.name}: {', '.join(f'{count} {kind}' for kind, count in kinds)}")
    limit = f" of {show_bytes(chip.hbm_bytes)}" if chip else ""
    say(f"Placement: {plan.placement.advice} Up to {show_bytes(plan.placement.resident_bytes)}{limit} a chip.")
    for one in plan.stages:
        if one.answer.refusal:
            say(f"{one.stage.name}: {one.answer.refusal}")
    say(describe_total(plan))
    if any(one.measured_ms is not None for one in plan.stages):
        say(describe_measured(plan))
    if plan.batch_size > 1:
        say(describe_way(plan))
    if any(one.verdict.is_known for one in plan.stages):
        say("Compiled beforehand, as it comes with Lumesh: seconds to compile are those of another machine.")


def describe_machine(plan: Plan) -> str:
    """Returns chips, mesh and the number of outputs at once, for people."""
    made = f"{plan.batch_size} at once" if plan.batch_size > 1 else "one output"
    cache = "" if plan.step_cache == OFF else f", step cache {plan.step_cache}"
    weights = "" if plan.model.weights == FULL else f", weights in {plan.model.weights}"
    return f"{plan.topology.title}, mesh {plan.mesh}, {plan.mode} ({made}){cache}{weights}"


def describe_way(plan: Plan) -> str:
    """Returns the options that run as many outputs at once as planned."""
    if plan.is_mesh_given:
        return f"To run it so: --mesh {plan.mesh} --batch_size {plan.batch_size}."
    return f"To run it so: --mesh {plan.mode}; a studio then runs jobs that are alike together."


def describe_total(plan: Plan) -> str:
    """Returns the line under the table."""
    if plan.topology.chip is None:
        return f"{CPU_SOURCE}, the CPU compiler estimates no time."
    if plan.estimated_total_s is None:
        return f"{TPU_SOURCE}: no total, because a stage does not compile."
    share = f", {plan.estimated_total_s / plan.batch_size:.3g} s each" if plan.batch_size > 1 else ""
    return f"{TPU_SOURCE}, nothing was run: {plan.estimated_total_s:.3g} s in all, {plan.model.steps} steps{share}."


def describe_measured(plan: Plan) -> str:
    """Returns what `doctor --measure` measured on this machine."""
    stages = ", ".join(
        f"{one.stage.name} {one.measured_ms:.2f} ms" for one in plan.stages if one.measured_ms is not None
    )
    total = "" if plan.measured_total_s is None else f", {plan.measured_total_s:.3g} s in all"
    return f"Measured on this machine: {stages}{total}."


def describe_stage(one: StagePlan) -> list[str]:
    """Returns one cell for each of COLUMNS; `estimated` includes kernels and exposed collectives."""
    sizes = one.hbm_bytes
    computed = one.stage.runs - one.stage.reused
    runs = f" x{computed}" if computed > 1 else ""
    row = [f"{one.stage.name}{runs}", "yes" if one.fits else "no"]
    row += [f"{sizes[name] / 1e9:.2f}" for name in ("weights", "temp", "code", "total")]
    row.append(f"{one.answer.compile_s:.0f}")
    if one.estimate is None:
        return [*row, "-", "-", "-"]
    run = one.estimate.run
    kernels_s = run.attention_s + run.convolution_s
    return [*row, *(f"{1000 * value:.2f}" for value in (run.total_s, kernels_s, run.exposed_s))]


def _describe_moves(seconds: float) -> list[str]:
    """Returns the row of COLUMNS for weights that return to a chip."""
    row = dict.fromkeys(COLUMNS, "") | {"stage": "moves", "weights": f"{seconds * HOST_BYTES_PER_S / 1e9:.2f}"}
    return [*(row | {"estimated": f"{1000 * seconds:.2f}"}).values()]


def show_bytes(count: int) -> str:
    """Formats bytes in GB or MB, of 10^9 and 10^6 bytes."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
