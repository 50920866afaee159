"""FLUX.2's sharding: heads and gates on `tp`, pictures and guidance pairs on `dp`, rows of a picture on `sp`.

The transformer runs inside `shard_map` over `tp`: each device calls the unmodified module with its slice of the
weights, as if it had fewer heads and narrower gates, and the output of a branch's last projection is summed over the
devices. For that, the fused projections are permuted at load (runtime/weights/permuted.py). Between the branches each
device has some of the tokens, if their number divides and rows are not split (tokens.py). `dp` and `sp` are left to
the compiler, and so is the text encoder, whose projections are not fused.
"""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pipelines.errors import MeshError
from pipelines.families.flux2.parts import COMPONENTS, PATCH
from pipelines.families.flux2.tokens import gather_for_branches, split_tokens, sum_own
from pipelines.messages import english
from pipelines.models.catalog import Model
from pipelines.models.fingerprints import find_configs
from pipelines.runtime.bridge.modules import Carry, RunStack, TracedModule, scan_if_long
from pipelines.runtime.devices.sharding import apply_rules
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.sampling.reuse import Reuse
from pipelines.runtime.weights.components import read_json, told_as_incomplete
from pipelines.runtime.weights.permuted import PermutedTensor
from pipelines.runtime.weights.stored import WeightSource

log = logging.getLogger(__name__)

# The first projections of a block's branches: each device computes its own heads and gates.
_FIRST = (
    r"^(transformer_blocks\.\w+\.(attn\.(to_[qkv]|add_[qkv]_proj)|ff(_context)?\.linear_in)"
    r"|single_transformer_blocks\.\w+\.attn\.to_qkv_mlp_proj)"
)
# The last projections: their inputs are split, so each device has only a partial sum.
_LAST = (
    r"^(transformer_blocks\.\w+\.(attn\.(to_out\.0|to_add_out)|ff(_context)?\.linear_out)"
    r"|single_transformer_blocks\.\w+\.attn\.to_out)"
)

# Shift, scale and gate of all features, from one vector: each device computes a part, then all-gathers the rest.
_MODULATION = r"^(double_stream_modulation_(img|txt)|single_stream_modulation|norm_out)\.linear"

# torch layout: linear (out, in)
TRANSFORMER_RULES = (
    (_FIRST + r"\.weight$", P("tp", None)),
    (_LAST + r"\.weight$", P(None, "tp")),
    (_MODULATION + r"\.weight$", P("tp", None)),
    (r"", P()),
)
REPLICATED = ((r"", P()),)
_STREAMS = "encoder_hidden_states", "hidden_states"


