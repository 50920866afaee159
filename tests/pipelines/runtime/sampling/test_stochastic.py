"""DPM++ SDE and ER-SDE: rows that move as diffusers does, or as the solver's authors wrote it, with the same noise."""

import itertools
import math
from typing import Any

import diffusers as library
import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_dpmsolver_sde import BrownianTreeNoiseSampler

from pipelines.recipes.schedulers import recognise
from pipelines.runtime.sampling.schedules import COLUMNS, build_schedule, build_scheduler
from tests.pipelines.runtime.sampling.test_schedules import CONFIGS, predict, run_table

diffusers: Any = library
SPACINGS: dict[str, dict[str, Any]] = {
    "": {},
    "_karras": {"use_karras_sigmas": True},
    "_exponential": {"use_exponential_sigmas": True},
    "_beta": {"use_beta_sigmas": True},
    "_trailing": {"timestep_spacing": "trailing"},
}


class Listener:
    """Answers as diffusers' own Brownian tree, and remembers what it answered, and for which levels."""

    def __init__(self, scheduler: Any, latents: torch.Tensor) -> None:
        levels = scheduler.sigmas
        lowest, highest = (
            0.99 * float(levels[levels > 0].min()),
            1.01 * float(levels.max()),
        )  # torchsde warns at the rim
        self._tree = BrownianTreeNoiseSampler(latents, lowest, highest, 5)
        self.heard: list[torch.Tensor] = []
        self.asked: list[tuple[float, float]] = []

    def __call__(self, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        self.asked.append((float(start), float(end)))
        self.heard.append(self._tree(*self.asked[-1]))
        return self.heard[-1]


def run_sde(scheduler: Any, *, size: int = 64, skipped: int = 0, latents: Any = None) -> tuple[torch.Tensor, Listener]:
    """The loop of a diffusers pipeline after `set_timesteps`."""
    noise = torch.randn(1, size, generator=torch.Generator().manual_seed(3))
    moved: Any = noise * float(scheduler.init_noise_sigma) if latents is None else latents
    scheduler.noise_sampler = listener = Listener(scheduler, moved)
    for timestep in scheduler.timesteps[skipped:]:
        seen = scheduler.scale_model_input(moved, timestep)
        moved = scheduler.step(predict(seen, float(timestep)), timestep, moved).prev_sample
    return moved, listener


@pytest.mark.parametrize("steps", [2, 9])
@pytest.mark.parametrize("prediction", CONFIGS)
@pytest.mark.parametrize("spacing", SPACINGS)
def test_dpmpp_sde_does_what_diffusers_users_ask_for(spacing: str, prediction: str, steps: int) -> None:
    config = CONFIGS[prediction]
    scheduler = diffusers.DPMSolverSDEScheduler.from_config(config, **SPACINGS[spacing])
    scheduler.set_timesteps(steps)
    schedule = build_schedule(f"dpmpp_sde{spacing}", config, steps=steps)
    assert schedule.steps == len(scheduler.timesteps) == 2 * steps - 1
    np.testing.assert_allclose(
        schedule.table[: schedule.steps, COLUMNS.index("timestep")], scheduler.timesteps, rtol=1e-4, atol=2e-2
    )
    expected, listener = run_sde(scheduler)
    torch.testing.assert_close(run_table(schedule, noises=listener.heard), expected, atol=5e-4, rtol=5e-4)


def test_the_last_steps_of_dpmpp_sde_start_from_a_picture_under_noise_as_in_diffusers() -> None:
    config = CONFIGS["epsilon"]
    scheduler = diffusers.DPMSolverSDEScheduler.from_config(config)
    scheduler.set_timesteps(9)
    skipped = 5 * scheduler.order
    scheduler.set_begin_index(skipped)
    picture, noise = torch.linspace(-2, 2, 64)[None], torch.randn(1, 64, generator=torch.Generator().manual_seed(3))
    latents = scheduler.add_noise(picture, noise, scheduler.timesteps[skipped : skipped + 1])
    schedule = build_schedule("dpmpp_sde", config, steps=9, last_steps=4)
    mixed = schedule.picture_scale * picture + schedule.initial_scale * noise
    torch.testing.assert_close(mixed, latents, atol=1e-5, rtol=1e-5)
    expected, listener = run_sde(scheduler, skipped=skipped, latents=latents)
    torch.testing.assert_close(
        run_table(schedule, latents=mixed, noises=listener.heard), expected, atol=5e-4, rtol=5e-4
    )


def test_noise_of_a_steps_second_row_contains_that_of_its_first_as_a_brownian_tree_says() -> None:
    scheduler = diffusers.DPMSolverSDEScheduler.from_config(CONFIGS["epsilon"])
    scheduler.set_timesteps(6)
    _, listener = run_sde(scheduler, size=20_000)
    shared = build_schedule("dpmpp_sde", CONFIGS["epsilon"], steps=6).shared_noise
    assert [*shared] == [1, 3, 5, 7, 9]
    for row, share in shared.items():
        first, second = listener.heard[row - 1 : row + 1]
        assert float((first * second).mean()) == pytest.approx(share, abs=0.03)
        rest = (second - share * first) / math.sqrt(1 - share**2)
        assert float(rest.std()) == pytest.approx(1, abs=0.03)
        assert float((rest * first).mean()) == pytest.approx(0, abs=0.03)
    for one, other in itertools.combinations(listener.heard[1::2], 2):  # a step's noise is its own
        assert float((one * other).mean()) == pytest.approx(0, abs=0.04)


def test_a_checkpoint_of_dpmpp_sde_is_known() -> None:
    assert recognise({"_class_name": "DPMSolverSDEScheduler"}) == "dpmpp_sde"
    assert recognise({"_class_name": "EulerDiscreteScheduler"}) == "euler"


def solve_as_its_authors(sigmas: list[float], timesteps: list[float], latents: Any, noises: list[Any]) -> Any:
    """ER-SDE-Solver-2 of the paper's variance exploding kind (equations 13 and 15), with a fine integral."""

    def scale(sigma: Any) -> Any:
        return sigma * (np.exp(sigma**0.3) + 10)

    before: Any = None
    for step, (start, end) in enumerate(itertools.pairwise(sigmas)):
        seen = torch.from_numpy(latents / math.sqrt(start**2 + 1)).float()
        picture = latents - start * predict(seen, timesteps[step]).double().numpy()
        keep = scale(end) / scale(start)
        moved = keep * latents + (1 - keep) * picture
        moved += math.sqrt(end**2 - start**2 * keep**2) * noises[step]
        if before is not None and end:
            points = np.linspace(end, start, 4001)
            integral = np.trapezoid(1 / scale(points), points)
            derivative = (picture - before) / (start - sigmas[step - 1])
            moved += (end - start + integral * scale(end)) * derivative
        before, latents = picture, moved
    return latents


@pytest.mark.parametrize("name", ["er_sde", "er_sde_karras", "er_sde_trailing"])
@pytest.mark.parametrize("steps", [1, 2, 12])
def test_er_sde_moves_as_the_paper_says(name: str, steps: int) -> None:
    config = CONFIGS["epsilon"]
    schedule = build_schedule(name, config, steps=steps)
    levels = build_scheduler(name, config)
    levels.set_timesteps(steps)
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(1, 64, generator=generator)
    noises = [torch.randn(1, 64, generator=generator) for _ in range(steps)]
    expected = solve_as_its_authors(
        levels.sigmas.tolist(),
        levels.timesteps.tolist(),
        noise.double().numpy() * schedule.initial_scale,
        [one.double().numpy() for one in noises],
    )
    made = run_table(schedule, noises=noises).numpy()
    np.testing.assert_allclose(made, expected, atol=0.02 * np.abs(expected).max())  # the sum's 200 points


@pytest.mark.parametrize("prediction", CONFIGS)
@pytest.mark.parametrize("name", ["dpmpp_sde", "er_sde"])
def test_a_known_picture_lies_under_as_much_noise_as_each_level_says(name: str, prediction: str) -> None:
    """Latents are picture + sigma * noise whatever the path: what any such solver has to keep, noise rows included."""
    schedule = build_schedule(name, CONFIGS[prediction], steps=10)
    levels = build_scheduler(name, CONFIGS[prediction])
    levels.set_timesteps(10)
    draw = np.random.default_rng(1)
    picture, size = 0.7, 20_000
    latents = schedule.initial_scale * draw.standard_normal(size)
    kept = noise = np.zeros(size)
    ends: list[float] = []
    for index, values in enumerate(schedule.table[: schedule.steps].tolist()):
        row = dict(zip(COLUMNS, values, strict=True))
        sigma = math.sqrt(1 / row["in_scale"] ** 2 - 1)
        output = (latents - picture) / sigma
        if prediction == "v_prediction":
            output = (latents / (sigma**2 + 1) - picture) * math.sqrt(sigma**2 + 1) / sigma
        share = schedule.shared_noise.get(index, 0.0)
        noise = share * noise + math.sqrt(1 - share**2) * draw.standard_normal(size)
        moved = row["by_latents"] * latents + row["by_output"] * output + row["by_x0"] * kept + row["by_noise"] * noise
        kept, latents = row["x0_latents"] * latents + row["x0_output"] * output, moved
        ends.append(float((latents - picture).std()))
    ends = ends[1::2] if name == "dpmpp_sde" else ends[:-1]
    np.testing.assert_allclose(ends, levels.sigmas[1:-1], rtol=0.04)
    np.testing.assert_allclose(latents, picture, atol=1e-4)
