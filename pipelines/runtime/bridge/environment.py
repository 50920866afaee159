"""torchax's environment: PyTorch's operators on traced tensors, several of them ours.

This file and dispatch.py alone touch torchax. Attention, linear layers, norms, GELU, convolutions and resizing are
those of runtime/kernels in place of torchax's own. How attentions and pictures lie on the mesh is known only where a
module is called (modules.py), so operators find it in context variables.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops import mappings, ops_registry
from torchax.tensor import OperatorNotFound

from pipelines.runtime.bridge.dispatch import Environment
from pipelines.runtime.bridge.row_scales import find_rounded, multiply_in_int8
from pipelines.runtime.kernels import low_rank, operators
from pipelines.runtime.kernels.attention import attend
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.convolution import PictureAxes, convolve_split, double_split
from pipelines.runtime.kernels.convolution_gradient import (
    convolve_learning,
    double_learning,
    has_kernel,
    is_of_single_pixels,
    mix_channels,
)
from pipelines.runtime.kernels.gelu import gelu, gelu_exactly
from pipelines.runtime.kernels.norms import norm_groups, norm_layer
from pipelines.runtime.kernels.switches import is_on
from pipelines.runtime.kernels.taps import BLOCKED_NDIM, FLAT_NDIM, unflatten_taps

_attention_axes: contextvars.ContextVar[AttentionAxes | None] = contextvars.ContextVar("attention_axes", default=None)
_picture_axes: contextvars.ContextVar[PictureAxes | None] = contextvars.ContextVar("picture_axes", default=None)
_linear_layers: contextvars.ContextVar[Callable[..., jax.Array] | None] = contextvars.ContextVar(
    "linear_layers", default=None
)


@contextlib.contextmanager
def set_within(variable: contextvars.ContextVar[Any], value: Any) -> Iterator[None]:
    """Context in which a context variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextlib.contextmanager
def axes_as(attention: AttentionAxes | None, pictures: PictureAxes | None) -> Iterator[None]:
    """Context in which attentions and pictures of the module that is being called lie on these mesh axes."""
    with set_within(_attention_axes, attention), set_within(_picture_axes, pictures):
        yield


def find_attention_axes() -> AttentionAxes | None:
    """Mesh axes of attentions in the module that is being called."""
    return _attention_axes.get()


def find_picture_axes() -> PictureAxes | None:
    """Mesh axes of pictures in the module that is being called."""
    return _picture_axes.get()


def linear_layers_as(function: Callable[..., jax.Array]) -> contextlib.AbstractContextManager[None]:
    """Context in which `function(input, weight, bias)` computes every traced linear layer."""
    return set_within(_linear_layers, function)


def call_jax(function: Callable[..., jax.Array], *tensors: torch.Tensor) -> Any:
    """Calls a JAX function on tensors of a traced module, for code that replaces a part of it."""
    environment = get_environment()
    return environment.j2t_iso(function(*environment.t2j_iso(tensors)))


READY_NDIM = 3
"""A linear layer's weight of three axes (B, L, O) is the layer's output itself, computed once for many calls."""


def to_jax_dtype(dtype: torch.dtype) -> Any:
    return mappings.t2j_dtype(dtype)


_cached_environment: Environment | None = None


def get_environment() -> Environment:
    """One environment for the process; its dispatch modes are entered per call and are thread-local."""
    global _cached_environment  # noqa: PLW0603 - torchax registers some 800 operators each time one is built
    if _cached_environment is None:
        with jax.ensure_compile_time_eval():  # its random key would become part of the program that is being traced
            _cached_environment = Environment()
        for function, implementation in _OVERRIDES.items():
            _override(_cached_environment, function, implementation)
    return _cached_environment


def _override(environment: Environment, function: Any, implementation: Callable[..., Any]) -> None:
    environment._ops[function] = ops_registry.Operator(  # noqa: SLF001 - override_op_definition cannot take JAX functions
        function,
        implementation,
        is_jax_function=True,
        is_user_defined=True,
        needs_env=False,
        is_view_op=False,
    )


