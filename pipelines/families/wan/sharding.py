"""Wan's sharding: the guidance pair on `dp`, tokens on `sp`, slices of weights on `tp`.

Between blocks the tokens (21 x 45 x 80 for 81 frames of 720p) are split over `sp`, so norms, projections and the
feed-forward work on a device's own tokens; attention all-gathers keys and values, or exchanges tokens for heads by
all-to-all. Over `tp` the projections to query, key, value and the feed-forward's first layer are split by outputs, the
layers after them by inputs. The autoencoder is replicated and splits its pictures instead (programs.py).

Layers that run as a scan are fully sharded at rest: every matrix is split over all axes, so that 8 chips store 4 GB
each of the 14B models' 28 GB. A layer is all-gathered just before it runs (bridge/modules.py).
"""

import re
from collections.abc import Iterator
from typing import Any

from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.sharding import STACK, Rules

REPLICATED = ((r"", P()),)
_FREE = ("dp", "sp")
_DOT = r"\."

# torch layout: linear (out, in)
_TRANSFORMER_RULES = (
    (r"\.(to_q|to_k|to_v|add_k_proj|add_v_proj)\.weight$", P("tp", None)),
    (r"\.(to_q|to_k|to_v|add_k_proj|add_v_proj)\.bias$", P("tp")),
    (r"\.norm_(q|k|added_k)\.weight$", P("tp")),
    (r"\.to_out\.0\.weight$", P(None, "tp")),
    (r"\.ffn\.net\.0\.proj\.weight$", P("tp", None)),
    (r"\.ffn\.net\.0\.proj\.bias$", P("tp")),
    (r"\.ffn\.net\.2\.weight$", P(None, "tp")),
    (r"", P()),
)

_ENCODER_RULES = (
    (r"\.SelfAttention\.(q|k|v)\.weight$", P("tp", None)),
    (r"\.SelfAttention\.o\.weight$", P(None, "tp")),
    (r"\.relative_attention_bias\.weight$", P(None, "tp")),
    (r"\.DenseReluDense\.(wi|wi_0|wi_1)\.weight$", P("tp", None)),
    (r"\.DenseReluDense\.wo\.weight$", P(None, "tp")),
    (r"^shared\.weight$", P(None, "tp")),
    (r"", P()),
)


def choose_transformer_rules(config: Any, tp: int) -> Rules:
    """Returns the sharding of running layers: over `tp` if it divides heads and feed-forward, else replicated."""
    return _TRANSFORMER_RULES if _divides(tp, config.num_attention_heads, config.ffn_dim) else REPLICATED


def choose_encoder_rules(config: Any, tp: int) -> Rules:
    """Returns the sharding of the text encoder's running layers."""
    return _ENCODER_RULES if _divides(tp, config.num_heads, config.d_ff, config.d_model) else REPLICATED


def keep_transformer(config: Any, mesh: Mesh) -> Rules:
    """Returns the sharding at rest: layers' matrices over all axes if sizes divide, everything else as it runs."""
    rules = choose_transformer_rules(config, mesh.shape["tp"])
    width = config.num_attention_heads * config.attention_head_dim
    return (*_spread(rules), *rules) if _divides(mesh.size, width, config.ffn_dim) else rules


def keep_encoder(config: Any, mesh: Mesh) -> Rules:
    """Returns the text encoder's sharding at rest; its embedding table, a sixth of its size, is split too."""
    rules = choose_encoder_rules(config, mesh.shape["tp"])
    sizes = (config.num_heads * config.d_kv, config.d_model, config.d_ff, config.relative_attention_num_buckets)
    if rules is REPLICATED or not _divides(mesh.size, *sizes):
        return rules
    return (*_spread(rules), (r"^shared\.weight$", P(None, ("tp", *_FREE))), *rules)


def _spread(rules: Rules) -> Iterator[tuple[str, P]]:
    """Yields the rules for stacked layers' matrices, which split their first axis over the free mesh axes as well."""
    for pattern, spec in rules:
        if pattern.startswith(r"\.") and len(spec) == 2:
            first, second = spec
            yield (
                rf"{re.escape(STACK)}(.*\.)?{pattern.removeprefix(_DOT)}",
                P((first, *_FREE) if first else _FREE, second),
            )


def _divides(parts: int, *sizes: int) -> bool:
    return all(size % parts == 0 for size in sizes)
