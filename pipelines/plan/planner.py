"""Makes one plan: compiles every stage of a model in one shape, checks the memory of each, and adds up their times."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from pipelines.errors import RecipeError
from pipelines.mesh_text import THROUGHPUT
from pipelines.messages import add_codes
from pipelines.models.catalog import Model, Shape
from pipelines.models.model import FULL
from pipelines.plan import measured
from pipelines.plan.abstract import Stage, list_stages
from pipelines.plan.compiler import Compiler
from pipelines.plan.estimate import Estimate, count_chunks
from pipelines.plan.packing import outputs_at_once
from pipelines.plan.placement import Need, Placement, recommend
from pipelines.plan.topologies import CPU_SOURCE, TPU_SOURCE, Topology, find_devices
from pipelines.plan.verdicts import Answer, Verdict, read_versions
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.resolving import find_cache_problem, reuse_steps
from pipelines.recipes.step_cache import OFF
from pipelines.registry import build_mesh_for, describe_parts
from pipelines.runtime.devices.mesh import describe_mesh
from pipelines.runtime.devices.offload import measure
from pipelines.runtime.sampling.chunks import CHUNK_TARGET_S, MAX_CHUNK
from pipelines.stages import OnProgress, Progress

MODES = ("latency", "throughput")


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """The compiler's verdict on one stage."""

    stage: Stage
    verdict: Verdict
    weights_bytes: int
    limit_bytes: int | None
    measured_ms: float | None = None
    """What a run took, or a step, where this is the machine that is planned for (plan/measured.py)."""

    @property
    def answer(self) -> Answer:
        """Returns the compiler's answer."""
        return self.verdict.answer

    @property
    def estimate(self) -> Estimate | None:
        """Returns the estimate, None on CPU and after a refusal."""
        return self.verdict.estimate

    @property
    def fits(self) -> bool:
        """Returns whether the stage fits alone on its chips; the placement decides what else stays there."""
        is_small = self.limit_bytes is None or self.hbm_bytes["total"] <= self.limit_bytes
        return is_small and not self.answer.refusal

    @property
    def hbm_bytes(self) -> dict[str, int]:
        """Returns bytes per chip by kind; inputs other than weights count as working memory.

        After a refusal the weights, which are known, are subtracted from the compiler's total.
        """
        answer = self.answer
        if answer.refusal:
            temp = max(0, answer.temp_bytes - self.weights_bytes)
        else:
            temp = answer.temp_bytes + max(0, answer.arguments_bytes - self.weights_bytes)
        sizes = {"weights": self.weights_bytes, "temp": temp, "code": answer.code_bytes}
        return sizes | {"total": sum(sizes.values())}

    @property
    def estimated_ms(self) -> float | None:
        """Returns the time of one run; for the denoiser that is one step."""
        return None if self.estimate is None else 1000 * self.estimate.run.total_s

    @property
    def estimated_s(self) -> float | None:
        """Returns the time of all runs that an output needs."""
        if self.estimate is None:
            return None
        run_s, once_s, reused = self.estimate.run.total_s, self.estimate.once.total_s, self.estimate.reused
        runs_s = self.stage.runs * run_s
        if reused is not None:
            runs_s -= self.stage.reused * (run_s - reused.total_s)
        if not once_s:
            return runs_s
        step_s = runs_s / max(self.stage.runs, 1)
        chunks = count_chunks(steps=self.stage.runs, step_s=step_s, max_chunk=MAX_CHUNK, target_s=CHUNK_TARGET_S)
        return runs_s + chunks * once_s


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A finished plan, with everything that is shown."""

    model: Model
    shape: Shape
    topology: Topology
    mode: str
    mesh: str
    batch_size: int
    stages: tuple[StagePlan, ...]
    placement: Placement
    is_mesh_given: bool = False
    step_cache: str = OFF
    """The step cache that is planned, as a recipe names it: off, mild, strong, numbers, or taylor."""

    @property
    def fits(self) -> bool:
        return self.placement.kind != "does_not_fit"

    @property
    def estimated_moves_s(self) -> float | None:
        """Returns the time for offloaded components to return to the chips for a new prompt; None on CPU."""
        return None if self.topology.chip is None else self.placement.moves_s

    @property
    def estimated_total_s(self) -> float | None:
        """Returns the time of all stages that every output needs and of the moves between them; None if unknown."""
        seconds = [self.estimated_moves_s, *(one.estimated_s for one in self.stages if one.stage.runs)]
        return None if None in seconds else math.fsum(one for one in seconds if one is not None)

    @property
    def measured_total_s(self) -> float | None:
        """Returns the time of all stages that every output needs, as this machine ran them; None if any is missing."""
        found = [(one.stage.runs, one.measured_ms) for one in self.stages if one.stage.runs]
        return (
            math.fsum(runs * (ms or 0.0) / 1000 for runs, ms in found)
            if all(ms is not None for _, ms in found)
            else None
        )


def make_plan(
    model: Model,
    topology: Topology,
    *,
    shape: Shape,
    mode: str,
    mesh: str | None,
    step_cache: str = OFF,
    cache_dir: Path,
    on_progress: OnProgress,
    known: Mapping[str, Verdict] | None = None,
    dump_dir: Path | None = None,
) -> Plan:
    """Compiles what is neither known nor cached, minutes for large models. Raises MeshError, ModelError, RecipeError.

    With a `dump_dir` nothing counts as known, because known verdicts have no HLO text.
    """
    cached = _choose_reused(model, shape, step_cache)
    built, batch_size = choose_mesh(model, topology, mode=mode, mesh=mesh)
    parts = describe_parts(model, built)
    weights = {name: measure(own) for name, own in parts.weights.items()}
    stages = list_stages(
        model, parts, shape, batch_size=batch_size, cache_kind=cached.cache_kind, reused_steps=cached.reused_steps
    )
    compiler = Compiler(topology, cache_dir=cache_dir, known=None if dump_dir else known)
    measured_ms = measured.choose(
        measured.read(cache_dir) if model.weights == FULL else [],  # what was measured was in full
        topology,
        model=model.id,
        shape=str(shape),
        mesh=describe_mesh(built),
        batch_size=batch_size,
        versions=read_versions(),
    )
    planned = []
    for done, stage in enumerate(stages):
        report = functools.partial(
            on_progress, Progress(phase="compiling", done=done, total=len(stages), detail=stage.name)
        )
        verdict = compiler.ask(stage.program, reuses=stage.reused > 0, on_compile=report)
        if dump_dir is not None and verdict.text:
            dump_dir.mkdir(parents=True, exist_ok=True)
            (dump_dir / f"{model.id}_{stage.name}.hlo").write_text(verdict.text, "utf-8")
        weights_bytes = sum(weights[name] for name in stage.components)
        limit_bytes = topology.chip.hbm_bytes if topology.chip else None
        planned.append(
            StagePlan(
                stage=stage,
                verdict=verdict,
                weights_bytes=weights_bytes,
                limit_bytes=limit_bytes,
                measured_ms=measured_ms.get(stage.name),
            )
        )
    needs = [
        Need(
            stage=one.stage.name,
            components=one.stage.components,
            runs=one.stage.runs,
            fits=one.fits,
            **{f"{part}_bytes": one.hbm_bytes[part] for part in ("weights", "temp", "code")},
        )
        for one in planned
    ]
    return Plan(
        model=model,
        shape=shape,
        topology=topology,
        mode=mode,
        mesh=describe_mesh(built),
        batch_size=batch_size,
        stages=tuple(planned),
        placement=recommend(needs, weights, topology=topology, model=model, shape=shape),
        is_mesh_given=mesh is not None,
        step_cache=step_cache,
    )


def _choose_reused(model: Model, shape: Shape, step_cache: str) -> Recipe:
    """Returns the model's usual recipe with the steps that this step cache reuses; raises RecipeError."""
    usual = Recipe(
        model=model.id,
        prompt="",
        steps=model.steps,
        scheduler=model.scheduler,
        flow_shift=model.choose_flow_shift(str(shape)),
    )
    if step_cache == OFF:
        return usual
    if problem := find_cache_problem(step_cache, model.scheduler, model):
        raise RecipeError({"step_cache": problem})
    return reuse_steps(usual, step_cache, model)


