"""A linear layer in pieces gives what the whole one gives, with a LoRA around it and without."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from peft import LoraConfig, inject_adapter_in_model

from pipelines.families.trainable import Cut
from pipelines.runtime.bridge.modules import TracedModule
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.training.engine.adapters import ADAPTER, name_in_checkpoint
from pipelines.training.engine.pieces import cut_layers, cut_weights

WIDTHS = (16, 8, 24)


class Holder(torch.nn.Module):
    """A layer in a module, as they come."""

    def __init__(self, inputs: int, outputs: int, *, has_bias: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(inputs, outputs, bias=has_bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)


@pytest.mark.parametrize("has_lora", [True, False])
@pytest.mark.parametrize("cut", [Cut(outputs=WIDTHS), Cut(inputs=WIDTHS)], ids=["outputs", "inputs"])
def test_a_layer_in_pieces_gives_what_the_whole_one_gives(cut: Cut, *, has_lora: bool) -> None:
    """The whole one is torch's, with a bias, and a LoRA of peft's that is scaled."""
    torch.manual_seed(0)
    inputs, outputs = (10, sum(WIDTHS)) if cut.outputs else (sum(WIDTHS), 10)
    module: Any = Holder(inputs, outputs, has_bias=True)
    if has_lora:
        config = LoraConfig(r=3, lora_alpha=6, target_modules=["layer"], init_lora_weights=False)
        module = inject_adapter_in_model(config, module, adapter_name=ADAPTER)
    values = {name_in_checkpoint(name): jnp.asarray(value.numpy()) for name, value in module.state_dict().items()}
    x = torch.randn(2, 5, inputs)
    expected = module(x).detach().numpy()

    cut_layers(module, {"layer": cut}, adapter=ADAPTER)
    traced = TracedModule(module)
    place = NamedSharding(build_mesh("dp=1"), P())
    wanted = {
        name: jax.ShapeDtypeStruct(shape, np.float32, sharding=place)
        for name, shape in traced.parameter_shapes().items()
    }
    weights = cut_weights(values, wanted)

    assert values == {}
    assert len([name for name in weights if name.endswith("weight") and "lora_" not in name]) == len(WIDTHS)
    np.testing.assert_allclose(jax.jit(traced.call)(weights, x.numpy()), expected, atol=1e-5)


def test_a_weight_is_taken_apart_onto_the_mesh_along_the_axis_that_is_cut() -> None:
    """A stack of two layers is split over eight devices before and after, along other axes."""
    mesh = build_mesh("dp=8")
    whole = np.arange(2 * 48 * 16, dtype=np.float32).reshape(2, 48, 16)
    placed = jax.device_put(whole, NamedSharding(mesh, P(None, "dp")))
    wanted = {
        f"to_out.pieces.{place}.weight": jax.ShapeDtypeStruct(
            (2, width, 16), np.float32, sharding=NamedSharding(mesh, P(None, None, "dp"))
        )
        for place, width in enumerate(WIDTHS)
    }
    parts = cut_weights({"to_out.weight": placed}, wanted)
    assert {name: part.sharding for name, part in parts.items()} == {name: one.sharding for name, one in wanted.items()}
    np.testing.assert_array_equal(np.concatenate([parts[name] for name in wanted], 1), whole)
