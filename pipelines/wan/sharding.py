"""How Wan lies on the mesh: the guidance pair on `dp`, tokens on `sp`, slices of weights on `tp`.

Between blocks the tokens (21 x 45 x 80 for 81 frames of 720p) are split over `sp`, so norms, projections and the
feed-forward work on a device's own tokens and only keys and values are gathered. Over `tp` the projections to query,
key, value and the feed-forward's first layer are split by outputs, the layers after them by inputs. The autoencoder is
replicated and splits its pictures instead (programs.py).
"""

from jax.sharding import PartitionSpec as P

from pipelines.runtime.sharding import Rules

REPLICATED = ((r"", P()),)

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


def choose_transformer_rules(config: object, tp: int) -> Rules:
    """Split over `tp` where heads and feed-forward divide; else replicated."""
    return _TRANSFORMER_RULES if _divides(tp, config, "num_attention_heads", "ffn_dim") else REPLICATED


def choose_encoder_rules(config: object, tp: int) -> Rules:
    return _ENCODER_RULES if _divides(tp, config, "num_heads", "d_ff", "d_model") else REPLICATED


def _divides(parts: int, config: object, *names: str) -> bool:
    return all(getattr(config, name) % parts == 0 for name in names)
