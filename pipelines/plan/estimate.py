"""Estimates a program's time from its HLO: cycles times trip counts, kernels by FLOPs, exposed collectives.

Instructions run in the order of the text. Compute time is cycles over the clock or, for kernels bound by memory, bytes
over HBM's bandwidth. A collective moves its bytes over the chip's links; computing between its start and its end hides
that much of it, and the rest is exposed, plus a few microseconds of latency. A loop whose bounds are only known at run
time is a denoising loop: its body is one step.

All of it is an estimate: within some 10 % of published times on large transformers, up to 60 % off on small
convolutional models.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.plan.hlo import (
    PALLAS_TARGET,
    Instruction,
    Module,
    count_moved_bytes,
    count_own_bytes,
    count_pallas_bytes,
    count_pallas_flops,
    read_arrays,
)
from pipelines.plan.topologies import SLICES, TOPOLOGIES, V4, V5E, V5P, V6E, V7X, Chip

# To be increased when estimates of the same program change, for a chip or for all, which invalidates saved ones.
ESTIMATOR = 3
OWN_ESTIMATORS = {V5P.name: 4}
CONVOLUTIONS = ("convolve_taps", "conv3x3_gradient")  # the kernels' names in runtime/kernels
# Share of the peak in the innermost loop, by the kernel's schedule: `plan --search attention`. The work outside that
# loop is included in the FLOPs that the kernel reports (runtime/kernels/flash.py, count_keys).
PALLAS_UTILISATION = 0.56
# Attention's gradient by the schedule, by the queries and keys of a turn of its loop, and heads side by side: one head
# of 1024 and 512 takes 2201 cycles on v6e and 2058 on v7x, of 2048 and 512 4021 and 3822. On other chips the units
# decide, counted as 95 %: 1536 and 768 take 10437 on v5e and 10198 on a core of v5p, 1024 and 512 take 5150 on v4.
_TILES = {
    "2048x512x1": (0.63, 0.67),
    "1792x512x1": (0.63, 0.66),
    "1536x768x1": (0.63, 0.67),
    "1280x512x1": (0.60, 0.64),
    "2048x512x2": (0.67, 0.71),
    "1024x512x2": (0.64, 0.69),
}
_BY_UNITS = dict.fromkeys((V4.name, V5E.name, V5P.name), 0.95)
# The same share where it is known of each chip, of the slowest blocks in use. For convolutions, and attention forwards
# on v5p: plan/TRIED.md.
OWN_UTILISATION = {
    "flash_attention": {V5P.name: 0.95},
    "convolve_taps": {V5P.name: 0.89},
    **{f"flash_gradient_{tiles}": {V6E.name: v6e, V7X.name: v7x, **_BY_UNITS} for tiles, (v6e, v7x) in _TILES.items()},
    "flash_gradient": {V6E.name: 0.58, V7X.name: 0.62, **_BY_UNITS},
    "conv3x3_gradient": {V6E.name: 0.63, V7X.name: 0.70},
}
# A convolution puts its inputs together first, which takes as long however few outputs there are.
FEW_OUTPUTS = 320  # fewer are few
FEW_OUTPUTS_UTILISATION = {V5P.name: 0.80}
# Kernels that the vector unit may keep longer than memory does: FLOPs, as they state them, that a core does in a cycle
# by their schedule, for 3072 features with norms of each head, and the fewest of 5120 and 1536 with one over all heads.
VECTOR_FLOPS = {
    "head_norm_gradient": {V4.name: 757, V5E.name: 1666, V5P.name: 1601, V6E.name: 2048, V7X.name: 2048},
    "head_norm": {V4.name: 557, V5E.name: 1097, V5P.name: 1054, V6E.name: 1689, V7X.name: 1724},
    "heads_norm_gradient": {V4.name: 824, V5E.name: 1610, V5P.name: 1601, V6E.name: 1543, V7X.name: 1645},
    "heads_norm": {V4.name: 723, V5E.name: 1524, V5P.name: 1514, V6E.name: 1558, V7X.name: 1727},
}
LATENCY_S = 5e-6  # of an exposed collective


def find_estimator(chip: Chip | None) -> int:
    """Returns the version of the estimates for a chip; None is a CPU."""
    return ESTIMATOR if chip is None else OWN_ESTIMATORS.get(chip.name, ESTIMATOR)


def is_current(line: Mapping[str, Any]) -> bool:
    """Whether the estimates of a saved plan (answers.py) are as they would be made today."""
    return is_of_today(line["estimator"], line["topology"])


def is_of_today(estimator: object, topology: str) -> bool:
    """Whether this is the version of the estimates for a machine, by its name; one that is not known has none."""
    machine = (TOPOLOGIES | SLICES).get(topology)
    return machine is not None and estimator == find_estimator(machine.chip)


@dataclass(kw_only=True)
class Cost:
    """Seconds of one run, which add up to `total_s`.

    `attention_s` covers the attention kernel and plain attention, `convolution_s` the convolution kernel, `compute_s`
    all other computing. `hidden_s` of collectives overlap with computing and do not count.
    """

    compute_s: float = 0.0
    attention_s: float = 0.0
    convolution_s: float = 0.0
    exposed_s: float = 0.0
    hidden_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])
    moved_bytes: Counter[str] = field(default_factory=Counter[str])

    @property
    def total_s(self) -> float:
        return self.compute_s + self.attention_s + self.convolution_s + self.exposed_s

    def add(self, other: "Cost", *, times: int = 1) -> None:
        self.compute_s += times * other.compute_s
        self.attention_s += times * other.attention_s
        self.convolution_s += times * other.convolution_s
        self.exposed_s += times * other.exposed_s
        self.hidden_s += times * other.hidden_s
        for kind in other.counts:
            self.counts[kind] += times * other.counts[kind]
            self.moved_bytes[kind] += times * other.moved_bytes[kind]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A program's cost: `run` is one call, or one step of a denoising loop, and `once` the work around the steps.

    `reused` is a step that reuses what an earlier one computed, of a program with a step cache.
    """

    run: Cost
    once: Cost
    reused: Cost | None = None


