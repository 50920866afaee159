"""A LoRA begins as peft's own does: A as wide, B zero."""

import numpy as np
import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model

from pipelines.training.engine.adapters import draw_first

RANK = 8


@pytest.mark.parametrize(
    "layer", [torch.nn.Linear(96, 160), torch.nn.Conv2d(24, 160, 3)], ids=["linear", "convolution"]
)
def test_first_values_are_as_wide_as_pefts(layer: torch.nn.Module) -> None:
    torch.manual_seed(0)
    module = torch.nn.ModuleDict({"to_q": layer})
    theirs = inject_adapter_in_model(LoraConfig(r=RANK, target_modules=["to_q"]), module)
    shapes = {name: tuple(one.shape) for name, one in theirs.named_parameters() if ".lora_" in name}

    ours = draw_first(shapes, seed=0)

    expected = {name: one.detach().numpy() for name, one in theirs.named_parameters() if name in shapes}
    for name, value in ours.items():
        bound = np.abs(expected[name]).max()
        assert np.abs(value).max() == pytest.approx(bound, rel=0.02)
        assert value.std() == pytest.approx(expected[name].std(), rel=0.05)
        assert value.any() == (".lora_A." in name)


def test_each_layer_of_a_stack_is_as_wide_as_one_alone() -> None:
    """Of a stack the first axis is the layers, and no inputs."""
    stack, alone = "blocks.every_layer.to_q.lora_A.default.weight", "blocks.0.to_q.lora_A.default.weight"
    values = draw_first({stack: (4, RANK, 96), alone: (RANK, 96)}, seed=0)
    assert values[stack].std() == pytest.approx(values[alone].std(), rel=0.1)
    assert np.abs(values[stack]).max() == pytest.approx(96**-0.5, rel=0.02)
