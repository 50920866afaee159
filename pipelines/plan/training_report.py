"""What `plan --train` says of an answer: in sentences, as JSON, and what to take in place of what does not fit."""

from collections.abc import Iterable
from typing import Any

from pipelines.plan.topologies import CPU_SOURCE, SLICES, TOPOLOGIES, TPU_SOURCE, Topology
from pipelines.plan.training import USABLE, TrainingAnswer
from pipelines.plan.verdicts import read_versions

BESIDE = (
    "Counted are the steps alone: compiling, reading and encoding the data, samples, validation and saving come on top"
)
ROOM_FOR_WEIGHTS = 0.75
"""Share of a chip's memory that weights and gradients may take, for a machine to be named before anything is compiled.
"""


def to_json(answer: TrainingAnswer, topology: Topology, *, steps: int, chip_price: float | None) -> dict[str, Any]:
    """Returns the object that `plan --train --json` prints."""
    run = answer.estimate.run if answer.estimate else None
    return {
        **vars(answer.question),
        "others": dict(answer.question.others),
        "stage": "train",
        "source": TPU_SOURCE if topology.chip else CPU_SOURCE,
        "remat": answer.remat,
        "accumulate": answer.accumulate,
        "mesh": answer.mesh,
        "chips": topology.chips,
        "learnt": answer.learnt,
        "fits": answer.fits(topology),
        "fits_on": [] if answer.fits(topology) else list_roomier(answer, topology),
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
        "rounds": answer.rounds,
        "hours": count_hours(answer, steps),
        "chip_price": chip_price,
        "dollars": count_dollars(answer, topology, steps=steps, chip_price=chip_price),
        "refusal": answer.answer.refusal or None,
        "compiled_on": answer.day if answer.program else None,
        "is_kept": answer.is_kept,
        "versions": dict(answer.versions),
        "versions_here": read_versions(),
    }


def count_hours(answer: TrainingAnswer, steps: int) -> float | None:
    """Returns the hours of so many steps of each round, and of nothing else."""
    return None if answer.step_s is None else answer.rounds * steps * answer.step_s / 3600


def count_dollars(answer: TrainingAnswer, topology: Topology, *, steps: int, chip_price: float | None) -> float | None:
    """Returns the price of so many steps at so much a chip and an hour; None where no price is known."""
    hours = count_hours(answer, steps)
    return None if hours is None or chip_price is None else hours * topology.chips * chip_price


def list_roomier(answer: TrainingAnswer, topology: Topology) -> list[str]:
    """Names the smallest machine of each kind of chip that has room, if each device has as many pictures as here.

    Weights spread over all devices, as they do where that is needed. Where nothing was compiled, a gradient as large as
    what learns is counted with them, and a quarter is left for all else. Empty if the compiler did not say how much is
    missing.
    """
    sizes = answer.hbm_bytes()
    if topology.chip is None or not sizes["temp"] + sizes["code"] and answer.program:
        return []
    spread, share = sizes["weights"] * topology.devices, USABLE
    if not answer.program:
        spread, share = spread + 4 * answer.learnt, ROOM_FOR_WEIGHTS
    found: dict[str, str] = {}
    for machine in sorted((TOPOLOGIES | SLICES).values(), key=lambda one: one.devices):
        if machine.chip is None or machine.chip.name in found:
            continue
        wanted = spread / machine.devices + sizes["temp"] + sizes["code"]
        if wanted <= share * machine.chip.hbm_bytes:
            found[machine.chip.name] = machine.name
    return list(found.values())


