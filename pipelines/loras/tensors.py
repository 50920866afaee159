"""Splits the names of a LoRA file's tensors into the layer that they change and the part of the adapter that they are.

Every trainer spells both in its own way. The layer keeps its spelling, which only a family can read (its loras.py);
parts get one name each, that of `PARTS`. Importable without jax and torch, so that headers are understood everywhere.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_ADAPTER = r"(?:\.(?P<adapter>[^.]+))?"  # peft saves each adapter's tensors under its name, `default` unless chosen

# What a name may end in -> the part; a group `part` names it itself. First those of pairs (out, rank) x (rank, in).
PARTS = tuple(
    (re.compile(rf"(?P<module>.+?){ending}"), part)
    for ending, part in (
        (rf"\.lora_(?:down|A){_ADAPTER}\.weight", "down"),
        (rf"\.lora_(?:up|B){_ADAPTER}\.weight", "up"),
        (rf"\.lora_mid{_ADAPTER}\.weight", "mid"),
        (rf"\.lora_(?:up|B){_ADAPTER}\.bias", "up_bias"),
        (r"(?:\.lora|\.lora_linear_layer|(?P<old>_lora))\.down\.weight", "down"),
        (r"(?:\.lora|\.lora_linear_layer|(?P<old>_lora))\.up\.weight", "up"),
        (r"\.alpha", "alpha"),
        (r"\.(?P<part>dora_scale)", ""),
        (rf"\.lora_magnitude_vector{_ADAPTER}(?:\.weight)?", "magnitude"),
        (rf"\.(?P<part>hada_(?:w[12]_[ab]|t[12])){_ADAPTER}", ""),
        (rf"\.(?P<part>lokr_(?:w[12](?:_[ab])?|t2)){_ADAPTER}", ""),
        (r"\.(?P<part>diff|diff_b|diff_m|w_norm|b_norm)", ""),
    )
)
ALONE = frozenset(("diff", "diff_b", "diff_m", "w_norm", "b_norm"))  # parts that are a whole update

# Adapters that are not applied, by what only their tensors are called.
OTHER_KINDS = (("oft_", "OFT"), ("boft_", "BOFT"), ("glora_", "GLoRA"), (".a1.weight", "GLoRA"), (".on_input", "IA3"))

EMBEDDINGS = ("bundle_emb.", "emb_params")  # textual inversion, which some trainers put beside the pairs
# What the tensors of a file are called that is nothing but an embedding, one for each text encoder.
EMBEDDING_NAMES = frozenset(("emb_params", "clip_l", "clip_g", "text_encoders_0", "text_encoders_1"))

_OF_TEXT = re.compile(r"(base_model\.model\.)?(lora_te\d?_|text_encoder|te\d?\.)")


class Split(NamedTuple):
    """The layer that a tensor changes, as the file spells it, the part of the adapter, and peft's adapter name."""

    module: str
    part: str
    adapter: str


def split_name(name: str) -> Split | None:
    """Splits a tensor's name; returns None for one that is no part of an adapter."""
    for pattern, part in PARTS:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        groups = match.groupdict()
        module = groups["module"]
        if groups.get("old"):  # diffusers' attention processors: `attn1.processor.to_out_lora.up.weight`
            module = module.replace(".processor.", ".")
            module += ".0" if module.endswith(".to_out") else ""
        return Split(module, groups.get("part") or part, groups.get("adapter") or "")
    return None


def is_of_text(layer: str) -> bool:
    """Tells whether a layer, as a file spells it, is one of a text encoder."""
    return _OF_TEXT.match(layer) is not None


def name_kind(parts: set[str]) -> str:
    """Returns what people call an adapter of these parts."""
    if parts & {"magnitude", "dora_scale"}:
        return "DoRA"
    if any(part.startswith("hada_") for part in parts):
        return "LoHa"
    return "LoKr" if any(part.startswith("lokr_") for part in parts) else "LoRA"


def measure(parts: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """Returns rows and columns of the layer that parts of these shapes change; 0 for what they do not tell.

    Of a convolution, columns are channels; a kernel that is flattened into them counts, too.
    """
    rows = (
        _first(parts, "up", axis=0)
        or _first(parts, "hada_w1_a", axis=0)
        or _first(parts, "lokr_w1", "lokr_w1_a", axis=0) * _first(parts, "lokr_w2", "lokr_w2_a", axis=0)
    )
    columns = (
        _first(parts, "down", axis=1)
        or _first(parts, "hada_w1_b", axis=1)
        or _first(parts, "lokr_w1", "lokr_w1_b", axis=1) * _first(parts, "lokr_w2", "lokr_w2_b", axis=1)
    )
    return rows, columns


def _first(parts: Mapping[str, tuple[int, ...]], *names: str, axis: int) -> int:
    shape = next((parts[name] for name in names if name in parts), ())
    return shape[axis] if len(shape) > axis else 0