def _linear(input: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    if (replacement := _linear_layers.get()) is not None:
        return replacement(input, weight, bias)
    if weight.ndim == READY_NDIM:
        return weight
    rounded, axes = find_rounded(weight), find_attention_axes()
    if rounded is not None and rounded.rounds_inputs:
        out = multiply_in_int8(input, rounded)
    elif rounded is None and bias is None and low_rank.multiplies_by_kernel(axes, input, weight):
        out = low_rank.multiply(input, weight, axes)
    else:
        out = operators.multiply(input, weight)
        out = out if rounded is None else out * rounded.scale
    if axes is None or not axes.learns:
        return out if bias is None else out + bias
    out = low_rank.name_few(out, weight)
    if bias is None:
        return out
    return operators.add_bias(out, bias, axes.mesh.devices.flat[0].platform == "tpu")


def _scaled_dot_product_attention(  # noqa: PLR0917 - PyTorch's own signature
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    attn_mask: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> jax.Array:
    assert not dropout_p, "inference and our trainer use no attention dropout"
    return attend(
        query,
        key,
        value,
        mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        has_grouped_heads=enable_gqa,
        axes=_attention_axes.get(),
    )


def _convolve(  # noqa: PLR0917 - PyTorch's own signature
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> jax.Array:
    axes = _picture_axes.get()
    if weight.ndim == FLAT_NDIM:
        weight = unflatten_taps(weight)
    if weight.ndim == BLOCKED_NDIM:
        assert axes is not None and bias is not None, "block_convolutions is for calls that tell of pictures"
        return convolve_split(input[:, :, None], weight, bias, axes=axes)[:, :, 0]
    how: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if axes is not None and axes.learns and axes.takes_kernels:
        if has_kernel(input.shape, weight.shape, **how):
            bias = jnp.zeros(len(weight), weight.dtype) if bias is None else bias
            stride = max(stride) if isinstance(stride, tuple | list) else stride
            return convolve_learning(input, weight, bias, axes, stride)
        if is_of_single_pixels(weight.shape, **how):
            return mix_channels(input, weight, bias)
    return operators.convolve(input, weight, bias, **how)


def _interpolate(input: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
    axes = _picture_axes.get()
    is_doubled = operators.is_doubling(input, *args, **kwargs) and is_on("upsample")
    if axes is not None and axes.takes_kernels and is_doubled:
        if not axes.learns:
            return double_split(input, axes=axes)
        if input.dtype == jnp.bfloat16:
            return double_learning(input, axes)
    try:
        return operators.interpolate(input, *args, **kwargs)
    except NotImplementedError as error:
        raise OperatorNotFound(str(error)) from error  # torchax's own is taken then


def _layer_norm(
    input: jax.Array,
    normalized_shape: tuple[int, ...],
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    axes = find_attention_axes()
    if axes is None or not axes.learns:
        return operators.layer_norm(input, normalized_shape, weight, bias, eps)
    on_matrix_units = axes.mesh.devices.flat[0].platform == "tpu"
    how: Any = {"on_matrix_units": on_matrix_units, "sums_apart": on_matrix_units and axes.sums_apart}
    return norm_layer(input, weight, bias, axes=len(normalized_shape), eps=eps, **how)


def _group_norm(
    input: jax.Array,
    num_groups: int,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    axes = _picture_axes.get()
    if axes is None or not axes.learns:
        return operators.group_norm(input, num_groups, weight, bias, eps)
    return norm_groups(input, weight, bias, groups=num_groups, eps=eps)


def _gelu(input: jax.Array, *, approximate: str = "none") -> jax.Array:
    if approximate == "none":
        return gelu(input) if input.dtype == jnp.bfloat16 else gelu_exactly(input)
    return jax.nn.gelu(input, approximate=True)


_OVERRIDES: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.linear: _linear,
    torch.nn.functional.scaled_dot_product_attention: _scaled_dot_product_attention,
    torch.nn.functional.group_norm: _group_norm,
    torch.nn.functional.layer_norm: _layer_norm,
    torch.nn.functional.conv2d: _convolve,
    torch.conv2d: _convolve,
    torch.nn.functional.conv3d: operators.convolve,
    torch.conv3d: operators.convolve,
    torch.nn.functional.interpolate: _interpolate,
    torch.nn.functional.gelu: _gelu,
}