def choose_mesh(model: Model, topology: Topology, *, mode: str, mesh: str | None) -> tuple[Mesh, int]:
    """Returns the mesh and the number of outputs at once: one, or as many as a worker makes in the time of one."""
    wanted = mesh or (THROUGHPUT if mode == "throughput" else None)
    hbm_bytes = topology.chip.hbm_bytes if topology.chip else None
    built = build_mesh_for(model, wanted, devices=find_devices(topology), hbm_bytes=hbm_bytes)
    return built, 1 if mode == "latency" else outputs_at_once(model, describe_parts(model, built))


def to_json(plan: Plan) -> dict[str, Any]:
    """Returns the object that `plan --json` prints."""
    return {
        "model": plan.model.id,
        "shape": str(plan.shape),
        "topology": plan.topology.name,
        "chips": plan.topology.chips,
        "hbm_limit_bytes": plan.topology.chip.hbm_bytes if plan.topology.chip else None,
        "mode": plan.mode,
        "mesh": plan.mesh,
        "batch_size": plan.batch_size,
        "step_cache": plan.step_cache,
        "weights": plan.model.weights,
        **add_codes({"source": TPU_SOURCE if plan.topology.chip else CPU_SOURCE}),
        "versions": read_versions(),
        "fits": plan.fits,
        "placement": describe_placement(plan),
        "stages": [_stage_to_json(one, plan.mesh) for one in plan.stages],
        "estimated_moves_s": _round(plan.estimated_moves_s, 4),
        "estimated_total_s": _round(plan.estimated_total_s, 4),
        "measured_total_s": _round(plan.measured_total_s, 4),
    }


