"""Every scheduler table moves latents exactly as diffusers' own `step` does, whatever the model answers."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import diffusers as library
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pipelines.models.catalog_entries import LIMITS
from pipelines.recipes.schedulers import DIFFUSION, FLOW, MOST_STEPS, TAKE_SIGMAS, TWICE
from pipelines.runtime.sampling import solver
from pipelines.runtime.sampling.schedules import COLUMNS, MAX_STEPS, Schedule, build_schedule, build_scheduler

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
# Wan's own scheduler config, and FLUX.2's
FLOW_CONFIGS: dict[str, dict[str, Any]] = {
    "wan": {
        "num_train_timesteps": 1000,
        "prediction_type": "flow_prediction",
        "use_flow_sigmas": True,
        "flow_shift": 3.0,
        "solver_order": 2,
        "solver_type": "bh2",
        "lower_order_final": True,
    },
    "flux2": {
        "num_train_timesteps": 1000,
        "shift": 3.0,
        "use_dynamic_shifting": True,
        "time_shift_type": "exponential",
        "base_shift": 0.5,
        "max_shift": 1.15,
    },
}
diffusers: Any = library  # its from_config says that it may return a pair
NOISE_TO_DATA = ("euler", "euler_ancestral", "dpmpp_2m", "ddim")
NOISY = ("euler_ancestral", "dpmpp_2m_sde", "lcm", "tcd", "dpmpp_sde", "er_sde")
# What a user of diffusers writes for the schedulers of these names, with their noise levels as they are there.
WRITTEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "lcm": diffusers.LCMScheduler.from_config,
    "tcd": diffusers.TCDScheduler.from_config,
    "ddim_trailing": lambda config: diffusers.DDIMScheduler.from_config(config, timestep_spacing="trailing"),
    "dpmpp_2m_sde": lambda config: diffusers.DPMSolverMultistepScheduler.from_config(
        config, algorithm_type="sde-dpmsolver++"
    ),
    "dpmpp_2m_sde_karras": lambda config: diffusers.DPMSolverMultistepScheduler.from_config(
        config, algorithm_type="sde-dpmsolver++", use_karras_sigmas=True
    ),
    "dpmpp_2m_exponential": lambda config: diffusers.DPMSolverMultistepScheduler.from_config(
        config, use_exponential_sigmas=True
    ),
    "dpmpp_2m_trailing": lambda config: diffusers.DPMSolverMultistepScheduler.from_config(
        config, timestep_spacing="trailing"
    ),
    "euler_trailing": lambda config: diffusers.EulerDiscreteScheduler.from_config(config, timestep_spacing="trailing"),
    "euler_karras": lambda config: diffusers.EulerDiscreteScheduler.from_config(config, use_karras_sigmas=True),
    "euler_exponential": lambda config: diffusers.EulerDiscreteScheduler.from_config(
        config, use_exponential_sigmas=True
    ),
    "euler_beta": lambda config: diffusers.EulerDiscreteScheduler.from_config(config, use_beta_sigmas=True),
    "euler_ancestral_trailing": lambda config: diffusers.EulerAncestralDiscreteScheduler.from_config(
        config, timestep_spacing="trailing"
    ),
}


def predict(latents: torch.Tensor, timestep: float) -> torch.Tensor:
    """Stands for the UNet: neither linear in the latents nor independent of time."""
    return torch.tanh(latents * 1.3 + timestep / 700)


def run_diffusers(scheduler: Any, *, skipped: int = 0, latents: torch.Tensor | None = None) -> torch.Tensor:
    """The loop of a diffusers pipeline after `set_timesteps`, from noise or from `latents` after `skipped` steps."""
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(1, 64, generator=generator)
    moved: Any = noise * float(getattr(scheduler, "init_noise_sigma", 1.0)) if latents is None else latents
    draws = "generator" in inspect.signature(scheduler.step).parameters
    arguments = {"generator": generator} if draws and "DDIM" not in type(scheduler).__name__ else {}
    for timestep in scheduler.timesteps[skipped:]:
        seen = scheduler.scale_model_input(moved, timestep) if hasattr(scheduler, "scale_model_input") else moved
        moved = scheduler.step(predict(seen, float(timestep)), timestep, moved, **arguments).prev_sample
    return moved


def run_table(
    schedule: Schedule,
    *,
    has_memory: bool = False,
    latents: torch.Tensor | None = None,
    noises: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor:
    """Runs it as the compiled program does, one step at a time; with these noises instead of a generator's."""
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(1, 64, generator=generator)
    latents = noise * schedule.initial_scale if latents is None else latents
    nothing = [jnp.zeros((1, 64)) for _ in range(3 if has_memory else 1)]
    state = solver.State(jnp.asarray(latents), *nothing)
    for index in range(schedule.steps):
        row = solver.read_row(jnp.asarray(schedule.table), jnp.int32(index))
        seen = torch.from_numpy(np.array(row["in_scale"] * state.latents))
        output = jnp.asarray(predict(seen, float(row["timestep"])))
        noise = jnp.asarray(torch.randn(1, 64, generator=generator)) if schedule.has_noise else None
        if noises is not None:
            noise = jnp.asarray(noises[index] if index < len(noises) else torch.zeros(1, 64))
        state = solver.advance(row, state, output, noise)
    return torch.from_numpy(np.array(state.latents))


