"""Pads Wan's tokens so that they fill whole tiles on every device.

81 frames of 720p are 75 600 tokens, 18 900 for each of four devices, which is half a tile too many: concatenating the
four devices' tokens would copy all of them (runtime/kernels/ulysses.py). So padding is appended before the blocks and
cut off after them. Attention ignores it (runtime/kernels/attention.py: the rotary tables say how many tokens there
are), and nothing else in a block mixes tokens.
"""

from typing import Any

import torch
from jax.sharding import Mesh
from torch.nn import functional

from pipelines.runtime.bridge.environment import call_jax, find_attention_axes
from pipelines.runtime.bridge.modules import ScannedLayers
from pipelines.runtime.kernels.ulysses import TOKENS


class EvenTokens(ScannedLayers):
    """A transformer's blocks as one scan over tokens that are padded to a multiple of `TOKENS` per device."""

    def __init__(self, layers: torch.nn.ModuleList, *, mesh: Mesh) -> None:
        super().__init__(layers, carried=("hidden_states",))
        self._mesh = mesh

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        temb: torch.Tensor,
        rotary_emb: Any,
    ) -> torch.Tensor:
        """Runs the blocks; `temb` has three axes, or four if every token has its own timestep."""
        length, axes = hidden_states.shape[1], find_attention_axes()
        mesh = self._mesh if axes is None or axes.tokens is None else axes.mesh
        learns = axes is not None and axes.learns  # then tokens are on no two devices
        missing = 0 if learns else -length % (TOKENS * mesh.shape["sp"])
        if missing:
            hidden_states = functional.pad(hidden_states, (0, 0, 0, missing))
            if temb.ndim == 4:
                temb = functional.pad(temb, (0, 0, 0, 0, 0, missing))
        out = super().forward(hidden_states, encoder_hidden_states, temb, rotary_emb)
        if not missing:
            return out
        return call_jax(lambda x: x[:, :length], out)  # torchax's own slice is a view, which has no type_as
