"""Every scheduler table moves latents exactly as diffusers' own `step` does, whatever the model answers."""

from typing import Any

import pytest
import torch

from pipelines.runtime.schedules import COLUMNS, MAX_STEPS, SCHEDULERS, Schedule, build_schedule, build_scheduler

# the scheduler configs of SDXL base and of the demo model
CONFIGS: dict[str, dict[str, Any]] = {
    "epsilon": {
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "clip_sample": False,
        "interpolation_type": "linear",
        "num_train_timesteps": 1000,
        "prediction_type": "epsilon",
        "set_alpha_to_one": False,
        "skip_prk_steps": True,
        "steps_offset": 1,
        "timestep_spacing": "leading",
        "use_karras_sigmas": False,
    },
    "v_prediction": {
        "num_train_timesteps": 1000,
        "beta_schedule": "linear",
        "beta_start": 1e-4,
        "beta_end": 0.02,
        "prediction_type": "v_prediction",
        "timestep_spacing": "trailing",
        "steps_offset": 0,
    },
}


def predict(latents: torch.Tensor, timestep: float) -> torch.Tensor:
    """Stands for the UNet: neither linear in the latents nor independent of time."""
    return torch.tanh(latents * 1.3 + timestep / 700)


def run_diffusers(name: str, config: dict[str, Any], steps: int) -> torch.Tensor:
    scheduler = build_scheduler(name, config)
    scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(3)
    latents = torch.randn(64, generator=generator) * scheduler.init_noise_sigma
    arguments = {"generator": generator} if name == "euler_ancestral" else {}
    for timestep in scheduler.timesteps:
        output = predict(scheduler.scale_model_input(latents, timestep), float(timestep))
        latents = scheduler.step(output, timestep, latents, **arguments).prev_sample
    return latents


def run_table(schedule: Schedule) -> torch.Tensor:
    """The three lines of the module's opening, as the compiled program runs them."""
    generator = torch.Generator().manual_seed(3)
    latents = torch.randn(64, generator=generator) * schedule.initial_scale
    previous_x0 = torch.zeros(64)
    for values in schedule.table[: schedule.steps]:
        row = dict(zip(COLUMNS, map(float, values), strict=True))
        output = predict(row["in_scale"] * latents, row["timestep"])
        x0 = row["x0_latents"] * latents + row["x0_output"] * output
        latents = row["by_latents"] * latents + row["by_output"] * output + row["by_previous_x0"] * previous_x0
        if schedule.has_noise:
            latents = latents + row["by_noise"] * torch.randn(64, generator=generator)
        previous_x0 = x0
    return latents


@pytest.mark.parametrize("steps", [1, 2, 7, 30, 60])
@pytest.mark.parametrize("prediction", CONFIGS)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_table_does_what_diffusers_does(name: str, prediction: str, steps: int) -> None:
    config = CONFIGS[prediction]
    schedule = build_schedule(name, config, steps=steps)
    assert schedule.steps == steps
    torch.testing.assert_close(run_table(schedule), run_diffusers(name, config, steps), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_expected_picture_is_diffusers_own(name: str) -> None:
    config = CONFIGS["v_prediction"]
    scheduler = build_scheduler(name, config)
    scheduler.set_timesteps(5)
    row = dict(zip(COLUMNS, map(float, build_schedule(name, config, steps=5).table[0]), strict=True))
    latents = torch.linspace(-2, 2, 16) * scheduler.init_noise_sigma
    output = predict(latents, 1.0)
    step = scheduler.step(output, scheduler.timesteps[0], latents)
    expected = scheduler.model_outputs[-1] if name == "dpmpp_2m" else step.pred_original_sample
    torch.testing.assert_close(row["x0_latents"] * latents + row["x0_output"] * output, expected, atol=1e-4, rtol=1e-4)


def test_only_the_ancestral_scheduler_draws_noise_at_each_step() -> None:
    noisy = [name for name in SCHEDULERS if build_schedule(name, CONFIGS["epsilon"], steps=4).has_noise]
    assert noisy == ["euler_ancestral"]


def test_tables_have_one_size_for_every_step_count() -> None:
    tables = [build_schedule("euler", CONFIGS["epsilon"], steps=steps).table for steps in (1, 100)]
    assert {table.shape for table in tables} == {(MAX_STEPS, len(COLUMNS))}
    assert not tables[0][1:].any()


def test_karras_sigmas_of_a_checkpoint_are_kept() -> None:
    config = CONFIGS["epsilon"] | {"use_karras_sigmas": True}
    torch.testing.assert_close(
        run_table(build_schedule("euler", config, steps=8)), run_diffusers("euler", config, 8), atol=2e-4, rtol=1e-4
    )
