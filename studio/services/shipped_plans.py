"""Plans that come with Lumesh (pipelines/plan/answers.jsonl), in the form of `plan --json`.

They are read without jax, so that something shows before anybody waits for the compiler. Only the planner can tell
whether a program is still the same, so these plans are marked as made before. Lines that are known to be from earlier
programs, or from an earlier estimator, are left out.
Not here: plans that were made on this machine (plans.py).
"""

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.messages import add_codes
from pipelines.models.model import FULL
from pipelines.plan.estimate import is_current
from pipelines.plan.topologies import CPU_SOURCE, TOPOLOGIES, TPU_SOURCE

SHIPPED = Path(__file__).parents[2] / "pipelines" / "plan" / "answers.jsonl"


def find_shipped(
    *, model: str, shape: str, topology: str, mode: str, mesh: str | None, weights: str = FULL
) -> dict[str, Any] | None:
    """Finds a shipped plan, for the given mesh or the one that the planner chose; None when there is none."""
    line = _read_lines().get((model, shape, topology, mode, weights))
    return None if line is None or mesh not in (None, line["mesh"]) else _tell(line)


@functools.cache
def _read_lines() -> dict[tuple[str, ...], dict[str, Any]]:
    lines = map(json.loads, SHIPPED.read_text("utf-8").splitlines()) if SHIPPED.exists() else ()
    return {
        (*(line[name] for name in ("model", "shape", "topology", "mode")), line.get("weights", FULL)): line
        for line in lines
        if is_current(line) and not line.get("is_earlier") and "step_cache" not in line
    }


def _tell(line: Mapping[str, Any]) -> dict[str, Any]:
    topology, placement = TOPOLOGIES[line["topology"]], line["placement"]
    # Older lines lack the time of moving offloaded components, which is zero where all components stay on the devices.
    is_total_known = "estimated_moves_s" in line or placement["kind"] == "all"
    return {
        **{name: line[name] for name in ("model", "shape", "topology", "mode", "mesh", "batch_size", "placement")},
        "weights": line.get("weights", FULL),
        "chips": topology.chips,
        "hbm_limit_bytes": topology.chip.hbm_bytes if topology.chip else None,
        **add_codes({"source": TPU_SOURCE if topology.chip else CPU_SOURCE}),
        "fits": placement["kind"] != "does_not_fit",
        "stages": [_tell_stage(stage, line["mesh"]) for stage in line["stages"]],
        "estimated_moves_s": line.get("estimated_moves_s"),
        "estimated_total_s": line["estimated_total_s"] if is_total_known else None,
    }


def _tell_stage(stage: Mapping[str, Any], mesh: str) -> dict[str, Any]:
    """Describes one stage; inputs count as weights, because a line has both in one number."""
    answer, estimate = stage["answer"], stage["estimate"]
    sizes = {"weights": answer["arguments_bytes"], "temp": answer["temp_bytes"], "code": answer["code_bytes"]}
    parts_ms = _tell_parts(estimate) if estimate else None
    busy = ("compute", "attention", "convolutions", "exposed_collectives")
    return {
        **{name: stage[name] for name in ("stage", "runs", "fits")},
        "mesh": mesh,
        "hbm_bytes": sizes | {"total": sum(sizes.values())},
        "compile_s": round(answer["compile_s"], 2),
        "estimated_ms": round(math.fsum(parts_ms[name] for name in busy), 4) if parts_ms else None,
        "estimated_parts_ms": parts_ms,
        "collectives": _count_collectives(estimate) if estimate else {},
        "refusal": answer["refusal"] or None,
    }


def _tell_parts(estimate: Mapping[str, Any]) -> dict[str, float]:
    run, once = estimate["run"], estimate["once"]
    seconds = {
        "compute": run["compute_s"],
        "attention": run["attention_s"],
        "convolutions": run["convolution_s"],
        "exposed_collectives": run["exposed_s"],
        "hidden_collectives": run["hidden_s"],
        "once_a_chunk": math.fsum(once[f"{name}_s"] for name in ("compute", "attention", "convolution", "exposed")),
    }
    return {name: round(1000 * value, 4) for name, value in seconds.items()}


def _count_collectives(estimate: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    parts = (estimate["run"], estimate["once"])
    kinds = sorted({kind for part in parts for kind in part["counts"]})
    return {
        kind: {
            name: sum(part[field].get(kind, 0) for part in parts)
            for name, field in (("count", "counts"), ("bytes", "moved_bytes"))
        }
        for kind in kinds
    }
