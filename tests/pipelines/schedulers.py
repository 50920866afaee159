"""Schedulers for the reference: chosen as diffusers' manual says, and not by the code that is compared with it."""

from collections.abc import Mapping
from typing import Any

CLASSES = {
    "euler": "EulerDiscreteScheduler",
    "euler_ancestral": "EulerAncestralDiscreteScheduler",
    "dpmpp_2m": "DPMSolverMultistepScheduler",
    "ddim": "DDIMScheduler",
    "flow_match_euler": "FlowMatchEulerDiscreteScheduler",
    "unipc": "UniPCMultistepScheduler",
}
SHIFTS = {"flow_match_euler": "shift", "unipc": "flow_shift"}


def choose_scheduler(config: Mapping[str, Any], name: str | None, *, flow_shift: float | None = None) -> Any:
    """One of diffusers' schedulers by its class, from the config of the checkpoint's own."""
    import diffusers

    assert name is not None
    options = {} if flow_shift is None else {SHIFTS[name]: flow_shift}
    return getattr(diffusers, CLASSES[name]).from_config(dict(config), **options)