def prepare(name: str, config: dict[str, Any], steps: int) -> Any:
    scheduler = build_scheduler(name, config)
    scheduler.set_timesteps(steps)
    return scheduler


@pytest.mark.parametrize("steps", [1, 2, 7, 30, 60])
@pytest.mark.parametrize("prediction", CONFIGS)
@pytest.mark.parametrize("name", NOISE_TO_DATA)
def test_a_table_does_what_diffusers_does(name: str, prediction: str, steps: int) -> None:
    config = CONFIGS[prediction]
    schedule = build_schedule(name, config, steps=steps)
    assert schedule.steps == steps
    torch.testing.assert_close(run_table(schedule), run_diffusers(prepare(name, config, steps)), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("steps", [1, 4, 8, 30])
@pytest.mark.parametrize("prediction", CONFIGS)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_spacing_does_what_diffusers_users_ask_for(name: str, prediction: str, steps: int) -> None:
    config = CONFIGS[prediction]
    scheduler = WRITTEN[name](config)
    scheduler.set_timesteps(steps)
    schedule = build_schedule(name, config, steps=steps)
    torch.testing.assert_close(run_table(schedule), run_diffusers(scheduler), atol=2e-4, rtol=2e-4)


def test_every_scheduler_has_a_table() -> None:
    for name in DIFFUSION:
        rows = 2 if name in TWICE else 1
        assert build_schedule(name, CONFIGS["epsilon"], steps=4).steps == 4 * rows - (rows - 1)
        assert build_schedule(name, CONFIGS["epsilon"], steps=4, last_steps=2).steps == 2 * rows - (rows - 1)
        most = MOST_STEPS.get(name, MAX_STEPS)
        assert build_schedule(name, CONFIGS["epsilon"], steps=most).steps <= MAX_STEPS
    for name in FLOW:
        assert build_schedule(name, FLOW_CONFIGS["wan"], steps=4).steps == 4


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", ["lcm", "tcd"])
def test_a_few_step_scheduler_expects_a_picture(name: str, config: dict[str, Any]) -> None:
    """The output from which a picture was mixed is the noise, or the velocity, so it is what the row expects."""
    scheduler = build_scheduler(name, config)
    scheduler.set_timesteps(4)
    picture, noise = torch.linspace(-2, 2, 16)[None], torch.ones(1, 16)
    time = scheduler.timesteps[1]
    latents, kept = scheduler.add_noise(picture, noise, time[None]), scheduler.alphas_cumprod[time]
    is_velocity = config["prediction_type"] == "v_prediction"
    output = kept.sqrt() * noise - (1 - kept).sqrt() * picture if is_velocity else noise
    row = dict(zip(COLUMNS, map(float, build_schedule(name, config, steps=4).table[1]), strict=True))
    expected = row["x0_latents"] * latents + row["x0_output"] * output
    torch.testing.assert_close(expected, picture, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("flow_match_euler_karras", {"use_karras_sigmas": True}),
        ("flow_match_euler_exponential", {"use_exponential_sigmas": True}),
        ("flow_match_euler_beta", {"use_beta_sigmas": True}),
    ],
)
@pytest.mark.parametrize("steps", [2, 4, 20])
def test_a_flows_spacing_does_what_diffusers_users_ask_for(name: str, write: dict[str, Any], steps: int) -> None:
    config = FLOW_CONFIGS["wan"]
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_config(config, shift=5.0, **write)
    scheduler.set_timesteps(steps)
    schedule = build_schedule(name, config, steps=steps, flow_shift=5.0)
    torch.testing.assert_close(run_table(schedule), run_diffusers(scheduler), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 7, 30])
