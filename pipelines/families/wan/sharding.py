"""How Wan lies on the mesh: the guidance pair on `dp`, tokens on `sp`, slices of weights on `tp`.

Between blocks the tokens (21 x 45 x 80 for 81 frames of 720p) are split over `sp`, so norms, projections and the
feed-forward work on a device's own tokens; attention gathers keys and values, or trades tokens for heads. Over `tp`
the projections to query, key, value and the feed-forward's first layer are split by outputs, the layers after them by
inputs. The autoencoder is replicated and splits its pictures instead (programs.py).

What a device keeps of layers that run as a scan is less than what it runs: an equal part of every matrix, over all
axes, so that of the 14B models' 28 GB 8 chips keep 4 each. A layer is gathered as its turn comes (bridge/modules.py).
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
    """While it runs: split over `tp` where heads and feed-forward divide; else replicated."""
    return _TRANSFORMER_RULES if _divides(tp, config.num_attention_heads, config.ffn_dim) else REPLICATED


def choose_encoder_rules(config: Any, tp: int) -> Rules:
    """The same for the text encoder."""
    return _ENCODER_RULES if _divides(tp, config.num_heads, config.d_ff, config.d_model) else REPLICATED


def keep_transformer(config: Any, mesh: Mesh) -> Rules:
    """What a device keeps: the layers' matrices over every axis where sizes divide, the rest as it runs."""
    rules = choose_transformer_rules(config, mesh.shape["tp"])
    width = config.num_attention_heads * config.attention_head_dim
    return (*_spread(rules), *rules) if _divides(mesh.size, width, config.ffn_dim) else rules


def keep_encoder(config: Any, mesh: Mesh) -> Rules:
    """The same for the text encoder, whose table of embeddings is a sixth of it."""
    rules = choose_encoder_rules(config, mesh.shape["tp"])
    sizes = (config.num_heads * config.d_kv, config.d_model, config.d_ff, config.relative_attention_num_buckets)
    if rules is REPLICATED or not _divides(mesh.size, *sizes):
        return rules
    return (*_spread(rules), (r"^shared\.weight$", P(None, ("tp", *_FREE))), *rules)


def _spread(rules: Rules) -> Iterator[tuple[str, P]]:
    """The rules of the layers' matrices, their first axis also over those that carry no slices; for stacks alone."""
    for pattern, spec in rules:
        if pattern.startswith(r"\.") and len(spec) == 2:
            first, second = spec
            yield (
                rf"{re.escape(STACK)}(.*\.)?{pattern.removeprefix(_DOT)}",
                P((first, *_FREE) if first else _FREE, second),
            )


def _divides(parts: int, *sizes: int) -> bool:
    return all(size % parts == 0 for size in sizes)
