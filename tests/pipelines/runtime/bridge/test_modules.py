"""Torch modules run as JAX functions with torch's own results; weights stay arguments, buffers stay values."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec

from pipelines.runtime.bridge.modules import (
    NARROW_PRODUCT,
    PRODUCT,
    WIDE_PRODUCT,
    TracedModule,
    call_for_layers,
    name_products,
    parameters_on_meta,
    scan_if_long,
)
from pipelines.runtime.devices.mesh import build_mesh
from tests.pipelines.runtime.kernels.side_by_side import draw, to_jax


def test_the_inputs_of_named_submodules_lie_on_the_mesh_as_told() -> None:
    module = TracedModule(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)))
    weights = {name: jnp.zeros(shape) for name, shape in module.parameter_shapes().items()}
    halves = NamedSharding(build_mesh("sp=2"), PartitionSpec(None, "sp"))

    def count_constraints(shardings: dict[str, NamedSharding]) -> int:
        traced = jax.make_jaxpr(lambda x: module.call(weights, x, input_shardings=shardings))(jnp.zeros((2, 4)))
        return str(traced).count("sharding_constraint[")

    assert [count_constraints(names) for names in ({"1": halves}, {"0": halves, "1": halves}, {})] == [1, 2, 0]


class Table(torch.nn.Module):
    """A linear layer, a buffer a checkpoint holds, and one it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3, bias=False)
        self.register_buffer("saved", torch.ones(3))
        self.register_buffer("positions", torch.arange(3.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.saved + self.positions

    def double(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.forward(x)


@pytest.fixture
def table() -> TracedModule:
    with parameters_on_meta():
        return TracedModule(Table())


def test_modules_are_built_without_memory_for_weights_but_with_their_buffers(table: TracedModule) -> None:
    assert table.module.linear.weight.is_meta
    assert table.module.positions.tolist() == [0, 1, 2]


def test_building_on_meta_ends_with_the_block(table: TracedModule) -> None:
    assert not torch.nn.Linear(2, 2).weight.is_meta


def test_a_checkpoint_must_hold_parameters_and_saved_buffers(table: TracedModule) -> None:
    assert table.parameter_shapes() == {"linear.weight": (3, 3), "saved": (3,)}
    assert list(table.constant_buffers()) == ["positions"]


def test_weights_are_arguments_of_the_program_and_not_part_of_it(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    program = jax.jit(table.call).lower(weights, jnp.ones(3)).compile()
    np.testing.assert_array_equal(program(weights, jnp.ones(3)), [1, 2, 3])
    other = weights | {"linear.weight": 5 * jnp.eye(3), "saved": jnp.full(3, 10.0)}
    np.testing.assert_array_equal(program(other, jnp.ones(3)), [15, 16, 17])
    assert jax.make_jaxpr(table.call)(weights, jnp.ones(3)).consts == []


def test_another_method_than_forward_may_be_called(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    np.testing.assert_array_equal(table.call(weights, jnp.ones(3), method=Table.double), [2, 4, 6])


def test_the_module_is_left_as_it_was(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    table.call(weights, jnp.ones(3))
    assert table.module.linear.weight.is_meta
    assert torch.ones(1).add(1).item() == 2  # torch itself is not redirected


def test_gradients_flow_through_a_module(table: TracedModule) -> None:
    weights = {"linear.weight": jnp.eye(3), "saved": jnp.zeros(3)} | table.constant_buffers()
    found = jax.grad(lambda weights: table.call(weights, jnp.array([1.0, 2.0, 3.0])).sum())(weights)
    np.testing.assert_array_equal(found["linear.weight"], np.tile([1.0, 2.0, 3.0], (3, 1)))


class Block(torch.nn.Module):
    """Two streams that see each other, and a scale that is the same for all blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        return x + scale * torch.tanh(self.left(y)), y + scale * torch.tanh(self.right(x))


class Tower(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks: Any = torch.nn.ModuleList(Block() for _ in range(layers))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for block in self.blocks:
            x, y = block(x, y, scale=0.5)
        return x, y


def test_many_layers_run_as_one_scan_with_the_results_of_the_list() -> None:
    torch.manual_seed(0)
    tower = Tower(5)
    x, y = draw(2, 6), draw(2, 6, seed=1)
    expected = [value.detach().numpy() for value in tower(x, y)]
    own = {name: to_jax(value) for name, value in tower.state_dict().items()}
    stacked = {
        f"blocks.every_layer.{name}": jnp.stack([own[f"blocks.{index}.{name}"] for index in range(5)])
        for name in ("left.weight", "left.bias", "right.weight")
    }
    tower.blocks = scan_if_long(tower.blocks, carried=("x", "y"))
    module = TracedModule(tower)
    assert module.parameter_shapes() == {name: value.shape for name, value in stacked.items()}
    run = jax.jit(lambda weights, *inputs: module.call(weights, *inputs))
    for found, wanted in zip(run(stacked, to_jax(x), to_jax(y)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert run.lower(stacked, to_jax(x), to_jax(y)).as_text().count("tanh") == 2


def build_clip() -> tuple[Any, Any, str]:
    from transformers import CLIPTextConfig, CLIPTextModel

    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 5,
        "num_attention_heads": 2,
    }
    model: Any = CLIPTextModel(CLIPTextConfig(**sizes, vocab_size=40, bos_token_id=1, eos_token_id=2, pad_token_id=0))
    return model, model.encoder, "layers"


CAUSAL_SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 40,
}


def build_qwen() -> tuple[Any, Any, str]:
    from transformers import Qwen3Config, Qwen3Model

    model: Any = Qwen3Model(Qwen3Config(**CAUSAL_SIZES))
    return model, model, "layers"


def build_mistral() -> tuple[Any, Any, str]:
    from transformers import MistralConfig, MistralModel

    model: Any = MistralModel(MistralConfig(**CAUSAL_SIZES, sliding_window=None))
    return model, model, "layers"


def build_umt5() -> tuple[Any, Any, str]:
    from transformers import UMT5Config, UMT5EncoderModel

    model: Any = UMT5EncoderModel(UMT5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=5, num_heads=2))
    return model, model.encoder, "block"


@pytest.mark.parametrize("build", [build_clip, build_qwen, build_mistral, build_umt5])
def test_a_text_encoder_as_a_scan_gives_its_own_hidden_states(build: Callable[[], tuple[Any, Any, str]]) -> None:
    torch.manual_seed(0)
    model, owner, name = build()
    model.eval().requires_grad_(requires_grad=False)
    ids = torch.randint(3, 40, (2, 7), generator=torch.Generator().manual_seed(0))
    expected = model(ids, output_hidden_states=True)
    own = {key: to_jax(value) for key, value in model.state_dict().items()}
    setattr(owner, name, scan_if_long(getattr(owner, name)))
    module = TracedModule(model)
    prefix, stack = f"{name}.", f"{name}.every_layer."
    count = len(expected.hidden_states) - 1
    weights = module.constant_buffers() | {
        key: jnp.stack([own[key.replace(stack, f"{prefix}{index}.")] for index in range(count)])
        if stack in key
        else own[key]
        for key in module.parameter_shapes()
    }
    output, hidden_states = jax.jit(lambda weights, ids: module.call(weights, ids, method=read_layers))(
        weights, to_jax(ids.int())
    )
    np.testing.assert_allclose(output, expected.last_hidden_state, atol=1e-5)
    for found, wanted in zip(hidden_states, expected.hidden_states[1:-1], strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def read_layers(model: Any, ids: Any) -> tuple[Any, Any]:
    output, hidden_states = call_for_layers(model, ids)
    return output.last_hidden_state, hidden_states[1:-1]


def test_few_layers_stay_a_list() -> None:
    tower = Tower(2)
    assert scan_if_long(tower.blocks) is tower.blocks


def test_products_wider_or_narrower_than_what_they_were_made_of_have_names_of_their_own() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    name_products(module, (torch.nn.Linear,), besides=torch.nn.ReLU)
    traced = TracedModule(module)
    weights = {name: jnp.ones(shape) for name, shape in traced.parameter_shapes().items()}
    traced_text = str(jax.make_jaxpr(traced.call)(weights, jnp.ones((2, 4))))
    assert re.findall(r"name\[name=([^\]]*)\]", traced_text) == [WIDE_PRODUCT, PRODUCT, NARROW_PRODUCT]
