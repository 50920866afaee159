"""The schedulers that recipes may name, and diffusers' classes behind them.

Importable without jax and torch, so that the catalogue can tell which scheduler a checkpoint brings along.
Not here: the steps themselves (runtime/sampling/schedules.py).
"""

from collections.abc import Mapping
from typing import Any

SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "euler": ("EulerDiscreteScheduler", {}),
    "euler_ancestral": ("EulerAncestralDiscreteScheduler", {}),
    "dpmpp_2m": ("DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver++", "solver_order": 2}),
    # Clipping is not linear; latents are not bounded by 1 either, and SDXL's own config turns it off.
    "ddim": ("DDIMScheduler", {"clip_sample": False}),
    "flow_match_euler": ("FlowMatchEulerDiscreteScheduler", {}),
    "unipc": (
        "UniPCMultistepScheduler",
        {"solver_order": 2, "prediction_type": "flow_prediction", "use_flow_sigmas": True},
    ),
}
"""Maps name -> diffusers' class and the options that it gets whatever the checkpoint's config says."""

# The two flow schedulers have different names for one number.
SHIFTS = {"flow_match_euler": "shift", "unipc": "flow_shift"}


def recognise(config: Mapping[str, Any]) -> str | None:
    """Returns the name of the scheduler in a checkpoint's scheduler_config.json.

    Returns None for a class that has no name here, or whose options it would not keep.
    """
    for name, (class_name, options) in SCHEDULERS.items():
        if config.get("_class_name") == class_name and all(config.get(key, own) == own for key, own in options.items()):
            return name
    return None


def read_shift(config: Mapping[str, Any]) -> float | None:
    """Returns how far a checkpoint's scheduler moves the steps towards the noise, None if its config does not say."""
    return config.get("flow_shift", config.get("shift"))
