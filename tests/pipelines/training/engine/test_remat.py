"""What each `--remat` keeps of a layer for its gradient."""

import re

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.ad_checkpoint import checkpoint_name

from pipelines.runtime.bridge.modules import NARROW_PRODUCT, PRODUCT, WIDE_PRODUCT, TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.attention_gradient import KEPT, KEPT_OF_FEW, attend_with_gradient
from pipelines.runtime.kernels.low_rank import LOW_RANK
from pipelines.runtime.kernels.norms import MOMENTS
from pipelines.training.engine.step import POLICIES

OF_ALL = {KEPT, MOMENTS, LOW_RANK, NARROW_PRODUCT}
OF_NARROW = OF_ALL | {PRODUCT, KEPT_OF_FEW}


@pytest.mark.parametrize(
    ("remat", "kept"),
    [("layers", OF_NARROW | {WIDE_PRODUCT}), ("narrow", OF_NARROW), ("attention", OF_ALL), ("full", set())],
)
def test_what_is_kept_is_not_computed_again(remat: str, kept: set[str]) -> None:
    for name in OF_NARROW | {WIDE_PRODUCT}:

        def layer(x: jax.Array, name: str = name) -> jax.Array:
            return jnp.sin(checkpoint_name(jnp.floor(x) + x, name)).sum()

        gradient = jax.make_jaxpr(jax.grad(jax.checkpoint(layer, policy=POLICIES[remat])))(jnp.ones(3))
        assert str(gradient).count("floor ") == (1 if name in kept else 2), name


@pytest.mark.parametrize(("keys", "name"), [(512, KEPT_OF_FEW), (513, KEPT)])
def test_attention_to_few_keys_has_a_name_of_its_own(keys: int, name: str) -> None:
    mesh = build_mesh("dp=1", devices=jax.devices()[:1])
    query, key = (
        jax.ShapeDtypeStruct((1, 8, 256, 128), jnp.bfloat16),
        jax.ShapeDtypeStruct((1, 8, keys, 128), jnp.bfloat16),
    )

    def attend(query: jax.Array, key: jax.Array) -> jax.Array:
        return attend_with_gradient(query, key, key, scale=0.1, mesh=mesh, rows=None, interpret=True).sum()

    found = re.findall(r"name\[name=([^\]]*)\]", str(jax.make_jaxpr(jax.grad(attend))(query, key)))
    assert set(found) == {name}


@pytest.mark.parametrize("learns", [True, False])
def test_the_few_numbers_of_a_lora_have_a_name_where_a_gradient_is_wanted(*, learns: bool) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(256, 16, bias=False), torch.nn.Linear(16, 256, bias=False))
    traced = TracedModule(layers)
    weights = {name: jnp.ones(shape) for name, shape in traced.parameter_shapes().items()}
    axes = AttentionAxes(mesh=build_mesh("dp=1", devices=jax.devices()[:1]), learns=learns)
    text = str(jax.make_jaxpr(lambda x: traced.call(weights, x, attention=axes))(jnp.ones((1, 8, 256))))
    assert re.findall(r"name\[name=([^\]]*)\]", text) == [LOW_RANK] * learns
