"""Each of our kernels on small inputs against plain XLA on the same chip, which computes in fp32 as exactly as it can.

Inputs are rounded to bf16 for both sides, as models run on accelerators, so what differs is the kernel. A difference is
told relative to the largest value expected. On a CPU kernels for TPU are interpreted: that says how they count, not how
they compile.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import jit
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pipelines.runtime.kernels import cudnn, low_rank, operators
from pipelines.runtime.kernels.attention import attend, attend_merged
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.attention_gradient import attend_with_gradient
from pipelines.runtime.kernels.convolution import PictureAxes, convolve_split
from pipelines.runtime.kernels.convolution_gradient import convolve_learning
from pipelines.runtime.kernels.flash import find_vmem_bytes, flash_attention
from pipelines.runtime.kernels.gelu import gelu
from pipelines.runtime.kernels.head_norm import norm_heads
from pipelines.runtime.kernels.heads import merge_heads, split_heads
from pipelines.runtime.kernels.rotary import rotate_pairs
from pipelines.runtime.kernels.taps import TAPS, block_taps
from pipelines.runtime.kernels.ulysses import NormAndRotary, gather_features, gather_tokens
from pipelines.runtime.kernels.upsample import double_pixels
from pipelines.runtime.kernels.upsample_gradient import add_up_pixels
from pipelines.runtime.programs.compiler_options import hand_over

Arrays = Sequence[Any]
MOST_OF_BF16 = 2e-2
"""Several roundings to bf16, each of 2^-9, in a row; a kernel that counts wrong is off by far more."""

_EXACT = jax.lax.Precision.HIGHEST
_FP32 = jnp.float32


@dataclass(frozen=True, kw_only=True)
class Check:
    """A comparison: `compute` gives (found, expected) arrays, whose relative difference may be at most `most`.

    `off` are the kernels that are not used if it fails; `platforms` are those of JAX on which the kernel runs.
    """

    name: str
    compute: Callable[["Place"], tuple[Arrays, Arrays]]
    most: float
    off: tuple[str, ...]
    platforms: tuple[str, ...] = ("tpu", "cpu")
    is_used: Callable[[], bool] = lambda: True
    """Whether models use the kernel on these devices at all."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the checks run: these devices in a mesh of one axis, `all`. `interprets` stands in for a TPU."""

    devices: Sequence[Any]
    interprets: bool

    @property
    def mesh(self) -> Mesh:
        return Mesh(np.asarray(self.devices), ("all",))

    @property
    def vmem_bytes(self) -> int:
        return find_vmem_bytes(self.devices[0].device_kind)


def draw(seed: int, *shape: int, scale: float = 1.0) -> jax.Array:
    """Returns values from N(0, scale^2), rounded to bf16."""
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), jnp.bfloat16)


def measure_difference(found: Arrays, expected: Arrays) -> float:
    """Returns the largest difference, relative to the largest value expected; inf where anything is not finite."""
    most = 0.0
    for one, other in zip(found, expected, strict=True):
        own, wanted = (np.asarray(x).astype(np.float64) for x in (one, other))
        if own.shape != wanted.shape or not np.isfinite(own).all():
            return np.inf
        most = max(most, float(np.abs(own - wanted).max() / max(np.abs(wanted).max(), 1e-9)))
    return most


def _attend_exactly(query_BLC: Any, key_BLC: Any, value_BLC: Any, *, heads: int, window: int | None = None) -> Any:
    """softmax(q k^T / sqrt(D)) v in fp32."""
    batch, length, channels = query_BLC.shape
    q, k, v = (x.astype(_FP32).reshape(batch, -1, heads, channels // heads) for x in (query_BLC, key_BLC, value_BLC))
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision=_EXACT) * (channels // heads) ** -0.5
    if window is not None:
        near = jnp.abs(jnp.arange(length)[:, None] - jnp.arange(k.shape[1])) <= window
        logits = jnp.where(near, logits, -jnp.inf)
    out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits, -1), v, precision=_EXACT)
    return out.reshape(batch, length, channels)