def estimate(module: Module, chip: Chip, *, reuses: bool = False, learns: bool = False) -> Estimate:
    """Estimates a program compiled for this chip; one that `reuses` has the branch for it in its steps.

    A product with a step of a gather in it is told by the compiler to take less than its arrays do over HBM's
    bandwidth: a LoRA's of 4608 tokens and 12 288 features 130 us on v6e, where 453 MB ask for 276. In a program that
    `learns`, where there are many of them, they count as much as memory takes.
    """
    walk = _Walk(module, chip, learns=learns)
    once = walk.cost(module.entry)
    if not walk.steps:
        return Estimate(run=once, once=Cost())
    return Estimate(
        run=walk.add_steps(), once=once, reused=_Walk(module, chip, takes=min).add_steps(walk.steps) if reuses else None
    )


class _Walk:
    """Adds up the cost of computations, each once; `steps` collects the bodies of denoising loops.

    Where a program branches it `takes` the longest way, or the shortest.
    """

    def __init__(self, module: Module, chip: Chip, *, takes: Callable[..., Cost] = max, learns: bool = False) -> None:
        self.steps: list[str] = []
        self._module = module
        self._chip = chip
        self._takes = takes
        self._learns = learns
        self._least_bytes: dict[str, int] = {}  # of what the compiler tells too little
        self._known: dict[str, Cost] = {}

    def add_steps(self, bodies: Sequence[str] | None = None) -> Cost:
        """Returns the cost of a step: of each body in turn."""
        total = Cost()
        for body in dict.fromkeys(bodies or self.steps):
            total.add(self.cost(body))
        return total

    def cost(self, computation: str) -> Cost:
        if computation not in self._known:
            self._known[computation] = self._add_up(computation)
        return self._known[computation]

    def _add_up(self, computation: str) -> Cost:
        cost = Cost()
        link_free_s = 0.0
        under_way: dict[str, float] = {}
        instructions = self._module.list_instructions(computation)
        if self._learns:
            shapes = {one.name: one.shape for one in instructions}
            self._least_bytes |= {one.name: count_own_bytes(one, shapes) for one in instructions}
        for one in instructions:
            clock_s, computed_s = cost.total_s, self._count_computed_s(one)
            moving = self._find_collective(one)
            phase, name = self._find_phase(one, moving)
            ended = [name for name in one.operands if name in under_way]
            if phase == "done" and name in under_way:
                ended.append(name)
            if phase in ("step", "done"):
                moving = None
            if moving is not None and moving.collective is not None:
                kind, moved = moving.collective, count_moved_bytes(moving)
                cost.counts[kind] += 1
                cost.moved_bytes[kind] += moved
                seconds = moved / self._chip.ici_bytes_per_s
                if phase == "start" or moving.opcode.endswith("-start") or one.opcode.endswith("-start"):
                    link_free_s = max(clock_s, link_free_s) + seconds
                    under_way[name] = link_free_s
                    cost.hidden_s += seconds
                else:
                    cost.compute_s += computed_s
                    cost.hidden_s += min(seconds, computed_s)
                    cost.exposed_s += max(0.0, seconds - computed_s) + LATENCY_S
            elif ended:
                waited_s = max(0.0, *(under_way.pop(name) - clock_s for name in ended))
                cost.exposed_s += waited_s + (LATENCY_S if waited_s else 0.0)
                cost.hidden_s -= waited_s
                cost.compute_s += computed_s
            else:
                self._add_local(cost, one, computation)
        return cost

    def _find_collective(self, one: Instruction) -> Instruction | None:
        """Returns the instruction itself if it is a collective, or the one inside its fusion or asynchronous call."""
        if one.collective:
            return one
        if one.opcode not in ("fusion", "async-start", "call-start"):
            return None
        called = one.find_called("to_apply" if one.opcode == "call-start" else "calls")
        return self._module.find_collective(called[0]) if called else None

    def _find_phase(self, one: Instruction, moving: Instruction | None) -> tuple[str | None, str]:
        """Returns phase and name of an asynchronous collective, whose phases are fused with other computing."""
        called = one.find_called("calls") if one.opcode == "fusion" and moving is not None else []
        phase = self._module.find_phase(called[0]) if called else None
        return phase, one.name if phase is None or moving is None else f"channel {moving.channel}"

    def _count_computed_s(self, one: Instruction) -> float:
        told_s = one.cycles / self._chip.clock_hz + one.copied_bytes / self._chip.hbm_bytes_per_s
        return max(told_s, self._least_bytes.get(one.name, 0) / self._chip.hbm_bytes_per_s)

    def _count_kernel_s(self, one: Instruction) -> float:
        for name, flops in VECTOR_FLOPS.items():
            if one.name.startswith(name):
                return count_pallas_flops(one) / (flops[self._chip.name] * self._chip.cores * self._chip.clock_hz)
        return count_pallas_flops(one) / (_find_utilisation(one, self._chip) * self._chip.peak_flops)

    def _add_local(self, cost: Cost, one: Instruction, computation: str) -> None:
        if one.opcode == "while":
            (body,) = one.find_called("body")
            trips = self._module.count_trips(one, computation)
            if trips is None:
                self.steps.append(body)
            else:
                cost.add(self.cost(body), times=trips)
        elif one.opcode == "conditional":
            names = one.find_called("branch_computations", "true_computation", "false_computation")
            cost.add(self._takes(map(self.cost, names), key=lambda branch: branch.total_s))
        elif one.opcode == "custom-call" and f'custom_call_target="{PALLAS_TARGET}"' in one.attributes:
            multiplied_s = self._count_kernel_s(one)
            moved_s = count_pallas_bytes(one) / self._chip.hbm_bytes_per_s
            if multiplied_s <= moved_s:
                cost.compute_s += moved_s
            elif one.name.startswith(CONVOLUTIONS):
                cost.convolution_s += multiplied_s
            elif one.name.startswith(tuple(VECTOR_FLOPS)):
                cost.compute_s += multiplied_s
            else:
                cost.attention_s += multiplied_s
        elif one.is_attention:
            cost.attention_s += self._count_computed_s(one)
        else:
            cost.compute_s += self._count_computed_s(one)
            if not one.cycles and one.opcode in ("call", "async-start", "call-start"):
                for name in one.find_called("calls", "to_apply"):
                    cost.add(self.cost(name))


def _find_utilisation(one: Instruction, chip: Chip) -> float:
    shares = next((own for name, own in OWN_UTILISATION.items() if one.name.startswith(name)), {})
    if one.name.startswith("convolve_taps") and read_arrays(one.shape)[0][1][-1] < FEW_OUTPUTS:
        shares = FEW_OUTPUTS_UTILISATION
    return shares.get(chip.name, PALLAS_UTILISATION)


def count_chunks(*, steps: int, step_s: float, max_chunk: int, target_s: float) -> int:
    """Returns the number of calls for `steps` steps, as the host asks for chunks of about `target_s`."""
    size = min(max(int(target_s / max(step_s, 1e-6)), 1), max_chunk)
    return math.ceil(steps / size)
