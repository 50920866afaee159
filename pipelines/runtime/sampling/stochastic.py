"""Rows of the table for stochastic schedulers whose steps diffusers' classes do not give: DPM++ SDE and ER-SDE.

Latents are x0 + sigma * noise, as Euler's of diffusers; that class gives levels and timesteps, this file the moves.

    dpmpp_sde  DPM-Solver++ (2S) with noise (k-diffusion's sample_dpmpp_sde; diffusers' DPMSolverSDEScheduler, eta 1,
               r 1/2). A step is two rows: one to the middle, and one from the step's start with what the denoiser
               says there. The first row keeps the start where others keep the picture they expect.
    er_sde     ER-SDE-Solver-2 (Cui et al. 2023, arXiv 2309.06169), with the noise scaling that its authors name
               SDE_5, and the integral as a sum over 200 points (ComfyUI's; the authors' own takes 100). The third
               order would need a third array in the state of every program.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

POINTS = 200
NOISE_EXPONENT, NOISE_OFFSET = 0.3, 10.0  # of SDE_5: x * (exp(x ** 0.3) + 10)


@dataclass(frozen=True, kw_only=True)
class Move:
    """One row: columns of the table that are not zero, and how much of its noise is the row's before (0: none).

    Noise n of variance 1 becomes share * n_before + sqrt(1 - share ** 2) * n.
    """

    columns: dict[str, float]
    shared_noise: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Levels:
    """Noise levels of the steps, falling to 0, and what the model answers."""

    sigmas: Sequence[float]
    timesteps: Sequence[float]
    prediction: str
    scheduler: Any

    def expect(self, sigma: float) -> tuple[float, float]:
        """Returns the factors of latents and output in the picture that is expected at this level."""
        if self.prediction == "epsilon":
            return 1.0, -sigma
        assert self.prediction == "v_prediction", f"no rows for {self.prediction}"
        return 1 / (sigma**2 + 1), -sigma / math.sqrt(sigma**2 + 1)

    def find_timestep(self, sigma: float) -> float:
        training = np.asarray(self.scheduler.alphas_cumprod, np.float64)
        log_sigmas = np.log(((1 - training) / training) ** 0.5)
        return float(self.scheduler._sigma_to_t(np.asarray(sigma), log_sigmas))  # noqa: SLF001 - its own levels' way

    def open_row(self, sigma: float, timestep: float) -> dict[str, float]:
        x0_latents, x0_output = self.expect(sigma)
        return {
            "timestep": timestep,
            "in_scale": 1 / math.sqrt(sigma**2 + 1),
            "x0_latents": x0_latents,
            "x0_output": x0_output,
        }


def list_moves(name: str, scheduler: Any) -> list[list[Move]]:
    """Lists the rows of each step of `name`, whose levels diffusers' Euler `scheduler` has set."""
    levels = _Levels(
        sigmas=[float(sigma) for sigma in scheduler.sigmas],
        timesteps=[float(timestep) for timestep in scheduler.timesteps],
        prediction=scheduler.config["prediction_type"],
        scheduler=scheduler,
    )
    steps = range(len(levels.timesteps))
    if name.startswith("dpmpp_sde"):
        return [_list_dpmpp_sde(levels, step) for step in steps]
    return [[_find_er_sde(levels, step)] for step in steps]


def _list_dpmpp_sde(levels: _Levels, step: int) -> list[Move]:
    start, end = levels.sigmas[step], levels.sigmas[step + 1]
    first = levels.open_row(start, levels.timesteps[step])
    if end == 0:
        return [Move(columns=first | _move(first, picture=1.0))]
    middle = math.sqrt(start * end)
    keep, noise = _split(start, middle)
    to_middle = _move(first, latents=keep, picture=1 - keep) | {"by_noise": noise}
    second = levels.open_row(middle, levels.find_timestep(middle))
    keep, noise = _split(start, end)
    to_end = _move(second, before=keep, picture=1 - keep) | {"by_noise": noise}
    return [
        Move(columns=first | to_middle | {"x0_latents": 1.0, "x0_output": 0.0}),
        # Both add increments of one Brownian motion from `start` on, the longer of which contains the shorter.
        Move(columns=second | to_end, shared_noise=math.sqrt((start - middle) / (start - end))),
    ]


def _split(start: float, end: float) -> tuple[float, float]:
    """Returns how much of the latents' noise stays in an ancestral step, and how much is added."""
    added = min(end, math.sqrt(end**2 * (start**2 - end**2) / start**2))
    return math.sqrt(end**2 - added**2) / start, added


def _find_er_sde(levels: _Levels, step: int) -> Move:
    start, end = levels.sigmas[step], levels.sigmas[step + 1]
    row = levels.open_row(start, levels.timesteps[step])
    keep = _scale_noise(end) / _scale_noise(start)
    noise = math.sqrt(max(0.0, end**2 - start**2 * keep**2))
    slope = 0.0
    if step and end > 0:
        width = (start - end) / POINTS
        integral = width * sum(1 / _scale_noise(end + point * width) for point in range(POINTS))
        slope = (end - start + integral * _scale_noise(end)) / (start - levels.sigmas[step - 1])
    return Move(columns=row | _move(row, latents=keep, picture=1 - keep + slope, before=-slope) | {"by_noise": noise})


def _scale_noise(sigma: float) -> float:
    return sigma * (math.exp(sigma**NOISE_EXPONENT) + NOISE_OFFSET)


def _move(
    row: dict[str, float], *, latents: float = 0.0, picture: float = 0.0, before: float = 0.0
) -> dict[str, float]:
    """Returns a move by shares of the latents, of the picture that `row` expects, and of what was kept before."""
    return {
        "by_latents": latents + picture * row["x0_latents"],
        "by_output": picture * row["x0_output"],
        "by_x0": before,
    }
