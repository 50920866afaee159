"""Linear layers in pieces, where a module makes several things by one product, or one of several.

A single-stream layer of FLUX.2 makes queries, keys, values and both halves of its feed-forward by one product, and
takes it apart. As one, its gradient is put together of zeros and parts, and what is kept for it is copied out of the
scan as a whole: a sixth of a LoRA's step (plan/TRIED.md). In pieces the same numbers come, but for the rounding of
sums: each part has a product of its own, and nothing is put together. Only layers that do not learn are cut, when they
are loaded; the LoRA around one stays whole, as files have it.
"""

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.sharding import Mesh, NamedSharding
from peft.tuners.lora import LoraLayer
from torch.nn.functional import linear

from pipelines.families.trainable import Cut
from pipelines.runtime.bridge.modules import name_product
from pipelines.training.engine.adapters import name_in_checkpoint


def pays(mesh: Mesh) -> bool:
    """Tells whether layers are cut on these devices: it was only ever counted for TPUs."""
    return mesh.devices.flat[0].platform == "tpu"


class CutLayer(torch.nn.Module):
    """Stands for a linear layer, or for peft's around one: inputs (..., I) -> outputs (..., O), each sum in its dtype.

    `pieces` are linear layers of its weight's rows, or of its columns; `lora_A` and `lora_B` are peft's own.
    """

    def __init__(self, layer: Any, cut: Cut, *, adapter: str) -> None:
        super().__init__()
        own: Any = layer.base_layer if isinstance(layer, LoraLayer) else layer
        assert sum(cut.outputs or cut.inputs) == (own.out_features if cut.outputs else own.in_features)
        has_bias = own.bias is not None
        where: Any = {"device": own.weight.device, "dtype": own.weight.dtype}
        self.pieces = torch.nn.ModuleList(
            [torch.nn.Linear(own.in_features, width, bias=has_bias, **where) for width in cut.outputs]
            or [
                torch.nn.Linear(width, own.out_features, bias=has_bias and place == 0, **where)
                for place, width in enumerate(cut.inputs)
            ]
        )
        self._cut = cut
        self._adapter = adapter
        self._has_lora = isinstance(layer, LoraLayer)
        if self._has_lora:
            self.lora_A, self.lora_B, self.scaling = layer.lora_A, layer.lora_B, layer.scaling

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._make_parts(inputs) if self._cut.outputs else self._add_parts(inputs)

    def _make_parts(self, inputs: torch.Tensor) -> torch.Tensor:
        parts = [piece(inputs) for piece in self.pieces]
        if self._has_lora:
            down, up, scale = self._find_lora()
            narrow = linear(inputs, down)
            ups = torch.split(up, list(self._cut.outputs))
            parts = [part + linear(narrow, own) * scale for part, own in zip(parts, ups, strict=True)]
        named = [name_product(part, inputs) for part in parts]
        return torch.cat(named, -1)  # taken apart again at once, so XLA never makes it

    def _add_parts(self, inputs: torch.Tensor) -> torch.Tensor:
        widths = list(self._cut.inputs)
        parts = torch.split(inputs, widths, -1)
        total = _add([piece(part) for piece, part in zip(self.pieces, parts, strict=True)])
        if self._has_lora:
            down, up, scale = self._find_lora()
            downs = torch.split(down, widths, -1)
            narrow = _add([linear(part, own) for part, own in zip(parts, downs, strict=True)])
            total = total + linear(narrow, up) * scale
        return name_product(total, inputs)

    def _find_lora(self) -> tuple[torch.Tensor, torch.Tensor, float]:
        down: Any = self.lora_A[self._adapter]
        up: Any = self.lora_B[self._adapter]
        return down.weight, up.weight, self.scaling[self._adapter]


def _add(parts: list[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(operator.add, parts)


def cut_layers(module: torch.nn.Module, cuts: Mapping[str, Cut], *, adapter: str) -> None:
    """Replaces these layers, by their names before any LoRA; call it before layers become a scan."""
    for name, cut in cuts.items():
        parent, _, own = name.rpartition(".")
        setattr(module.get_submodule(parent), own, CutLayer(module.get_submodule(name), cut, adapter=adapter))


def cut_weights(wholes: dict[str, jax.Array], wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    """Returns weights by the names of `wanted`, of those in `wholes` by the checkpoint's; empties it meanwhile."""
    parts: dict[str, list[str]] = {}
    for name in wanted:
        parts.setdefault(name_in_checkpoint(name), []).append(name)
    found: dict[str, jax.Array] = {}
    for whole, names in parts.items():
        value = wholes.pop(whole)
        own = [value] if len(names) == 1 else _take_apart(value, [wanted[name] for name in names])
        found |= zip(names, own, strict=True)
    return found


def _take_apart(whole: jax.Array, wanted: Sequence[jax.ShapeDtypeStruct]) -> list[jax.Array]:
    """Returns the pieces of a weight or bias that have these shapes and shardings, in order."""
    shapes = [one.shape for one in wanted]
    axis = next((axis for axis, side in enumerate(whole.shape) if shapes[0][axis] != side), 0)
    assert sum(shape[axis] for shape in shapes) == whole.shape[axis]
    ends = list(itertools.accumulate(shape[axis] for shape in shapes))[:-1]
    shardings: list[NamedSharding] = [one.sharding for one in wanted]
    return jax.jit(lambda whole: jnp.split(whole, ends, axis), out_shardings=shardings)(whole)
