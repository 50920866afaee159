"""How attentions lie on a mesh, and what is known of them before they run."""

from dataclasses import dataclass

from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import Axes, count_parts


@dataclass(frozen=True, kw_only=True)
class AttentionAxes:
    """Which mesh axes split an attention's batch, heads and tokens; None splits nothing.

    `entered` are axes whose `shard_map` the caller is in already. Without `trades_heads`, devices that split tokens
    gather keys and values instead: two collectives, not four, for short sequences whose collectives mostly wait.
    With `interprets` the kernels for TPU run on any devices, slowly. With `learns` a gradient is wanted, and only
    `rows` are split; with `sums_apart` what goes back into a layer norm is summed up apart from the product that made
    it (norms.py). The last three are a model's own: whether keys are centred, whether the kernel for TPU looks if the
    logits of a self-attention are small, and how far a token of one sees (attend_rotated alone asks for that).
    """

    mesh: Mesh
    rows: str | None = None
    heads: str | None = None
    tokens: Axes = None
    entered: frozenset[str] = frozenset()
    trades_heads: bool = True
    interprets: bool = False
    learns: bool = False
    sums_apart: bool = False
    smooths_keys: bool = False
    bounds_logits: bool = False
    window: int | None = None

    @property
    def takes_kernels(self) -> bool:
        return self.interprets or self.mesh.devices.flat[0].platform == "tpu"

    def choose_spec(self, shape_BLHD: tuple[int, ...]) -> P:
        """PartitionSpec that splits each axis the mesh divides (heads and features are one); others stay whole."""
        axes = zip(shape_BLHD, (self.rows, self.tokens, self.heads), strict=False)
        return P(*(axis if size % count_parts(self.mesh, axis) == 0 else None for size, axis in axes))
