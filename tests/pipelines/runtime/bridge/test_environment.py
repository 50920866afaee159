"""Traced operators make the same program in every process, and keep fp32 exact."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

from pipelines.runtime.bridge import environment
from pipelines.runtime.bridge.modules import TracedModule


def test_a_program_is_the_same_whatever_seed_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first one that a process traces, with which torchax begins: it has a random key of its own."""
    module, x = TracedModule(torch.nn.Linear(2, 2)), jnp.ones((1, 2))
    weights = {"weight": jnp.ones((2, 2)), "bias": jnp.ones(2)}

    def trace(seed: int) -> str:
        torch.manual_seed(seed)
        monkeypatch.setattr(environment, "_cached_environment", None)
        steps = lambda weights, x, stop: jax.lax.fori_loop(0, stop, lambda _, x: module.call(weights, x), x)  # noqa: E731
        return jax.jit(steps).lower(weights, x, 3).as_text()

    assert trace(1) == trace(2)


def test_what_is_in_fp32_is_multiplied_in_fp32() -> None:
    """A TPU would round it to bf16; a CPU never does, so the program is looked at."""
    module = TracedModule(torch.nn.Linear(2, 2))

    def trace(dtype: Any) -> str:
        weights = {"weight": jnp.ones((2, 2), dtype), "bias": jnp.ones(2, dtype)}
        return jax.jit(module.call).lower(weights, jnp.ones((1, 2), dtype)).as_text()

    assert "HIGHEST" in trace(jnp.float32)
    assert "HIGHEST" not in trace(jnp.bfloat16)