def test_dpm_solver_of_a_flow_moves_as_in_diffusers(steps: int) -> None:
    config = FLOW_CONFIGS["wan"]
    scheduler = diffusers.DPMSolverMultistepScheduler.from_config(config, flow_shift=5.0)
    scheduler.set_timesteps(steps)
    schedule = build_schedule("flow_dpmpp_2m", config, steps=steps, flow_shift=5.0)
    torch.testing.assert_close(run_table(schedule, has_memory=True), run_diffusers(scheduler), atol=3e-4, rtol=3e-4)


def test_lcm_takes_the_timesteps_that_dmd2_is_made_for() -> None:
    config = CONFIGS["epsilon"]
    scheduler = diffusers.LCMScheduler.from_config(config)
    scheduler.set_timesteps(timesteps=[999, 749, 499, 249])
    schedule = build_schedule("lcm_trailing", config, steps=4)
    torch.testing.assert_close(run_table(schedule), run_diffusers(scheduler), atol=2e-4, rtol=2e-4)


def test_even_steps_are_those_that_four_step_loras_of_wan_are_made_for() -> None:
    schedule = build_schedule("flow_match_euler_even", FLOW_CONFIGS["wan"], steps=4, flow_shift=5.0)
    timesteps = schedule.table[:4, COLUMNS.index("timestep")]
    np.testing.assert_allclose(timesteps, [1000, 937.5, 833.3333, 625], rtol=1e-5)


@pytest.mark.parametrize("name", NOISE_TO_DATA)
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


def test_only_stochastic_schedulers_draw_noise_at_each_step() -> None:
    base = (*NOISE_TO_DATA, *NOISY[1:])
    noisy = [name for name in base if build_schedule(name, CONFIGS["epsilon"], steps=4).has_noise]
    assert noisy == [*NOISY]


def test_tables_have_one_size_for_every_step_count() -> None:
    tables = [build_schedule("euler", CONFIGS["epsilon"], steps=steps).table for steps in (1, 100)]
    assert {table.shape for table in tables} == {(MAX_STEPS, len(COLUMNS))}
    assert not tables[0][1:].any()


def test_karras_sigmas_of_a_checkpoint_are_kept() -> None:
    config = CONFIGS["epsilon"] | {"use_karras_sigmas": True}
    torch.testing.assert_close(
        run_table(build_schedule("euler", config, steps=8)),
        run_diffusers(prepare("euler", config, 8)),
        atol=2e-4,
        rtol=1e-4,
    )


@pytest.mark.parametrize("prediction", CONFIGS)
@pytest.mark.parametrize("name", NOISE_TO_DATA)
def test_the_last_steps_start_from_a_picture_under_noise_as_in_diffusers(name: str, prediction: str) -> None:
    scheduler = prepare(name, CONFIGS[prediction], 9)
    if name != "ddim":
        scheduler.set_begin_index(5)
    generator = torch.Generator().manual_seed(3)
    picture, noise = torch.linspace(-2, 2, 64)[None], torch.randn(1, 64, generator=generator)
    latents = scheduler.add_noise(picture, noise, scheduler.timesteps[5:6])
    schedule = build_schedule(name, CONFIGS[prediction], steps=9, last_steps=4)
    mixed = schedule.picture_scale * picture + schedule.initial_scale * noise
    torch.testing.assert_close(mixed, latents, atol=1e-5, rtol=1e-5)
    assert (schedule.steps, schedule.table[4:].any()) == (4, False)
    expected = run_diffusers(scheduler, skipped=5, latents=latents)
    torch.testing.assert_close(run_table(schedule, latents=mixed), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 50])
