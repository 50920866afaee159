"""Milliseconds of a program, from what the compiler wrote: cycles times trip counts, kernels by FLOPs, exposed traffic.

Instructions run in the order of the text. Cycles over the clock are computing, and so are bytes over HBM's bandwidth of
the kernels that only move them. A collective moves its bytes over the
chip's links; what the chip computes between its start and its end hides that much of it, the rest is exposed, with a
few microseconds more. A loop whose bounds are known at run time only is a denoising loop: its body is one step.
All of it is an estimate: within some 10 % of published times on large transformers, up to 60 % off on small
convolutional ones.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from pipelines.plan.hlo import (
    PALLAS_TARGET,
    Instruction,
    Module,
    count_moved_bytes,
    count_pallas_bytes,
    count_pallas_flops,
)
from pipelines.plan.topologies import Chip

ESTIMATOR = 2  # one more when the same program would be estimated otherwise: what was kept is then worth nothing
CONVOLUTION = "convolve_taps"  # what runtime/kernels/conv3x3.py calls its kernel
# Of peak, in the innermost loop by the kernel's own schedule: `plan --search attention`. What the attention kernel does
# outside of it is in the FLOPs that it says of itself (runtime/kernels/flash.py, count_keys).
PALLAS_UTILISATION = 0.56
LATENCY_S = 5e-6  # of a collective that nothing hides


@dataclass(kw_only=True)
class Cost:
    """Seconds of one run, which adds up to `total_s`.

    `attention_s` is of its kernel and of plain attention, `convolution_s` of its kernel, `compute_s` all other
    computing. `hidden_s` of collectives passed meanwhile and count for nothing.
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
    """`run` is one call of the program, or one step where it has a denoising loop; `once` is around the steps."""

    run: Cost
    once: Cost


def estimate(module: Module, chip: Chip) -> Estimate:
    """Both parts of a program compiled for this chip."""
    walk = _Walk(module, chip)
    once = walk.cost(module.entry)
    if not walk.steps:
        return Estimate(run=once, once=Cost())
    run = Cost()
    for body in dict.fromkeys(walk.steps):
        run.add(walk.cost(body))
    return Estimate(run=run, once=once)


class _Walk:
    """Adds up computations, each once."""

    def __init__(self, module: Module, chip: Chip) -> None:
        self.steps: list[str] = []
        self._module = module
        self._chip = chip
        self._known: dict[str, Cost] = {}

    def cost(self, computation: str) -> Cost:
        if computation not in self._known:
            self._known[computation] = self._add_up(computation)
        return self._known[computation]

    def _add_up(self, computation: str) -> Cost:
        cost = Cost()
        link_free_s = 0.0
        under_way: dict[str, float] = {}
        for one in self._module.list_instructions(computation):
            clock_s, computed_s = cost.total_s, one.cycles / self._chip.clock_hz
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
        """The instruction itself, or what the compiler has wrapped in a fusion or an asynchronous call."""
        if one.collective:
            return one
        if one.opcode not in ("fusion", "async-start"):
            return None
        called = one.find_called("calls")
        return self._module.find_collective(called[0]) if called else None

    def _find_phase(self, one: Instruction, moving: Instruction | None) -> tuple[str | None, str]:
        """Start, step or end of a collective that goes on beside computing in the same fusions, and what to call it."""
        called = one.find_called("calls") if one.opcode == "fusion" and moving is not None else []
        phase = self._module.find_phase(called[0]) if called else None
        return phase, one.name if phase is None or moving is None else f"channel {moving.channel}"

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
            cost.add(max(map(self.cost, names), key=lambda branch: branch.total_s))
        elif one.opcode == "custom-call" and f'custom_call_target="{PALLAS_TARGET}"' in one.attributes:
            multiplied_s = count_pallas_flops(one) / (PALLAS_UTILISATION * self._chip.peak_flops)
            moved_s = count_pallas_bytes(one) / self._chip.hbm_bytes_per_s
            if multiplied_s <= moved_s:
                cost.compute_s += moved_s
            elif one.name.startswith(CONVOLUTION):
                cost.convolution_s += multiplied_s
            else:
                cost.attention_s += multiplied_s
        elif one.is_attention:
            cost.attention_s += one.cycles / self._chip.clock_hz
        else:
            cost.compute_s += one.cycles / self._chip.clock_hz
            if not one.cycles and one.opcode in ("call", "async-start"):
                for name in one.find_called("calls", "to_apply"):
                    cost.add(self.cost(name))


def count_chunks(*, steps: int, step_s: float, max_chunk: int, target_s: float) -> int:
    """Calls that so many steps need: the host asks for chunks of about `target_s`."""
    size = min(max(int(target_s / max(step_s, 1e-6)), 1), max_chunk)
    return math.ceil(steps / size)
