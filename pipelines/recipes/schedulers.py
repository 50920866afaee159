"""The schedulers that recipes may name, and diffusers' classes behind them.

Importable without jax and torch, so that the catalogue can tell which scheduler a checkpoint brings along.
Not here: the steps themselves (runtime/sampling/schedules.py).
"""

from collections.abc import Mapping
from typing import Any

Entry = tuple[str, dict[str, Any]]

_DPMPP_2M = {"algorithm_type": "dpmsolver++", "solver_order": 2}
_DPMPP_2M_SDE = {"algorithm_type": "sde-dpmsolver++", "solver_order": 2}
_FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True}
_BASE: dict[str, Entry] = {
    "euler": ("EulerDiscreteScheduler", {}),
    "euler_ancestral": ("EulerAncestralDiscreteScheduler", {}),
    "dpmpp_2m": ("DPMSolverMultistepScheduler", _DPMPP_2M),
    "dpmpp_2m_sde": ("DPMSolverMultistepScheduler", _DPMPP_2M_SDE),
    # Clipping is not linear; latents are not bounded by 1 either, and SDXL's own config turns it off.
    "ddim": ("DDIMScheduler", {"clip_sample": False}),
    # Of these two diffusers' class gives the noise levels; the steps are runtime/sampling/stochastic.py's.
    "dpmpp_sde": ("EulerDiscreteScheduler", {}),
    "er_sde": ("EulerDiscreteScheduler", {}),
    "lcm": ("LCMScheduler", {"clip_sample": False, "thresholding": False}),
    "tcd": ("TCDScheduler", {"clip_sample": False, "thresholding": False}),
    "flow_match_euler": ("FlowMatchEulerDiscreteScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {"solver_order": 2} | _FLOW),
    "flow_dpmpp_2m": ("DPMSolverMultistepScheduler", _DPMPP_2M | _FLOW),
}

# The noise levels of a spacing, as diffusers' users ask for them: from_config(config, **these).
_SPACINGS: dict[str, dict[str, Any]] = {
    "trailing": {"timestep_spacing": "trailing"},  # also known as SGM uniform
    "karras": {"use_karras_sigmas": True},
    "exponential": {"use_exponential_sigmas": True},
    "beta": {"use_beta_sigmas": True},
}
_ALL = tuple(_SPACINGS)
_SIGMAS = dict.fromkeys(("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"), False)
_SPACED = {
    "euler": _ALL,
    "euler_ancestral": ("trailing",),
    "dpmpp_2m": _ALL,
    "dpmpp_2m_sde": _ALL,
    "ddim": ("trailing",),
    "dpmpp_sde": _ALL,
    "er_sde": _ALL,
    "flow_match_euler": ("karras", "exponential", "beta"),
}


def _space(name: str, spacing: str) -> Entry:
    class_name, options = _BASE[name]
    takes_sigmas = "karras" in _SPACED[name]  # of several kinds diffusers allows one, so the checkpoint's own goes
    return class_name, options | (_SIGMAS if takes_sigmas else {}) | _SPACINGS[spacing]


LCM_TRAILING = "lcm_trailing"
"""LCM on evenly spaced timesteps 999, 749, 499, 249 (of four), as DMD2's authors give them to it."""
EVEN = "flow_match_euler_even"
"""Flow Euler on evenly spaced noise levels 1, 1 - 1/n, ..., then shifted, as few-step LoRAs of Wan are made for."""

SCHEDULERS: dict[str, Entry] = {
    **_BASE,
    **{f"{name}_{spacing}": _space(name, spacing) for name, spacings in _SPACED.items() for spacing in spacings},
    LCM_TRAILING: _BASE["lcm"],
    EVEN: _BASE["flow_match_euler"],
}
"""Maps name -> diffusers' class and the options that it gets whatever the checkpoint's config says."""

FLOW_EULER = tuple(name for name in SCHEDULERS if name.startswith("flow_match_euler") and name != EVEN)
FLOW = (*FLOW_EULER, EVEN, "unipc", "flow_dpmpp_2m")
DIFFUSION = tuple(name for name in SCHEDULERS if name not in FLOW)

OWN_STEPS = ("dpmpp_sde", "er_sde")

TWICE = tuple(name for name in SCHEDULERS if name.startswith("dpmpp_sde"))
"""These schedulers ask the denoiser a second time in the middle of each step but the last."""

MOST_STEPS = {"lcm": 50, "tcd": 50, **dict.fromkeys(TWICE, 64)}
"""The most steps of schedulers that take theirs from those of a distillation (original_inference_steps of diffusers),
or that need two rows of a table (MAX_STEPS of runtime/sampling/schedules.py) for one."""

TAKE_SIGMAS = ("euler", "dpmpp_sde", "er_sde", "flow_match_euler", "unipc")
"""These schedulers take a list of noise levels in place of a number of steps."""

TIMESTEPS = 1000  # of a flow's training: a level of 1

# Flow schedulers have different names for one number.
SHIFTS = {name: "shift" if name.startswith("flow_match_euler") else "flow_shift" for name in FLOW}


def recognise(config: Mapping[str, Any]) -> str | None:
    """Returns the name of the scheduler in a checkpoint's scheduler_config.json.

    Returns None for a class that has no name here, or whose options it would not keep.
    """
    if config.get("_class_name") == "DPMSolverSDEScheduler":
        return "dpmpp_sde"
    for name, (class_name, options) in _BASE.items():
        if config.get("_class_name") == class_name and all(config.get(key, own) == own for key, own in options.items()):
            return name
    return None


def read_shift(config: Mapping[str, Any]) -> float | None:
    """Returns how far a checkpoint's scheduler moves the steps towards the noise, None if its config does not say."""
    return config.get("flow_shift", config.get("shift"))
