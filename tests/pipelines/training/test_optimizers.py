"""Optimizers and learning rates are those people know by these names: torch's and diffusers' own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from diffusers.optimization import get_scheduler

from pipelines.training.optimizers import build_optimizer, list_rates
from pipelines.training.settings import TrainingSettings


def _ask(**fields: object) -> TrainingSettings:
    return TrainingSettings.model_validate({"model": "m", "data": ("d",), "lora": True, **fields})


def test_adamw_is_torchs_with_its_clipping() -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=(16, 8)).astype(np.float32)
    gradients = rng.normal(size=(20, 16, 8)).astype(np.float32)
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    theirs = torch.optim.AdamW([weight], lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-2, eps=1e-8)
    optimizer = build_optimizer(_ask(), {"w": start.shape})
    ours = {"w": jnp.asarray(start)}
    state = optimizer.init(ours)
    for gradient in gradients:
        weight.grad = torch.from_numpy(gradient.copy())
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        theirs.step()
        moves, state = optimizer.update({"w": jnp.asarray(gradient)}, state, ours)
        ours = optax.apply_updates(ours, {"w": 1e-3 * moves["w"]})
    np.testing.assert_allclose(ours["w"], weight.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "adafactor", "lion", "muon", "prodigy"])
def test_every_optimizer_goes_downhill(name: str) -> None:
    optimizer = build_optimizer(_ask(optimizer=name), {"w": (8, 8)})
    weights = {"w": jnp.ones((8, 8))}
    state = optimizer.init(weights)
    rate = 1.0 if name == "prodigy" else 0.02  # it finds its own
    update = jax.jit(optimizer.update)
    for _ in range(20):
        moves, state = update({"w": 2 * weights["w"]}, state, weights)
        weights = optax.apply_updates(weights, {"w": rate * moves["w"]})
    assert float(jnp.square(weights["w"]).sum()) < 64


def test_a_step_without_finite_gradients_changes_nothing_and_is_counted() -> None:
    optimizer = build_optimizer(_ask(), {"w": (4,)})
    weights = {"w": jnp.ones(4)}
    state = optimizer.init(weights)
    for wrong in range(1, 4):
        moves, state = optimizer.update({"w": jnp.asarray([1.0, jnp.nan, 1.0, 1.0])}, state, weights)
        assert not np.asarray(moves["w"]).any()
        assert int(state.notfinite_count) == wrong
    _, state = optimizer.update({"w": jnp.ones(4)}, state, weights)
    assert int(state.notfinite_count) == 0


@pytest.mark.parametrize(
    "name", ["constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial"]
)
def test_rates_are_those_of_diffusers_scheduler(name: str) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=7, num_training_steps=100)
    expected = []
    for _ in range(100):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()

    rates = list_rates(_ask(lr_scheduler=name, learning_rate=3e-4, lr_warmup_steps=7), 100)

    np.testing.assert_allclose(rates, expected, rtol=1e-6)
