"""diffusers' schedulers as tables of numbers, so that one compiled program runs them all.

Every scheduler here moves the latents by linear rules. With the basis (latents, output, previous x0, the x0 before it,
anchor):

    input   = in_scale * latents                        what the denoiser sees
    x0      = x0_latents * latents + x0_output * output  the picture it now expects
    anchor  = anchor_* . basis                           UniPC's corrected latents; zero for the others
    latents = by_* . basis + by_noise * noise

so the coefficients are read off diffusers' own `step` with unit vectors, rather than derived again: whatever the
scheduler's config asks for (spacing, prediction type, Karras sigmas, flow shift, final step) is right by construction.
Those of stochastic.py are written there, on diffusers' levels. A scheduler that asks the denoiser twice a step has two
rows for it. The tables are run-time inputs in fp32; step count and scheduler never recompile anything.
runtime/sampling/solver.py applies them on the devices.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import diffusers
import numpy as np
import torch

from pipelines.recipes.schedulers import EVEN, LCM_TRAILING, OWN_STEPS, SCHEDULERS, SHIFTS, read_shift
from pipelines.runtime.sampling.stochastic import Move, list_moves

MAX_STEPS = 128  # rows of the table; the catalogue allows fewer

BASIS = ("latents", "output", "x0", "older_x0", "anchor")
COLUMNS = (
    "timestep",
    "in_scale",
    "x0_latents",
    "x0_output",
    *(f"anchor_{name}" for name in BASIS),
    *(f"by_{name}" for name in BASIS),
    "by_noise",
)

# What would move noise levels that are given.
_UNSPACED = dict.fromkeys(
    ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "use_dynamic_shifting"), False
) | {"shift_terminal": None}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`table` is (MAX_STEPS, len(COLUMNS)) fp32, rows past `steps` zero; `initial_scale` multiplies the first noise.

    `steps` counts rows: how often the denoiser is asked. `picture_scale` multiplies the latents of a picture that lies
    under the noise; 0 where there is none. `shared_noise` maps a row to how much of its noise is that of the row before
    (stochastic.Move).
    """

    steps: int
    table: np.ndarray
    initial_scale: float
    has_noise: bool
    picture_scale: float = 0.0
    shared_noise: Mapping[int, float] = field(default_factory=dict[int, float])


def build_scheduler(
    name: str, config: Mapping[str, Any], *, flow_shift: float | None = None, spaces: bool = True
) -> Any:
    """The diffusers scheduler `name`, from the checkpoint's own scheduler config.

    `flow_shift` moves the steps of the flow schedulers towards the noise; None keeps the checkpoint's own. Without
    `spaces` noise levels that it is given stay as they are.
    """
    class_name, overrides = SCHEDULERS[name]
    shift = flow_shift if flow_shift is not None else read_shift(config)
    cls = getattr(diffusers, class_name)
    if not spaces:
        known = inspect.signature(cls.__init__).parameters
        shift, overrides = 1.0, overrides | {option: off for option, off in _UNSPACED.items() if option in known}
    if name in SHIFTS and shift is not None:
        overrides = overrides | {SHIFTS[name]: shift}
    return cls.from_config(dict(config), **overrides)


def build_schedule(
    name: str,
    config: Mapping[str, Any],
    *,
    steps: int,
    last_steps: int | None = None,
    flow_shift: float | None = None,
    sigmas: Sequence[float] | np.ndarray | None = None,
    mu: float | None = None,
    levels: Sequence[float] = (),
) -> Schedule:
    """Builds the table of `steps` steps, or of the `last_steps` among them, which start from a picture under noise.

    `sigmas` and `mu` are passed on to diffusers' `set_timesteps`, which shifts them. `levels` are noise levels that a
    recipe names (TAKE_SIGMAS), one a step: they are taken as they are.
    """
    scheduler = build_scheduler(name, config, flow_shift=flow_shift, spaces=not levels)
    if levels:
        sigmas, mu = np.asarray([*levels] if name in SHIFTS else [*levels, 0.0]), None
    elif name == EVEN and sigmas is None:
        sigmas = np.linspace(1.0, 1 / steps, steps).tolist()
    extra = {"sigmas": sigmas, "mu": mu}
    extra = {argument: value for argument, value in extra.items() if value is not None}
    if name == LCM_TRAILING:
        scheduler.set_timesteps(timesteps=_space_evenly(steps, int(scheduler.config["num_train_timesteps"])))
    elif sigmas is None:
        scheduler.set_timesteps(steps, **extra)
    else:
        scheduler.set_timesteps(**extra)
    skipped = 0 if last_steps is None else len(scheduler.timesteps) - last_steps
    timesteps = scheduler.timesteps[skipped:]
    if hasattr(scheduler, "set_begin_index"):  # by timesteps, of which two may be equal, it would not find its place
        scheduler.set_begin_index(skipped)
    picture_scale, noise_scale = 0.0, float(getattr(scheduler, "init_noise_sigma", 1.0))
    if last_steps is not None:
        picture_scale, noise_scale = _probe_start(scheduler, timesteps[:1])
    table = np.zeros((MAX_STEPS, len(COLUMNS)), np.float32)
    moves: list[Move] = []
    if name.startswith(OWN_STEPS):
        moves = [move for step in list_moves(name, scheduler)[skipped:] for move in step]
        for index, move in enumerate(moves):
            table[index] = [move.columns.get(column, 0.0) for column in COLUMNS]
    else:
        for index, timestep in enumerate(timesteps):
            table[index] = _probe_step(scheduler, timestep)
    return Schedule(
        steps=len(moves) or len(timesteps),
        table=table,
        initial_scale=noise_scale,
        has_noise=bool(table[:, COLUMNS.index("by_noise")].any()),
        picture_scale=picture_scale,
        shared_noise={index: move.shared_noise for index, move in enumerate(moves) if move.shared_noise},
    )


