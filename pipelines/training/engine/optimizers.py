"""The optimizers and learning rate schedules that a training may name.

Optimizers are optax's, built for a learning rate of 1: their moves are multiplied by the rate of the step, an argument
of `update` and of the compiled program, so another rate or schedule compiles nothing. Schedules are diffusers' own,
asked for every step beforehand.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from diffusers.optimization import get_scheduler
from optax.contrib import (
    MuonDimensionNumbers,
    ScheduleFreeState,
    muon,
    prodigy,
    schedule_free,
    schedule_free_eval_params,
)

from pipelines.runtime.devices.sharding import STACK
from pipelines.training.settings import TrainingSettings


def build_optimizer(
    settings: TrainingSettings, shapes: Mapping[str, tuple[int, ...]]
) -> optax.GradientTransformationExtraArgs:
    """Builds the optimizer, whose `update` takes the step's `rate` as a further argument.

    Gradients are clipped first, and a step whose gradients are not finite changes nothing.
    """
    return guard(_choose(settings, shapes), max_grad_norm=settings.max_grad_norm)


def guard(optimizer: Any, *, max_grad_norm: float) -> optax.GradientTransformationExtraArgs:
    """Clips gradients first, and lets a step whose gradients are not finite change nothing.

    It is optax's `apply_if_finite`, with its state, but chooses number by number where that has a condition, which
    keeps the compiler from making clipping, moments and weights one pass: of 320 million weights in fp32 AdamW is
    estimated at 14.9 ms on v6e with it, and at 7.0 so. Gradients whose squares add up to more than fp32 holds count as
    not finite.
    """
    guarded = optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.with_extra_args_support(optimizer))

    def start(params: Any) -> optax.ApplyIfFiniteState:
        count = jnp.zeros([], jnp.int32)
        return optax.ApplyIfFiniteState(count, jnp.asarray(True), count, guarded.init(params))  # noqa: FBT003

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> Any:
        is_finite = jnp.isfinite(optax.tree.norm(updates))
        moves, inner = guarded.update(updates, state.inner_state, params, **extra_args)
        choose = functools.partial(jnp.where, is_finite)
        return jax.tree.map(lambda move: choose(move, jnp.zeros_like(move)), moves), optax.ApplyIfFiniteState(
            notfinite_count=choose(0, optax.safe_increment(state.notfinite_count)),
            last_finite=is_finite,
            total_notfinite=choose(state.total_notfinite, optax.safe_increment(state.total_notfinite)),
            inner_state=jax.tree.map(choose, inner, state.inner_state),
        )

    return optax.GradientTransformationExtraArgs(start, update)


def build_muon(
    shapes: Mapping[str, tuple[int, ...]], *, is_matrix: Callable[[str], bool], adam_share: float = 1.0, **options: Any
) -> optax.GradientTransformation:
    """Builds Muon for weights of torch's layout (outputs first), times the step's `rate` as all optimizers here.

    Weights that are no matrix, or not by `is_matrix` of their name, move by AdamW, at `adam_share` of the rate. In a
    stack each layer's weight is a matrix of its own. `options` are those of optax's `muon`.
    """
    matrices = {name: _find_matrix(name, shape) if is_matrix(name) else None for name, shape in shapes.items()}
    by_name: Any = matrices
    return optax.chain(
        muon(1.0, muon_weight_dimension_numbers=by_name, adam_learning_rate=adam_share, **options), _multiply_by_rate()
    )


def _find_matrix(name: str, shape: tuple[int, ...]) -> MuonDimensionNumbers | None:
    """Returns which axes of a weight are a matrix's outputs and inputs; None if it is none."""
    output = 1 if STACK in name else 0
    inputs = tuple(range(output + 1, len(shape)))
    return MuonDimensionNumbers(reduction_axis=inputs, output_axis=output) if inputs else None


_LIKE_ADAM = 0.2
"""How far a matrix moves, root mean square, at a rate of 1: as far as by AdamW, so one rate fits both (Liu et al. 2025,
arXiv:2502.16982)."""


def find_result(trained: Mapping[str, Any], optimizer: Any) -> Mapping[str, Any]:
    """Returns the weights to use: those that were trained, or what a schedule-free optimizer averaged of them."""
    is_average = lambda leaf: isinstance(leaf, ScheduleFreeState)  # noqa: E731
    for leaf in jax.tree.leaves(optimizer, is_leaf=is_average):
        if is_average(leaf):
            return schedule_free_eval_params(leaf, trained)
    return trained


def _multiply_by_rate() -> optax.GradientTransformationExtraArgs:
    """Multiplies moves by the step's `rate`."""

    def start(params: Any) -> Any:  # noqa: ARG001
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> Any:  # noqa: ARG001 - optax gives them
        return jax.tree.map(lambda move: extra_args["rate"] * move, updates), state

    return optax.GradientTransformationExtraArgs(start, update)


def _choose(settings: TrainingSettings, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    if settings.optimizer == "schedule_free":
        return _build_schedule_free(settings)
    if settings.optimizer == "muon":
        return build_muon(
            shapes, is_matrix=lambda _: True, adam_b1=settings.adam_beta1, adam_b2=settings.adam_beta2,
            adam_weight_decay=settings.adam_weight_decay, weight_decay=settings.adam_weight_decay,
            consistent_rms=_LIKE_ADAM,
        )  # fmt: skip
    return optax.chain(_choose_plain(settings), _multiply_by_rate())


def _build_schedule_free(settings: TrainingSettings) -> Any:
    """Builds AdamW without momentum, and an average of its steps in its place (Defazio et al. 2024).

    All steps count alike in the average, those of a warm-up too, since the rate is not known here.
    """
    base = optax.chain(
        optax.scale_by_rms(
            decay=settings.adam_beta2, eps=settings.adam_epsilon, eps_in_sqrt=False, bias_correction=True
        ),
        optax.add_decayed_weights(settings.adam_weight_decay),
        optax.scale(-1.0),
        _multiply_by_rate(),
    )
    return schedule_free(base, learning_rate=1.0, b1=settings.adam_beta1)


def _choose_plain(settings: TrainingSettings) -> Any:
    adam: dict[str, Any] = {
        "b1": settings.adam_beta1,
        "b2": settings.adam_beta2,
        "weight_decay": settings.adam_weight_decay,
    }
    match settings.optimizer:
        case "adamw":
            return optax.adamw(1.0, eps=settings.adam_epsilon, **adam)
        case "adafactor":
            return optax.adafactor(
                1.0, multiply_by_parameter_scale=False, weight_decay_rate=settings.adam_weight_decay or None
            )
        case "lion":
            return optax.lion(1.0, **adam)
        case "prodigy":
            return prodigy(
                1.0,
                betas=(settings.adam_beta1, settings.adam_beta2),
                eps=settings.adam_epsilon,
                weight_decay=settings.adam_weight_decay,
            )
        case "muon" | "schedule_free":
            raise AssertionError("built by itself")


def list_rates(settings: TrainingSettings, steps: int) -> np.ndarray:
    """Returns the learning rate of each of `steps` steps, fp32, as diffusers' `get_scheduler` of that name gives it."""
    warmup = settings.lr_warmup_steps
    if warmup is None:
        warmup = 0 if settings.schedule == "constant" else min(100, steps // 10)
    unused = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=settings.rate)
    scheduler: Any = get_scheduler(
        settings.schedule,
        unused,
        num_warmup_steps=warmup,
        num_training_steps=steps,
        num_cycles=settings.lr_num_cycles,
    )
    (factor,) = scheduler.lr_lambdas
    return np.asarray([settings.rate * factor(step) for step in range(steps)], np.float32)