def _check_flash(place: Place) -> tuple[Arrays, Arrays]:
    """Heads of 128, also with small logits, and two of 64 side by side with a window; no length fills its tiles."""
    found, expected = [], []
    for heads, keys, window, bounds_logits in ((1, 700, None, False), (1, 700, None, True), (2, 600, 50, False)):
        query = draw(1, 1, 600, 128)
        key, value = draw(2, 1, keys, 128), draw(3, 1, keys, 128)
        run = functools.partial(
            flash_attention,
            heads=heads,
            scale=(128 // heads) ** -0.5,
            vmem_bytes=place.vmem_bytes,
            window=window,
            bounds_logits=bounds_logits,
            interpret=place.interprets,
        )
        found.append(jit(run)(query, key, value))
        expected.append(jit(functools.partial(_attend_exactly, heads=heads, window=window))(query, key, value))
    return found, expected


def _draw_turn(tokens: int, *, heads: int, width: int) -> NormAndRotary:
    angles = np.repeat(np.random.default_rng(4).uniform(0, 2 * np.pi, (tokens, width // 2)), 2, axis=1)
    gain = np.random.default_rng(5).uniform(0.5, 2, (1, tokens, 1))
    cos, sin, gain = (jnp.asarray(x, _FP32) for x in (np.cos(angles), np.sin(angles), gain))
    return NormAndRotary(cos, sin, gain, draw(6, heads * width).astype(_FP32))


def _turn_exactly(x_BLC: Any, turn: NormAndRotary) -> np.ndarray:
    """Pair by pair, by numpy in fp64."""
    cos, sin, gain, weight = (np.asarray(x, np.float64) for x in turn)
    width = cos.shape[-1]
    heads = (np.asarray(x_BLC.astype(_FP32)) * gain * weight).reshape(*x_BLC.shape[:2], -1, width)
    first, second, cos, sin = heads[..., ::2], heads[..., 1::2], cos[:, None, ::2], sin[:, None, ::2]
    return np.stack((first * cos - second * sin, first * sin + second * cos), -1).reshape(x_BLC.shape)


def _check_ulysses(place: Place) -> tuple[Arrays, Arrays]:
    """Norms and angles on the way, there and back over all devices, and heads taken apart for a training."""
    count = len(place.devices)
    x, turn = draw(1, 1, 64, 256), _draw_turn(64, heads=2, width=128)
    turned = jit(lambda x, turn: gather_tokens(x, None, parts=1, turn=turn, interpret=place.interprets))(x, turn)
    whole = draw(2, 1, 16 * count, 128 * count)
    trade = functools.partial(gather_tokens, axis="all", parts=count, interpret=place.interprets)
    back = jax.shard_map(
        lambda x: gather_features(trade(x), "all", parts=count, interpret=place.interprets),
        mesh=place.mesh,
        in_specs=P(None, "all"),
        out_specs=P(None, "all"),
        check_vma=False,
    )
    axes = AttentionAxes(mesh=Mesh(np.asarray(place.devices[:1]), ("all",)), learns=True, interprets=place.interprets)
    heads = jit(lambda x: split_heads(x, 2, axes=axes))(x)
    found = [turned, jit(back)(whole), heads, jit(functools.partial(merge_heads, axes=axes))(heads)]
    return found, [_turn_exactly(x, turn), whole, x.reshape(heads.shape), x]


def _check_head_norm(place: Place) -> tuple[Arrays, Arrays]:
    """Two heads of 128 features with norm and angles, and the gradients; their tokens fill no tile."""
    axes = AttentionAxes(mesh=Mesh(np.asarray(place.devices[:1]), ("all",)), learns=True, interprets=place.interprets)
    turn, x, counted = _draw_turn(300, heads=1, width=128), draw(1, 1, 300, 256), draw(2, 1, 300, 2, 128)

    def exactly(x: Any, weight: Any) -> Any:
        heads = x.astype(_FP32).reshape(1, 300, 2, 128)
        return rotate_pairs(heads * operators.find_gain(heads, 1e-6) * weight, turn.cos, turn.sin)

    def by_kernel(x: Any, weight: Any) -> Any:
        return norm_heads(x, weight, turn.cos, turn.sin, eps=1e-6, axes=axes)

    def run(norm: Callable[..., Any]) -> Arrays:
        def total(*arrays: Any) -> Any:
            out = norm(*arrays).astype(_FP32)
            return (out * counted.astype(_FP32)).sum(), out

        (_, out), gradients = jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(x, turn.weight)
        return [out, *gradients]

    return run(by_kernel), run(exactly)


def _check_low_rank(place: Place) -> tuple[Arrays, Arrays]:
    """A LoRA's two products of 300 tokens, which fill no tile, and their gradients."""
    axes = AttentionAxes(mesh=Mesh(np.asarray(place.devices[:1]), ("all",)), learns=True, interprets=place.interprets)
    x, counted = draw(1, 1, 300, 256), draw(4, 1, 300, 384)
    down, up = draw(2, 16, 256, scale=0.1), draw(3, 384, 16, scale=0.1)

    def run(multiply: Callable[..., Any]) -> Arrays:
        def total(*arrays: Any) -> Any:
            x, down, up = arrays
            out = multiply(multiply(x, down), up).astype(_FP32)
            return (out * counted.astype(_FP32)).sum(), out

        (_, out), gradients = jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(x, down, up)
        return [out, *gradients]

    return run(lambda x, weight: low_rank.multiply(x, weight, axes)), run(operators.multiply)


def _check_attention(place: Place) -> tuple[Arrays, Arrays]:
    """Tokens of a self-attention split over all devices, traded for heads where there are several."""
    count = len(place.devices)
    heads, length = count, 64 * count
    arrays = [draw(seed, 1, length, heads * 128) for seed in (1, 2, 3)]
    axes = AttentionAxes(mesh=place.mesh, tokens="all", interprets=place.interprets)
    run = functools.partial(attend_merged, heads=heads, scale=128**-0.5, axes=axes, is_self=True)
    split = [jax.device_put(x, NamedSharding(place.mesh, P(None, "all"))) for x in arrays]
    return [jit(run)(*split)], [jit(functools.partial(_attend_exactly, heads=heads))(*arrays)]


def _check_flash_gradient(place: Place) -> tuple[Arrays, Arrays]:
    """Values and gradients, of a head of 128 and of two of 64 side by side; no length fills its tiles."""
    mesh = Mesh(np.asarray(place.devices[:1]), ("all",))

    def by_kernel(*arrays: Any) -> Any:
        scale = arrays[0].shape[-1] ** -0.5
        return attend_with_gradient(*arrays, scale=scale, mesh=mesh, rows=None, interpret=place.interprets)

    def exactly(*arrays: Any) -> Any:
        heads = arrays[0].shape[1]
        merged = [x.swapaxes(1, 2).reshape(1, x.shape[2], -1) for x in arrays]
        return _attend_exactly(*merged, heads=heads).reshape(1, -1, heads, 128 // heads).swapaxes(1, 2)

    def run(attend: Callable[..., Any], *arrays: Any) -> Arrays:
        weights = draw(4, *arrays[0].shape).astype(_FP32)

        def total(*arrays: Any) -> Any:
            out = attend(*arrays).astype(_FP32)
            return (out * weights).sum(), out

        (_, out), gradients = jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(*arrays)
        return [out, *gradients]

    found, expected = [], []
    for heads in (1, 2):
        width = 128 // heads
        arrays = [draw(seed, 1, heads, length, width) for seed, length in ((1, 300), (2, 260), (3, 260))]
        found += run(by_kernel, *arrays)
        expected += run(exactly, *(x.astype(_FP32) for x in arrays))
    return found, expected


def _convolve_exactly(x_BCFHW: Any, weight_OITHW: Any, bias_O: Any) -> Any:
    """A causal convolution in fp32, with zeros around each frame and before the first."""
    out = jax.lax.conv_general_dilated(
        x_BCFHW.astype(_FP32),
        weight_OITHW.astype(_FP32),
        window_strides=(1, 1, 1),
        padding=((weight_OITHW.shape[2] - 1, 0), (1, 1), (1, 1)),
        precision=_EXACT,
    )
    return out + bias_O.astype(_FP32)[:, None, None, None]


def _compare_convolutions(place: Place, *, spec: P, mesh: Mesh, height: int) -> tuple[Arrays, Arrays]:
    found, expected = [], []
    axes = PictureAxes(mesh=mesh, spec=spec, interprets=place.interprets)
    for time_taps, frames in ((1, 1), (3, 2)):
        x, bias = draw(1, 1, 24, frames, height, 16), draw(3, 130).astype(_FP32)
        weight = draw(2, 130, 24, time_taps, TAPS, TAPS, scale=0.05)
        run = jit(functools.partial(convolve_split, axes=axes))
        found.append(run(x, block_taps(weight), bias))
        expected.append(jit(_convolve_exactly)(x, weight, bias))
    return found, expected


def _check_conv3x3(place: Place) -> tuple[Arrays, Arrays]:
    """One frame and three, more outputs than one block of them; and gradients by a picture, of all and a quarter."""
    mesh = Mesh(np.asarray(place.devices[:1]), ("all",))
    found, expected = ([*arrays] for arrays in _compare_convolutions(place, spec=P(), mesh=mesh, height=12))
    axes = PictureAxes(mesh=mesh, spec=P(), interprets=place.interprets, learns=True)
    x, counted, bias = draw(1, 1, 24, 12, 16), draw(4, 1, 130, 12, 16), draw(3, 130)
    weight = draw(2, 130, 24, TAPS, TAPS, scale=0.05)

    for stride in (1, 2):
        every = np.s_[:, :, ::stride, ::stride]

        def run(convolve: Callable[..., Any], every: Any = every) -> Any:
            return jit(jax.grad(lambda x: (convolve(x).astype(_FP32) * counted[every].astype(_FP32)).sum()))(x)

        by_kernel = functools.partial(convolve_learning, axes=axes, stride=stride)
        found.append(run(lambda x, convolve=by_kernel: convolve(x, weight, bias)))
        expected.append(
            run(lambda x, every=every: _convolve_exactly(x[:, :, None], weight[:, :, None], bias)[:, :, 0][every])
        )
    return found, expected


def _check_conv3x3_gradient(place: Place) -> tuple[Arrays, Arrays]:
    """Gradients by the weight, of a picture for each device."""
    rows = len(place.devices)
    axes = PictureAxes(mesh=place.mesh, spec=P("all"), interprets=place.interprets, learns=True)
    x, counted, bias = draw(1, rows, 24, 12, 40), draw(4, rows, 130, 12, 40), draw(3, 130)
    weight = draw(2, 130, 24, TAPS, TAPS, scale=0.05)

    def run(convolve: Callable[[Any], Any]) -> Any:
        return jit(jax.grad(lambda weight: (convolve(weight).astype(_FP32) * counted.astype(_FP32)).sum()))(weight)

    found = run(lambda weight: convolve_learning(x, weight, bias, axes))
    return [found], [run(lambda weight: _convolve_exactly(x[:, :, None], weight[:, :, None], bias)[:, :, 0])]


def _check_convolution(place: Place) -> tuple[Arrays, Arrays]:
    """Rows split over all devices, which exchange their outermost ones."""
    return _compare_convolutions(place, spec=P(None, None, None, "all"), mesh=place.mesh, height=4 * len(place.devices))


def _check_sparse_cores(place: Place) -> tuple[Arrays, Arrays]:
    """Weights of two layers gathered one by one, and their gradients scattered, as a training of all weights does."""
    count, width = len(place.devices), 32 * len(place.devices)
    whole, split, rows = (NamedSharding(place.mesh, spec) for spec in (P(), P(None, "all"), P("all")))
    weights, x, counted = draw(1, 2, width, width, scale=0.1), draw(2, count, 16, width), draw(3, count, 16, width)

    def total(weights: Any, x: Any, counted: Any, gather: Callable[[Any], Any] = lambda weight: weight) -> Any:
        out, _ = jax.lax.scan(lambda x, weight: (jnp.tanh(x @ gather(weight)), None), x, weights)
        return (out.astype(_FP32) * counted.astype(_FP32)).sum()

    gather = functools.partial(jax.lax.with_sharding_constraint, shardings=whole)
    run = jit(
        jax.grad(functools.partial(total, gather=gather)),
        in_shardings=(split, rows, rows),
        out_shardings=split,
        compiler_options=hand_over(place.devices[0].device_kind),
    )
    with jax.default_matmul_precision("highest"):
        expected = jit(jax.grad(total))(*(one.astype(_FP32) for one in (weights, x, counted)))
    return [run(weights, x, counted)], [expected]


def _check_upsample(place: Place) -> tuple[Arrays, Arrays]:
    """Every pixel four times, and added up again, to the bit."""
    x = draw(1, 2, 6, 9, 130)
    doubled = np.asarray(x.astype(_FP32)).repeat(2, 1).repeat(2, 2)
    double, add_up = (
        jit(functools.partial(kernel, interpret=place.interprets)) for kernel in (double_pixels, add_up_pixels)
    )
    return [double(x), add_up(jnp.asarray(doubled, jnp.bfloat16))], [doubled, 4 * np.asarray(x.astype(_FP32))]


def _check_rotary(_place: Place) -> tuple[Arrays, Arrays]:
    """The product with a constant matrix, which exchanges neighbours."""
    turn = _draw_turn(40, heads=2, width=64)
    x = draw(1, 1, 40, 128)
    plain = turn._replace(gain=jnp.ones_like(turn.gain), weight=jnp.ones_like(turn.weight))
    found = jit(lambda x, turn: rotate_pairs(x.reshape(1, 40, 2, 64), turn.cos, turn.sin))(x, plain)
    return [found.reshape(x.shape)], [_turn_exactly(x, plain)]


def _check_operators(_place: Place) -> tuple[Arrays, Arrays]:
    """Norms in one pass against two by numpy in fp64, GELU, and the convolution that the kernel does not take."""
    x = draw(1, 2, 32, 12, 10)
    wide = np.asarray(x.astype(_FP32), np.float64)
    grouped = wide.reshape(2, 8, -1)
    groups = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    layers = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    weight = draw(2, 16, 32, 1, 1, scale=0.1)
    mixed = np.einsum("bihw,oi->bohw", wide, np.asarray(weight.astype(_FP32), np.float64)[:, :, 0, 0])
    found = (
        jit(functools.partial(operators.group_norm, num_groups=8))(x),
        jit(functools.partial(operators.layer_norm, normalized_shape=(10,)))(x),
        jit(operators.convolve)(x, weight),
        jit(gelu)(x),
    )
    exact = wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2))) / 2
    return found, (groups.reshape(x.shape), layers, mixed, exact)


def _check_cudnn(_place: Place) -> tuple[Arrays, Arrays]:
    """Plain, and causal with heads that share keys."""
    found, expected = [], []
    query, key, value = draw(1, 1, 4, 300, 64), draw(2, 1, 2, 300, 64), draw(3, 1, 2, 300, 64)
    for is_causal in (False, True):
        run = functools.partial(cudnn.attend_fused, is_causal=is_causal, scale=None)
        found.append(jit(run)(query, key, value))
        plain = functools.partial(attend, mask=None, is_causal=is_causal, scale=None, has_grouped_heads=True)
        expected.append(jit(plain)(*(x.astype(_FP32) for x in (query, key, value))))
    return found, expected


CHECKS = (
    Check(name="operators", compute=_check_operators, most=MOST_OF_BF16, off=(), platforms=("tpu", "gpu", "cpu")),
    Check(name="rotary", compute=_check_rotary, most=MOST_OF_BF16, off=(), platforms=("tpu", "gpu", "cpu")),
    Check(name="upsample", compute=_check_upsample, most=0.0, off=("upsample",)),
    Check(name="conv3x3", compute=_check_conv3x3, most=MOST_OF_BF16, off=("conv3x3",)),
    Check(name="conv3x3_gradient", compute=_check_conv3x3_gradient, most=MOST_OF_BF16, off=("conv3x3_gradient",)),
    Check(name="convolution", compute=_check_convolution, most=MOST_OF_BF16, off=("conv3x3",)),
    Check(name="flash", compute=_check_flash, most=MOST_OF_BF16, off=("flash",)),
    Check(name="ulysses", compute=_check_ulysses, most=MOST_OF_BF16, off=("ulysses",)),
    Check(name="head_norm", compute=_check_head_norm, most=MOST_OF_BF16, off=("head_norm",)),
    Check(name="low_rank", compute=_check_low_rank, most=MOST_OF_BF16, off=("low_rank",)),
    Check(name="sparse_cores", compute=_check_sparse_cores, most=MOST_OF_BF16, off=("sparse_cores",)),
    Check(name="attention", compute=_check_attention, most=MOST_OF_BF16, off=("flash", "ulysses")),
    Check(name="flash_gradient", compute=_check_flash_gradient, most=MOST_OF_BF16, off=("flash_gradient",)),
    Check(
        name="cudnn",
        compute=_check_cudnn,
        most=MOST_OF_BF16,
        off=("cudnn",),
        platforms=("gpu",),
        is_used=cudnn.has_cuda,
    ),
)
"""The checks, what later ones are made of first."""