def _space_evenly(steps: int, total: int) -> list[int]:
    """Returns `trailing` timesteps, the last one of each of `steps` equal parts."""
    return [round(total * (1 - step / steps)) - 1 for step in range(steps)]


def _probe_start(scheduler: Any, timestep: torch.Tensor) -> tuple[float, float]:
    """Factors of the picture and of the noise in diffusers' `add_noise` for this first step (1,); a flow's blends."""
    one, none = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    if isinstance(scheduler, diffusers.FlowMatchEulerDiscreteScheduler):
        blend = cast(Any, scheduler).scale_noise
        return float(blend(one, timestep, none)), float(blend(none, timestep, one))
    return float(scheduler.add_noise(one, none, timestep)), float(scheduler.add_noise(none, one, timestep))


def _probe_step(scheduler: Any, timestep: torch.Tensor) -> list[float]:
    """Computes one row of the table and advances the scheduler by a step."""
    # One position more than the basis has: the last stays zero and shows the noise alone. UniPC wants a batch axis.
    unit_vectors = torch.eye(len(BASIS) + 1, dtype=torch.float64)[: len(BASIS), None]
    latents, output, x0, older_x0, anchor = unit_vectors
    _replace_memory(scheduler, x0=x0, older_x0=older_x0, anchor=anchor)
    scale = 1.0
    if hasattr(scheduler, "scale_model_input"):
        scale = float(scheduler.scale_model_input(torch.ones(1, dtype=torch.float64), timestep)[0])
    noise_dtype = _find_noise_dtype(scheduler, output.dtype)
    arguments = {"generator": torch.Generator("cpu").manual_seed(0)} if noise_dtype is not None else {}
    sigma = _flow_sigma(scheduler, timestep)
    result = scheduler.step(output, timestep, latents, **arguments)
    after = result.prev_sample.double()
    by_noise = 0.0
    if noise_dtype is not None:
        noise = torch.randn(after.shape, generator=torch.Generator("cpu").manual_seed(0), dtype=noise_dtype).double()
        by_noise = float(after[0, -1] / noise[0, -1])
        after = after - by_noise * noise
    if hasattr(scheduler, "model_outputs"):
        expected = scheduler.model_outputs[-1]
    elif isinstance(scheduler, diffusers.LCMScheduler):
        expected = result.denoised
    elif isinstance(scheduler, diffusers.TCDScheduler):
        expected = _expect_picture(scheduler, timestep, latents, output)
    else:
        expected = latents - sigma * output if sigma is not None else result.pred_original_sample
    corrected = getattr(scheduler, "last_sample", None)
    anchors = [0.0] * len(BASIS) if corrected is None else corrected[0, : len(BASIS)].tolist()
    moves = after[0, : len(BASIS)].tolist()
    return [float(timestep), scale, *expected[0, :2].tolist(), *anchors, *moves, by_noise]


def _find_noise_dtype(scheduler: Any, dtype: torch.dtype) -> torch.dtype | None:
    """Returns the type in which the scheduler draws noise at every step, None for one that draws none."""
    if isinstance(scheduler, diffusers.DPMSolverMultistepScheduler):
        is_stochastic = str(scheduler.config["algorithm_type"]).startswith("sde")
        return torch.float32 if is_stochastic else None
    noisy = (diffusers.EulerAncestralDiscreteScheduler, diffusers.LCMScheduler, diffusers.TCDScheduler)
    return dtype if isinstance(scheduler, noisy) else None


def _expect_picture(
    scheduler: Any, timestep: torch.Tensor, latents: torch.Tensor, output: torch.Tensor
) -> torch.Tensor:
    """The picture expected now, for a scheduler that does not return it."""
    kept = scheduler.alphas_cumprod[int(timestep)].double()
    if scheduler.config["prediction_type"] == "v_prediction":
        return kept.sqrt() * latents - (1 - kept).sqrt() * output
    return (latents - (1 - kept).sqrt() * output) / kept.sqrt()


def _replace_memory(scheduler: Any, *, x0: torch.Tensor, older_x0: torch.Tensor, anchor: torch.Tensor) -> None:
    """Puts unit vectors where the scheduler remembers earlier steps."""
    if not hasattr(scheduler, "model_outputs"):
        return
    assert len(scheduler.model_outputs) == 2, "the tables hold two earlier pictures"
    for index, vector in ((-1, x0), (-2, older_x0)):
        if scheduler.model_outputs[index] is not None:
            scheduler.model_outputs[index] = vector
    if getattr(scheduler, "last_sample", None) is not None:
        scheduler.last_sample = anchor


def _flow_sigma(scheduler: Any, timestep: torch.Tensor) -> float | None:
    """The noise level before this step, for flow schedulers that do not return the picture they expect."""
    if not isinstance(scheduler, diffusers.FlowMatchEulerDiscreteScheduler):
        return None
    flow: Any = scheduler
    if flow.step_index is None:
        flow._init_step_index(timestep)  # noqa: SLF001 - `step` itself would do it first thing
    return float(flow.sigmas[flow.step_index])