@pytest.mark.parametrize("flow_shift", [None, 1.0, 5.0])
@pytest.mark.parametrize("name", ["unipc", "flow_match_euler"])
def test_wans_two_schedulers_move_as_diffusers_does(name: str, flow_shift: float | None, steps: int) -> None:
    config = FLOW_CONFIGS["wan"]
    scheduler = build_scheduler(name, config, flow_shift=flow_shift)
    scheduler.set_timesteps(steps)
    schedule = build_schedule(name, config, steps=steps, flow_shift=flow_shift)
    torch.testing.assert_close(run_table(schedule, has_memory=True), run_diffusers(scheduler), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("steps", [1, 4, 28])
def test_flux_2_passes_its_own_noise_levels_and_shift(steps: int) -> None:
    levels = np.linspace(1.0, 1 / steps, steps).tolist()
    scheduler = build_scheduler("flow_match_euler", FLOW_CONFIGS["flux2"])
    scheduler.set_timesteps(sigmas=levels, mu=1.7)
    schedule = build_schedule("flow_match_euler", FLOW_CONFIGS["flux2"], steps=steps, sigmas=levels, mu=1.7)
    assert schedule.steps == steps
    torch.testing.assert_close(run_table(schedule), run_diffusers(scheduler), atol=2e-5, rtol=1e-5)


def test_the_picture_a_flow_expects_is_the_latents_without_their_noise() -> None:
    schedule = build_schedule("flow_match_euler", FLOW_CONFIGS["wan"], steps=4, flow_shift=3.0)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in schedule.table[:4].tolist()]
    assert [row["x0_latents"] for row in rows] == [1.0] * 4
    for row in rows:
        assert row["x0_output"] == pytest.approx(-row["timestep"] / 1000, rel=1e-5)


def test_no_model_of_ones_own_may_ask_for_more_steps_than_the_tables_hold() -> None:
    assert LIMITS["max_steps"][1] == MAX_STEPS


def test_sigmas_of_a_diffusion_are_those_that_diffusers_users_give() -> None:
    config, sigmas = CONFIGS["epsilon"] | {"use_karras_sigmas": True}, [14.615, 6.3184, 3.7681, 2.1811, 1.3405, 0.0291]
    scheduler = diffusers.EulerDiscreteScheduler.from_config(config)
    scheduler.set_timesteps(sigmas=[*sigmas, 0.0])
    schedule = build_schedule("euler", config, steps=6, levels=sigmas)
    assert schedule.steps == 6
    torch.testing.assert_close(run_table(schedule), run_diffusers(scheduler), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["dpmpp_sde", "er_sde"])
def test_schedulers_with_rows_of_their_own_take_sigmas(name: str) -> None:
    config, sigmas = CONFIGS["epsilon"], [14.6, 3.0, 0.5]
    schedule = build_schedule(name, config, steps=3, levels=sigmas)
    seen = (1 / schedule.table[: schedule.steps, COLUMNS.index("in_scale")] ** 2 - 1) ** 0.5
    np.testing.assert_allclose(seen[:: 2 if name in TWICE else 1], sigmas, rtol=1e-3)


@pytest.mark.parametrize("config", FLOW_CONFIGS.values(), ids=FLOW_CONFIGS)
def test_sigmas_of_a_flow_are_not_shifted_again(config: dict[str, Any]) -> None:
    sigmas = [1.0, 0.9375, 0.8333333, 0.625]
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_config(config, shift=1.0, use_dynamic_shifting=False)
    scheduler.set_timesteps(sigmas=sigmas)
    schedule = build_schedule("flow_match_euler", config, steps=4, flow_shift=7.0, mu=1.7, levels=sigmas)
    np.testing.assert_allclose(schedule.table[:4, 0], [1000, 937.5, 833.3333, 625], rtol=1e-6)
    torch.testing.assert_close(run_table(schedule), run_diffusers(scheduler), atol=2e-5, rtol=1e-5)


def test_unipc_takes_sigmas_as_diffusers_users_give_them() -> None:
    config, sigmas = FLOW_CONFIGS["wan"], [0.999, 0.9, 0.7, 0.4, 0.1]
    scheduler = diffusers.UniPCMultistepScheduler.from_config(config, flow_shift=1.0)
    scheduler.set_timesteps(sigmas=np.array(sigmas))  # an array: of a list it takes no multiple
    schedule = build_schedule("unipc", config, steps=5, flow_shift=5.0, levels=sigmas)
    torch.testing.assert_close(run_table(schedule, has_memory=True), run_diffusers(scheduler), atol=2e-4, rtol=1e-4)


def test_every_scheduler_that_takes_sigmas_is_one() -> None:
    assert {*TAKE_SIGMAS} <= {*DIFFUSION, *FLOW}
