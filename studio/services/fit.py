"""Whether a model fits the worker's chips, by the plan that ships for its default size; nothing is compiled for it.

Not here: plans that people make themselves (plans.py), which model a studio starts with (first_model.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.messages import add_codes, say
from pipelines.models.catalog import Model
from pipelines.plan.topologies import Topology
from studio.services.first_model import find_machine, find_plan
from studio.settings import Settings


def describe_fit(
    settings: Settings, model: Model, devices: Sequence[Mapping[str, Any]], *, chips: int
) -> dict[str, Any] | None:
    """Returns `fits`, the most bytes a stage takes of a chip, those that a chip has, the plan's weights, and a word.

    None where no plan ships for these devices. All figures are estimates of the TPU compiler.
    """
    machine = find_machine(devices, chips=chips)
    plan = find_plan(settings, model, machine) if machine is not None and machine.chip else None
    if plan is None or machine is None or machine.chip is None:
        return None
    return add_codes(
        {
            "fits": plan["fits"],
            "topology": machine.name,
            "needed_bytes": max(stage["hbm_bytes"]["total"] for stage in plan["stages"]),
            "chip_bytes": machine.chip.hbm_bytes,
            "weights": plan["weights"],
            "note": _tell(plan, machine),
        }
    )


def _tell(plan: Mapping[str, Any], machine: Topology) -> Any:
    kind = plan["placement"]["kind"]
    if kind == "all":
        return say("Fits {machine}.", machine=machine.name)
    if kind in ("unload_text_encoder", "one_at_a_time"):
        return say("Fits {machine}; its parts take turns on the chips.", machine=machine.name)
    if kind == "offload_text_encoder":
        return say("Fits {machine} with its text encoder on another machine.", machine=machine.name)
    return say("Does not fit {machine}.", machine=machine.name)
