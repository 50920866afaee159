"""Optimizers and learning rates are those people know by these names: torch's and diffusers' own."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from diffusers.optimization import get_scheduler
from optax.contrib import schedule_free_adamw, schedule_free_eval_params

from pipelines.errors import RecipeError
from pipelines.training.engine.optimizers import build_optimizer, find_result, guard, list_rates
from pipelines.training.settings import TrainingSettings, read_settings


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
    update: Any = optimizer.update
    for gradient in gradients:
        weight.grad = torch.from_numpy(gradient.copy())
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        theirs.step()
        moves, state = update({"w": jnp.asarray(gradient)}, state, ours, rate=1e-3)
        ours = optax.apply_updates(ours, moves)
    np.testing.assert_allclose(ours["w"], weight.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "adafactor", "lion", "muon", "prodigy", "schedule_free"])
def test_every_optimizer_goes_downhill(name: str) -> None:
    optimizer = build_optimizer(_ask(optimizer=name), {"w": (8, 8)})
    weights = {"w": jnp.ones((8, 8))}
    state = optimizer.init(weights)
    rate = 1.0 if name == "prodigy" else 0.02  # it finds its own
    update: Any = jax.jit(optimizer.update)
    for _ in range(20):
        moves, state = update({"w": 2 * weights["w"]}, state, weights, rate=rate)
        weights = optax.apply_updates(weights, moves)
    assert float(jnp.square(find_result(weights, state)["w"]).sum()) < 64


def test_schedule_free_gives_what_optaxs_own_averages() -> None:
    gradients = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32) / 8  # too short to be clipped
    theirs = schedule_free_adamw(1e-2, weight_decay=1e-2)
    ours = build_optimizer(_ask(optimizer="schedule_free"), {"w": (4,)})
    weights = [{"w": jnp.ones(4)}, {"w": jnp.ones(4)}]
    states: list[Any] = [theirs.init(weights[0]), ours.init(weights[1])]
    updates: list[Any] = [jax.jit(theirs.update), jax.jit(ours.update)]
    for gradient in gradients:
        for which, more in enumerate(({}, {"rate": 1e-2})):
            moves, states[which] = updates[which]({"w": jnp.asarray(gradient)}, states[which], weights[which], **more)
            weights[which] = optax.apply_updates(weights[which], moves)

    expected: Any = schedule_free_eval_params(states[0], weights[0])

    np.testing.assert_allclose(find_result(weights[1], states[1])["w"], expected["w"], rtol=1e-5)
    assert not np.allclose(weights[1]["w"], expected["w"], rtol=1e-4)


def test_schedule_free_refuses_what_it_does_by_itself() -> None:
    asked = {"model": "m", "data": ("d",), "lora": True, "optimizer": "schedule_free"}
    with pytest.raises(RecipeError) as told:
        read_settings(asked | {"ema": 0.9, "lr_scheduler": "cosine"})
    assert {"ema", "lr_scheduler"} == set(told.value.fields)
    assert read_settings(asked).schedule == "constant_with_warmup"


def test_a_step_without_finite_gradients_changes_nothing_and_is_counted() -> None:
    optimizer = build_optimizer(_ask(), {"w": (4,)})
    weights = {"w": jnp.ones(4)}
    state, update = optimizer.init(weights), cast("Any", optimizer.update)
    for wrong in range(1, 4):
        moves, state = update({"w": jnp.asarray([1.0, jnp.nan, 1.0, 1.0])}, state, weights, rate=1.0)
        assert not np.asarray(moves["w"]).any()
        assert int(state.notfinite_count) == wrong
    _, state = update({"w": jnp.ones(4)}, state, weights, rate=1.0)
    assert int(state.notfinite_count) == 0


def test_every_step_is_that_of_optaxs_own_condition() -> None:
    """Also when numbers are finite and their squares are not: then ours counts a step as wrong, and optax's moves 0."""
    inner = optax.adamw(1e-2)
    ours = guard(inner, max_grad_norm=1.0)
    theirs = optax.apply_if_finite(optax.chain(optax.clip_by_global_norm(1.0), inner), max_consecutive_errors=99)
    weights = {"a": jnp.linspace(-1, 1, 6), "b": jnp.ones((2, 2))}
    states: list[Any] = [ours.init(weights), theirs.init(weights)]
    for scale in (0.1, 3.0, jnp.nan, jnp.inf, 0.5):
        gradients = {"a": scale * jnp.arange(6.0), "b": jnp.ones((2, 2))}
        moves = [None, None]
        for which, optimizer in enumerate((ours, theirs)):
            moves[which], states[which] = jax.jit(optimizer.update)(gradients, states[which], weights)
        assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])  # states that were saved are read
        for found, expected in zip(*(jax.tree.leaves((moves[one], states[one])) for one in (0, 1)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    moves, state = ours.update({"a": jnp.full(6, 1e30), "b": jnp.ones((2, 2))}, states[0], weights)
    assert not np.asarray(moves["a"]).any() and int(state.notfinite_count) == 1


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_compiler_sees_no_condition_that_would_keep_passes_apart(name: str) -> None:
    optimizer = build_optimizer(_ask(optimizer=name), {"w": (4, 4)})
    weights = {"w": jnp.ones((4, 4))}
    program = jax.make_jaxpr(optimizer.update)(weights, optimizer.init(weights), weights, rate=1.0)
    assert "cond[" not in str(program)


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


def test_muon_moves_every_matrix_of_a_stack_as_if_alone_and_all_weights_decay() -> None:
    rng = np.random.default_rng(0)
    shapes = {"x.every_layer.ff": (3, 32, 64), "conv.every_layer.w": (2, 8, 4, 3, 3), "x.every_layer.bias": (3, 64)}
    alone = {f"layer{number}": (32, 64) for number in range(3)}
    draw = lambda found: {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in found.items()}  # noqa: E731
    weights, gradients = draw(shapes), jax.tree.map(lambda one: one * 1e-3, draw(shapes))

    def step(name: str, weights: Any, gradients: Any, **asked: Any) -> Any:
        optimizer = build_optimizer(_ask(optimizer=name, **asked), jax.tree.map(np.shape, weights))
        update: Any = optimizer.update
        return update(gradients, optimizer.init(weights), weights, rate=1e-2)[0]

    moves = step("muon", weights, gradients, adam_weight_decay=0.0)
    parted = {name: gradients["x.every_layer.ff"][number] for number, name in enumerate(alone)}
    apart = step("muon", draw(alone), parted, adam_weight_decay=0.0)
    for number, name in enumerate(alone):
        np.testing.assert_allclose(moves["x.every_layer.ff"][number], apart[name], rtol=0.02, atol=2e-5)
        values = np.linalg.svd(np.asarray(apart[name]), compute_uv=False)
        assert values.max() < 2 * values.min()  # nearly orthogonal, which moves of AdamW are not
    for name in ("x.every_layer.ff", "conv.every_layer.w"):
        assert 1.5e-3 < float(jnp.sqrt(jnp.square(moves[name]).mean())) < 2.5e-3  # a fifth of the rate

    decayed = step("muon", weights, jax.tree.map(jnp.zeros_like, gradients), adam_weight_decay=0.1)
    for name, move in decayed.items():
        np.testing.assert_allclose(move, -1e-3 * weights[name], rtol=1e-4, atol=1e-7)


def test_cosine_restarts_as_diffusers_does_and_in_one_cycle_never() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    scheduler: Any = get_scheduler(
        "cosine_with_restarts", optimizer, num_warmup_steps=7, num_training_steps=100, num_cycles=3
    )
    (factor,) = scheduler.lr_lambdas

    rates = list_rates(
        _ask(lr_scheduler="cosine_with_restarts", learning_rate=3e-4, lr_warmup_steps=7, lr_num_cycles=3), 100
    )

    np.testing.assert_allclose(rates, [3e-4 * factor(step) for step in range(100)], rtol=1e-6)
    assert (np.diff(rates[8:]) > 1e-4).sum() == 2
    single, cosine = (list_rates(_ask(lr_scheduler=name), 100) for name in ("cosine_with_restarts", "cosine"))
    np.testing.assert_array_equal(single, cosine)


@pytest.mark.parametrize(("steps", "warmup"), [(40, 4), (4000, 100)])
def test_a_rate_warms_up_for_a_tenth_of_the_steps_or_a_hundred_by_default(steps: int, warmup: int) -> None:
    rates = list_rates(_ask(learning_rate=1e-4), steps)
    np.testing.assert_allclose(rates[: warmup + 1], np.arange(warmup + 1) / warmup * 1e-4, rtol=1e-5)
    assert rates[warmup + 1] < rates[warmup]
    np.testing.assert_allclose(list_rates(_ask(learning_rate=1e-4, lr_scheduler="constant"), steps), 1e-4, rtol=1e-6)


def test_settings_of_a_schedule_that_would_fail_or_do_nothing_are_refused() -> None:
    asked = {"model": "m", "data": ("d",), "lora": True}
    with pytest.raises(RecipeError) as told:
        read_settings(asked | {"lr_scheduler": "polynomial", "learning_rate": 1e-7})
    assert "is where polynomial ends" in told.value.fields["learning_rate"]
    with pytest.raises(RecipeError) as told:
        read_settings(asked | {"lr_num_cycles": 3})
    assert [*told.value.fields] == ["lr_num_cycles"]
    list_rates(read_settings(asked | {"lr_scheduler": "polynomial", "learning_rate": 2e-7}), 10)