def describe_placement(plan: Plan) -> dict[str, Any]:
    """Returns the placement for JSON."""
    placement = plan.placement
    return add_codes({"kind": placement.kind, "advice": placement.advice, "resident_bytes": placement.resident_bytes})


def _stage_to_json(planned: StagePlan, mesh: str) -> dict[str, Any]:
    found = planned.estimate
    return {
        "stage": planned.stage.name,
        "components": list(planned.stage.components),
        "runs": planned.stage.runs,
        "reused": planned.stage.reused,
        "mesh": mesh,
        "fits": planned.fits,
        "hbm_bytes": planned.hbm_bytes,
        "compile_s": round(planned.answer.compile_s, 2),
        "estimated_ms": _round(planned.estimated_ms, 4),
        "estimated_reused_ms": found and found.reused and _round(1000 * found.reused.total_s, 4),
        "measured_ms": _round(planned.measured_ms, 4),
        "estimated_parts_ms": found
        and {
            "compute": round(1000 * found.run.compute_s, 4),
            "attention": round(1000 * found.run.attention_s, 4),
            "convolutions": round(1000 * found.run.convolution_s, 4),
            "exposed_collectives": round(1000 * found.run.exposed_s, 4),
            "hidden_collectives": round(1000 * found.run.hidden_s, 4),
            "once_a_chunk": round(1000 * found.once.total_s, 4),
        },
        "collectives": _list_collectives(found),
        "refusal": planned.answer.refusal or None,
    }


def _list_collectives(found: Estimate | None) -> dict[str, dict[str, int]]:
    """Maps kind of collective -> its number in one run and the bytes a chip moves for them."""
    if found is None:
        return {}
    counts, moved = found.run.counts + found.once.counts, found.run.moved_bytes + found.once.moved_bytes
    return {kind: {"count": counts[kind], "bytes": moved[kind]} for kind in sorted(counts)}


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
