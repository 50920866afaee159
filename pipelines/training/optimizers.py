"""The optimizers and learning rate schedules that a training may name.

Optimizers are optax's, built for a learning rate of 1: the step multiplies their moves by the rate of its number, which
is an argument of the compiled program, so another rate or schedule compiles nothing. Schedules are diffusers' own,
asked for every step beforehand.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import optax
import torch
from diffusers.optimization import get_scheduler
from optax.contrib import MuonDimensionNumbers, muon, prodigy

from pipelines.runtime.devices.sharding import STACK
from pipelines.training.settings import TrainingSettings

# A count that is never reached: optax would then apply moves that are not finite. loop.py stops long before.
_NEVER = 2**30


def build_optimizer(settings: TrainingSettings, shapes: Mapping[str, tuple[int, ...]]) -> optax.GradientTransformation:
    """Builds the optimizer: gradients are clipped first, and a step whose gradients are not finite changes nothing."""
    return optax.apply_if_finite(
        optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), _choose(settings, shapes)),
        max_consecutive_errors=_NEVER,
    )


def _choose(settings: TrainingSettings, shapes: Mapping[str, tuple[int, ...]]) -> Any:
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
        case "muon":
            matrices: Any = {
                name: MuonDimensionNumbers(reduction_axis=tuple(range(1, len(shape))), output_axis=0)
                if len(shape) >= 2 and STACK not in name
                else None
                for name, shape in shapes.items()
            }
            return muon(
                1.0,
                muon_weight_dimension_numbers=matrices,
                adam_b1=settings.adam_beta1,
                adam_b2=settings.adam_beta2,
                adam_weight_decay=settings.adam_weight_decay,
            )


def list_rates(settings: TrainingSettings, steps: int) -> np.ndarray:
    """Returns the learning rate of each of `steps` steps, fp32, as diffusers' `get_scheduler` of that name gives it."""
    warmup = settings.lr_warmup_steps
    if warmup is None:
        warmup = 0 if settings.lr_scheduler == "constant" else min(100, steps // 10)
    unused = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=settings.rate)
    scheduler: Any = get_scheduler(settings.lr_scheduler, unused, num_warmup_steps=warmup, num_training_steps=steps)
    (factor,) = scheduler.lr_lambdas
    return np.asarray([settings.rate * factor(step) for step in range(steps)], np.float32)
