"""The average of the weights is diffusers' EMAModel, but for its first step, and it is what is used."""

import jax.numpy as jnp
import numpy as np
import optax
import torch
from diffusers.training_utils import EMAModel

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.training.engine.denoiser import begin
from pipelines.training.engine.learning import find_best
from pipelines.training.engine.optimizers import guard
from pipelines.training.engine.step import move

DECAY, STEPS = 0.8, 60


def test_an_average_follows_the_weights_by_diffusers_decay() -> None:
    """Of the first step EMAModel keeps nothing and ours a tenth, which is forgotten by the last."""
    parameter = torch.nn.Parameter(torch.zeros(4))
    theirs = EMAModel([parameter], decay=DECAY)
    optimizer = guard(optax.chain(optax.sgd(1.0)), max_grad_norm=1e6)
    state = begin({"w": jnp.zeros(4)}, optimizer, build_mesh("dp=1"), has_average=True)
    gradients = np.random.default_rng(0).normal(size=(STEPS, 4)).astype(np.float32)
    for step, gradient in enumerate(gradients):
        with torch.no_grad():
            parameter -= torch.from_numpy(gradient)
        theirs.step([parameter])
        state, _ = move(optimizer, state, {"w": jnp.asarray(gradient)}, jnp.float32(1.0), ema=DECAY)
        state = state._replace(step=state.step + 1)
        if step == 0:
            np.testing.assert_allclose(state.average["w"], 0.9 * parameter.detach().numpy(), rtol=1e-5)

    expected = theirs.shadow_params[0].detach().numpy()
    np.testing.assert_allclose(state.average["w"], expected, rtol=1e-4)
    assert not np.allclose(state.trained["w"], expected, rtol=0.05)
    np.testing.assert_array_equal(find_best(state)["w"], state.average["w"])
    np.testing.assert_array_equal(find_best(state._replace(average={}))["w"], state.trained["w"])