def describe(answer: TrainingAnswer, topology: Topology, *, steps: int, chip_price: float | None) -> list[str]:
    """Returns the plan in sentences."""
    question, sizes = answer.question, answer.hbm_bytes()
    what = f"a LoRA of rank {question.rank}" if question.kind == "lora" else "all weights"
    others = "".join(f", {name} {_show(value)}" for name, value in question.others.items())
    lines = [
        f"{question.model}, {what}: {answer.learnt / 1e6:.1f} M weights learn from {question.batch_size} of "
        f"{question.shape} a step{others}, on {topology.name}: {topology.title}, mesh {answer.mesh}"
    ]
    limit = f" of {topology.chip.hbm_bytes / 1e9:.1f}" if topology.chip else ""
    total, weights, temp, code = (f"{sizes[name] / 1e9:.2f}" for name in ("total", "weights", "temp", "code"))
    parts = f" --accumulate {answer.accumulate}" if answer.accumulate > 1 else ""
    if answer.program:
        lines.append(
            f"A chip holds {total}{limit} GB: {weights} weights and optimizer, {temp} while it runs, {code} code; "
            f"--remat {answer.remat}{parts}"
        )
    if not answer.fits(topology):
        lines += _advise(answer, topology)
    if answer.answer.refusal and answer.program:
        lines.append(str(answer.answer.refusal))
    if answer.step_s is not None:
        lines += [_count(answer, topology, steps=steps, chip_price=chip_price), f"{BESIDE}."]
    elif topology.chip is None:
        lines.append(f"{CPU_SOURCE}, the CPU compiler estimates no time.")
    if not answer.program:
        return [*lines, "Nothing was compiled for this."]
    kept = ", and kept; --again compiles it anew" if answer.is_kept else ""
    lines.append(f"Compiled on {answer.day}, in {answer.answer.compile_s:.0f} s{kept}")
    here = read_versions()
    if changed := [name for name in here if answer.versions.get(name) != here[name]]:
        made, now = (", ".join(f"{name} {of.get(name)}" for name in changed) for of in (answer.versions, here))
        lines.append(f"That was with {made}; here is {now}, with which it may be another.")
    return lines


def show_hours(hours: float) -> str:
    """Formats hours for people, without exponents."""
    if hours < 1 / 60:
        return f"{3600 * hours:.2g} s"
    if hours < 1:
        return f"{60 * hours:.2g} min"
    return f"{hours:.2g} h" if hours < 10 else f"{hours:,.0f} h"


def _count(answer: TrainingAnswer, topology: Topology, *, steps: int, chip_price: float | None) -> str:
    hours = count_hours(answer, steps)
    dollars = count_dollars(answer, topology, steps=steps, chip_price=chip_price)
    assert answer.step_s is not None and hours is not None
    money = "no price is known for these chips: --chip-price"
    if dollars is not None:
        money = f"{dollars:.2f} US dollars at {chip_price:.2f} for a chip and an hour"
    rounds = f" of each of {answer.rounds} experts" if answer.rounds > 1 else ""
    took = f"{answer.step_s:.3g} s a step, {steps} steps{rounds} in {show_hours(hours)}"
    return f"{TPU_SOURCE}, nothing was run: {took}, {money}"


def _advise(answer: TrainingAnswer, topology: Topology) -> list[str]:
    """Says that it does not fit, and what would."""
    question, sizes = answer.question, answer.hbm_bytes()
    whole = "This does not fit"
    if not answer.program and topology.chip is not None:
        held = topology.chip.hbm_bytes / 1e9
        whole += f": weights and optimizer alone are {sizes['weights'] / 1e9:.1f} GB a chip, which holds {held:.1f}"
    choices: list[str] = []
    if question.kind == "full":
        choices.append("a LoRA (--lora)")
    if answer.program:
        if question.remat != "auto":
            choices.append("--remat auto")
        if question.batch_size > topology.devices:
            choices.append("fewer pictures a step (--batch)")
        frames = " or fewer frames" if question.shape.count("x") > 1 else ""
        choices.append(f"a smaller size{frames} (--shape)")
    if machines := list_roomier(answer, topology):
        room = "with as many pictures a chip there is room on" if answer.program else "weights and gradients fit on"
        choices.append(f"more memory: {room} {', '.join(machines)} (--topology)")
    elif answer.program:
        choices.append("more chips (--topology)")
    if not choices:
        return [f"{whole}. No machine that is known here is large enough."]
    return [f"{whole}. Take {_join(choices)}."]


def _join(choices: Iterable[str]) -> str:
    *first, last = choices
    return f"{', '.join(first)}, or {last}" if first else last


def _show(value: object) -> str:
    return "yes" if value is True else str(value)
