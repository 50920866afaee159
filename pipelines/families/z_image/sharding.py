"""Z-Image's sharding: the guidance pair on `dp`, tokens on `sp`, slices of weights on `tp`.

Between attentions each device has some of the tokens, and attention trades them for heads (runtime/kernels/ulysses.py);
30 heads are filled up to 32 for eight devices. The transformer's weights, 12.3 GB, are whole on every device of `sp`;
the text encoder's are split over all axes.
"""

from typing import Any

from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pipelines.errors import MeshError
from pipelines.messages import english

ALL_AXES = ("dp", "sp", "tp")

_BLOCKS = r"^(layers|noise_refiner|context_refiner)\.\w+\."

# torch layout: linear (out, in)
TRANSFORMER_RULES = (
    (_BLOCKS + r"(attention\.to_[qkv]|feed_forward\.w[13])\.weight$", P("tp", None)),
    (_BLOCKS + r"(attention\.to_out\.0|feed_forward\.w2)\.weight$", P(None, "tp")),
    (r"", P()),
)
REPLICATED = ((r"", P()),)


def check_heads(transformer: Any, mesh: Mesh) -> None:
    """Raises MeshError if `tp` does not divide the heads or the feed-forward."""
    parts, heads = mesh.shape["tp"], transformer.config.n_heads
    if heads % parts or transformer.layers[0].feed_forward.w1.out_features % parts:
        raise MeshError(
            english(f"tp={parts} does not divide this model's {heads} attention heads and its feed-forward."),
            advice=english(f"Use a tp that divides {heads}, or sp=... instead."),
        )
