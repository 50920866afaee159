"""diffusers' schedulers as tables of numbers, so that one compiled program runs them all.

Every scheduler here moves the latents by a linear rule:

    input   = in_scale * latents                              what the UNet sees
    x0      = x0_latents * latents + x0_output * output       the picture it now expects
    latents = by_latents * latents + by_output * output + by_previous_x0 * previous x0 + by_noise * noise

so the coefficients are read off diffusers' own `step` with unit vectors, rather than derived again: whatever the
scheduler's config asks for (spacing, prediction type, Karras sigmas, final step) is right by construction. The tables
are run-time inputs in fp32; step count and scheduler never recompile anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import diffusers
import numpy as np
import torch

MAX_STEPS = 128  # rows of the table; the catalogue allows fewer

COLUMNS = (
    "timestep",
    "in_scale",
    "x0_latents",
    "x0_output",
    "by_latents",
    "by_output",
    "by_previous_x0",
    "by_noise",
)

SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "euler": ("EulerDiscreteScheduler", {}),
    "euler_ancestral": ("EulerAncestralDiscreteScheduler", {}),
    "dpmpp_2m": ("DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver++", "solver_order": 2}),
    # Clipping is not linear; latents are not bounded by 1 either, and SDXL's own config turns it off.
    "ddim": ("DDIMScheduler", {"clip_sample": False}),
}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`table` is (MAX_STEPS, len(COLUMNS)) fp32, rows past `steps` zero; `initial_scale` multiplies the first noise."""

    steps: int
    table: np.ndarray
    initial_scale: float
    has_noise: bool


def build_scheduler(name: str, config: Mapping[str, Any]) -> Any:
    """The diffusers scheduler `name`, from the checkpoint's own scheduler config."""
    class_name, overrides = SCHEDULERS[name]
    return getattr(diffusers, class_name).from_config(dict(config), **overrides)


def build_schedule(name: str, config: Mapping[str, Any], *, steps: int) -> Schedule:
    """The table of `steps` steps."""
    scheduler = build_scheduler(name, config)
    scheduler.set_timesteps(steps)
    table = np.zeros((MAX_STEPS, len(COLUMNS)), np.float32)
    for index, timestep in enumerate(scheduler.timesteps):
        table[index] = _probe_step(scheduler, timestep)
    return Schedule(
        steps=len(scheduler.timesteps),
        table=table,
        initial_scale=float(scheduler.init_noise_sigma),
        has_noise=bool(table[:, COLUMNS.index("by_noise")].any()),
    )


def _probe_step(scheduler: Any, timestep: torch.Tensor) -> list[float]:
    """One row of the table; advances the scheduler by a step."""
    # Positions of the vector: latents, output, previous x0, and one left zero that shows the noise alone.
    latents, output, previous_x0 = torch.eye(4, dtype=torch.float64)[:3]
    is_multistep = hasattr(scheduler, "model_outputs")
    if is_multistep and scheduler.model_outputs[-1] is not None:
        scheduler.model_outputs[-1] = previous_x0
    scale = float(scheduler.scale_model_input(torch.ones(1, dtype=torch.float64), timestep)[0])
    takes_noise = isinstance(scheduler, diffusers.EulerAncestralDiscreteScheduler)
    arguments = {"generator": torch.Generator("cpu").manual_seed(0)} if takes_noise else {}
    result = scheduler.step(output, timestep, latents, **arguments)
    after = result.prev_sample.double()
    by_noise = 0.0
    if takes_noise:
        noise = torch.randn(4, generator=torch.Generator("cpu").manual_seed(0), dtype=output.dtype).double()
        by_noise = float(after[3] / noise[3])
        after = after - by_noise * noise
    x0 = scheduler.model_outputs[-1] if is_multistep else result.pred_original_sample
    return [float(timestep), scale, float(x0[0]), float(x0[1]), *map(float, after[:3]), by_noise]