def choose_sizes(model: Model, device_count: int) -> dict[str, int]:
    """Chooses the mesh that uses the most devices: `tp` as far as it divides the heads, `sp` over the picture's rows.

    The hub's checkpoints have 24, 32 and 48 heads and fit on no single chip once their text encoder is counted.
    24 heads on 16 devices give tp=8, sp=2; on 5 devices tp=4, as a fifth device would only repeat the others' work.
    """
    folder = find_configs(model)
    with told_as_incomplete(folder, title="FLUX.2", components=COMPONENTS):
        heads = read_json(folder / "transformer" / "config.json")["num_attention_heads"]
        token = 2 ** (len(read_json(folder / "vae" / "config.json")["block_out_channels"]) - 1) * PATCH
    rows = model.default_shape.height // token
    splits = [
        (tp, sp)
        for tp in range(1, device_count + 1)
        for sp in range(1, device_count // tp + 1)
        if heads % tp == 0 and rows % sp == 0
    ]
    tp, sp = max(splits, key=lambda split: (math.prod(split), split))
    if tp * sp < device_count:
        log.warning(
            "%s runs on %d of %d devices: more divide neither its %d heads nor %s's %d rows of tokens",
            *(model.id, tp * sp, device_count, heads, model.default_shape, rows),
        )
    return {"tp": tp, "sp": sp}


def check_heads(transformer: Any, mesh: Mesh) -> None:
    """Raises MeshError if `tp` does not divide the heads or the gates."""
    parts, heads = mesh.shape["tp"], transformer.config.num_attention_heads
    if heads % parts or _mlp_width(transformer.config) % parts:
        raise MeshError(
            english(f"tp={parts} does not divide this model's {heads} attention heads."),
            advice=english(f"Use a tp that divides {heads}, or sp=... instead."),
        )


def sum_over_devices(transformer: TracedModule, mesh: Mesh) -> None:
    """Adds the collectives that sliced weights need; from then on the module runs only in `call_transformer`."""
    if mesh.shape["tp"] == 1:  # XLA refuses a psum over one device while other axes are automatic
        return
    transformer.call_after(_LAST + "$", sum_own)
    transformer.call_after(
        _MODULATION + "$", lambda part: jax.lax.all_gather(part, "tp", axis=part.ndim - 1, tiled=True)
    )
    gather_for_branches(transformer)


def scan_layers(transformer: Any) -> None:
    """Runs long lists of blocks as scans: for dev's 56 this saves minutes of compilation and hundreds of MB of code."""
    transformer.transformer_blocks = scan_if_long(
        transformer.transformer_blocks, carried=("encoder_hidden_states", "hidden_states")
    )
    transformer.single_transformer_blocks = scan_if_long(transformer.single_transformer_blocks)


def deal_out(transformer: Any, mesh: Mesh) -> Callable[[Mapping[str, WeightSource]], dict[str, WeightSource]]:
    """Returns how to read the weights so that each device's part of the fused projections is contiguous."""
    attention, gates = _inner_width(transformer.config), _mlp_width(transformer.config)
    packed = {
        "attn.to_qkv_mlp_proj.weight": (0, (attention, attention, attention, gates, gates)),
        "ff.linear_in.weight": (0, (gates, gates)),
        "ff_context.linear_in.weight": (0, (gates, gates)),
    }

    def find_blocks(name: str) -> tuple[int, tuple[int, ...]] | None:
        if name.startswith("single_") and name.endswith(".attn.to_out.weight"):
            return 1, (attention, gates)
        return next((blocks for ending, blocks in packed.items() if name.endswith(f".{ending}")), None)

    def arrange(stored: Mapping[str, WeightSource]) -> dict[str, WeightSource]:
        arranged: dict[str, WeightSource] = dict(stored)
        for name, tensor in stored.items():
            if (found := find_blocks(name)) is not None:
                axis, blocks = found
                arranged[name] = PermutedTensor(stored=tensor, axis=axis, blocks=blocks, parts=mesh.shape["tp"])
        return arranged

    return arrange


def call_transformer(
    transformer: TracedModule,
    weights: Mapping[str, jax.Array],
    *,
    mesh: Mesh,
    reuse: Reuse | None = None,
    **inputs: Any,
) -> tuple[jax.Array, jax.Array | None]:
    """Runs the transformer inside jit, each device of `tp` with its own heads and gates; returns (B, L, C).

    With `reuse` its blocks run only if they must, and the residual of the picture's tokens is the second value.
    """
    inputs = {name: jnp.asarray(value) for name, value in inputs.items() if value is not None}
    shapes = {name: weight.shape for name, weight in weights.items()}
    specs = {name: sharding.spec for name, sharding in apply_rules(TRANSFORMER_RULES, shapes, mesh).items()}

    slices = frozenset({"tp"}) if mesh.shape["tp"] > 1 else frozenset[str]()
    attention = AttentionAxes(mesh=mesh, rows="dp", tokens="sp", entered=slices)

    streams = [inputs[name].shape[1] for name in _STREAMS]
    is_split = are_tokens_split(mesh, *streams)
    tokens = P(None, "tp") if is_split else P()
    input_specs = {name: tokens if name in _STREAMS else P() for name in inputs}

    def forward(
        weights: Mapping[str, jax.Array], inputs: Mapping[str, Any], reuse: Reuse | None
    ) -> tuple[jax.Array, jax.Array | None]:
        kept: list[jax.Array] = []
        with split_tokens(streams[0] if is_split else None):
            (output,) = transformer.call(
                weights,
                **inputs,
                return_dict=False,
                attention=attention,
                stacks=None if reuse is None else _keep_residual(reuse, kept),
            )
        return output, kept[0] if kept else None

    if not slices:
        return forward(weights, inputs, reuse)
    kept_specs = None if reuse is None else Reuse(P(), tokens)
    sharded = jax.shard_map(
        forward,
        mesh=mesh,
        in_specs=(specs, input_specs, kept_specs),
        out_specs=(tokens, None if reuse is None else tokens),
        axis_names=slices,
        check_vma=False,
    )
    return sharded(dict(weights), inputs, reuse)


def are_tokens_split(mesh: Mesh, *lengths: int) -> bool:
    """Tells whether streams of so many tokens lie split over `tp` between the branches."""
    tp = mesh.shape["tp"]
    return tp > 1 and mesh.shape["sp"] == 1 and not any(length % tp for length in lengths)


def _keep_residual(reuse: Reuse, kept: list[jax.Array]) -> dict[str, tuple[tuple[str, ...], RunStack]]:
    """Lets both lists of blocks run only if `reuse` is off, and gives `kept` what they add to the picture's tokens.

    The last block of one kind hands both streams to the first of the other, so the residual spans both lists; the
    text's stream ends in them, and stays as it is where they do not run.
    """
    before: list[jax.Array] = []

    def run_double(compute: Callable[..., Carry], carry: Carry) -> Carry:
        text, picture = carry
        before.append(picture)
        return jax.lax.cond(reuse.is_on, lambda: (text, picture + reuse.residual), lambda: compute(text, picture))

    def run_single(compute: Callable[..., Carry], carry: Carry) -> Carry:
        (joined,) = carry

        def run() -> tuple[jax.Array, jax.Array]:
            (after,) = compute(joined)
            return after, after[:, -before[0].shape[1] :] - before[0]

        after, residual = jax.lax.cond(reuse.is_on, lambda: (joined, reuse.residual), run)
        kept.append(residual)
        return (after,)

    return {
        "transformer_blocks": (("encoder_hidden_states", "hidden_states"), run_double),
        "single_transformer_blocks": (("hidden_states",), run_single),
    }


def _inner_width(config: Any) -> int:
    return config.num_attention_heads * config.attention_head_dim


def _mlp_width(config: Any) -> int:
    return int(_inner_width(config) * config.mlp_ratio)
