"""Unmodified diffusers and transformers modules as pure JAX functions.

The only file that touches torchax. A module is built once without weights (parameters on the meta device), then called
through `torch.func.functional_call` inside `jax.jit` with every parameter and buffer passed as an argument: nothing is
enabled globally, and nothing is closed over, so no weight is baked into a program.

The overrides below keep the numerics that PyTorch has under bf16 (statistics of norms and softmax in fp32) and give
each backend the layout that it runs fastest.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torchax.tensor
from jax.sharding import NamedSharding
from torchax.ops import mappings, ops_registry

from pipelines.runtime.attention import attend


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Inside, modules are built without memory for parameters; buffers keep their values.

    Tables such as position ids are not in checkpoints, so a plain `torch.device("meta")` would lose them.
    """
    register = torch.nn.Module.register_parameter

    def register_on_meta(self: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = torch.nn.Parameter(param.to("meta"), requires_grad=False)
        register(self, name, param)

    torch.nn.Module.register_parameter = register_on_meta
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


class TracedModule:
    """A torch module as `call(weights, ...)`, for use inside `jax.jit`."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module: Any = module.eval().requires_grad_(requires_grad=False)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of everything a checkpoint must provide."""
        names = self.module.state_dict(keep_vars=True)
        return {name: tuple(value.shape) for name, value in names.items()}

    def constant_buffers(self) -> dict[str, jax.Array]:
        """Buffers that are not in checkpoints (position ids, rotary tables); part of the weights passed to `call`."""
        saved = self.module.state_dict()
        buffers = {name: value for name, value in self.module.named_buffers() if name not in saved}
        return {name: jnp.asarray(value.numpy()) for name, value in buffers.items()}

    def call_after(self, pattern: str, function: Callable[[jax.Array], jax.Array]) -> None:
        """From now on, what submodules of a matching name give passes through `function`."""

        def run(_module: torch.nn.Module, _args: Any, output: Any) -> Any:
            environment = _environment()
            return environment.j2t_iso(function(environment.t2j_iso(output)))

        for name, submodule in self.module.named_modules():
            if re.search(pattern, name):
                submodule.register_forward_hook(run)

    def call(
        self,
        weights: Mapping[str, jax.Array],
        *args: Any,
        method: Callable[..., Any] | None = None,
        input_shardings: Mapping[str, NamedSharding] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs `forward`, or `method(module, ...)`, on JAX arrays and returns JAX arrays in the same structure.

        `input_shardings` says how the first argument of the submodules named there lies on the mesh.
        """
        environment = _environment()
        weights_t, args_t, kwargs_t = environment.j2t_iso((dict(weights), args, kwargs))
        run = method or type(self.module).__call__
        with (
            environment,
            torch.nn.utils.stateless._reparametrize_module(self.module, weights_t),  # noqa: SLF001 - functional_call reaches only forward
            _inputs_constrained(self.module, input_shardings or {}),
        ):
            result = run(self.module, *args_t, **kwargs_t)
        return environment.t2j_iso(result)


class ScannedLayers(torch.nn.Module):
    """A list of identical layers that runs as one `jax.lax.scan`, so that a program holds one layer and not all.

    Takes the place of the ModuleList in a model whose forward goes through it with `for layer in layers`. A parameter
    `layers.0.x`, `layers.1.x`, ... becomes one `layers.layer.x` with the layers along its first axis. `carried` names
    the inputs that each layer hands to the next, in the order in which it returns them.
    """

    def __init__(self, layers: torch.nn.ModuleList, *, carried: tuple[str, ...]) -> None:
        super().__init__()
        self.layer = layers[0]
        self._carried = carried
        for module in self.layer.modules():
            for name, parameter in module.named_parameters(recurse=False):
                stacked = torch.empty((len(layers), *parameter.shape), device="meta", dtype=parameter.dtype)
                module.register_parameter(name, torch.nn.Parameter(stacked, requires_grad=False))

    def __iter__(self) -> Iterator["ScannedLayers"]:
        yield self

    def forward(self, **inputs: Any) -> Any:
        environment = _environment()
        carry = environment.t2j_iso(tuple(inputs.pop(name) for name in self._carried))
        stacked = environment.t2j_iso(dict(self.layer.named_parameters()))

        def step(carry: tuple[jax.Array, ...], weights: dict[str, jax.Array]) -> tuple[tuple[jax.Array, ...], None]:
            carry_t, weights_t = environment.j2t_iso((carry, weights))
            carried = dict(zip(self._carried, carry_t, strict=True))
            with torch.nn.utils.stateless._reparametrize_module(self.layer, weights_t):  # noqa: SLF001 - as in TracedModule
                result = self.layer(**carried, **inputs)
            return environment.t2j_iso(result if isinstance(result, tuple) else (result,)), None

        last, _ = jax.lax.scan(step, carry, stacked)
        result = environment.j2t_iso(last)
        return result if len(result) > 1 else result[0]


@contextlib.contextmanager
def _inputs_constrained(module: torch.nn.Module, shardings: Mapping[str, NamedSharding]) -> Iterator[None]:
    def constrain(sharding: NamedSharding, _module: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        environment = _environment()
        first = jax.lax.with_sharding_constraint(environment.t2j_iso(args[0]), sharding)
        return (environment.j2t_iso(first), *args[1:])

    handles = [
        module.get_submodule(name).register_forward_pre_hook(functools.partial(constrain, sharding))
        for name, sharding in shardings.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def to_jax_dtype(dtype: torch.dtype) -> Any:
    return mappings.t2j_dtype(dtype)


_cached_environment: torchax.tensor.Environment | None = None


def _environment() -> torchax.tensor.Environment:
    """One environment a process; its dispatch modes are entered per call and are thread-local."""
    global _cached_environment  # noqa: PLW0603 - torchax registers some 800 operators each time one is built
    if _cached_environment is None:
        _cached_environment = torchax.tensor.Environment()
        for function, implementation in _OVERRIDES.items():
            _override(_cached_environment, function, implementation)
    return _cached_environment


def _override(environment: torchax.tensor.Environment, function: Any, implementation: Callable[..., Any]) -> None:
    environment._ops[function] = ops_registry.Operator(  # noqa: SLF001 - override_op_definition cannot take JAX functions
        function,
        implementation,
        is_jax_function=True,
        is_user_defined=True,
        needs_env=False,
        is_view_op=False,
    )


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
    return attend(query, key, value, mask=attn_mask, is_causal=is_causal, scale=scale, has_grouped_heads=enable_gqa)


def _group_norm(
    input: jax.Array,
    num_groups: int,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """Statistics in fp32 in one pass over the groups."""
    batch, channels, *spatial = input.shape
    x = input.reshape(batch, num_groups, -1).astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + eps)
    per_channel = (1, channels, *(1 for _ in spatial))
    # Folding scale and shift into one multiply-add per channel leaves a single pass over the large tensor.
    gain = jnp.repeat(scale[..., 0], channels // num_groups, axis=1)
    shift = -jnp.repeat((mean * scale)[..., 0], channels // num_groups, axis=1)
    if weight is not None:
        gain, shift = gain * weight, shift * weight
    if bias is not None:
        shift = shift + bias
    gain, shift = (value.reshape(batch, *per_channel[1:]) for value in (gain, shift))
    return (input.astype(jnp.float32) * gain + shift).astype(input.dtype)


def _layer_norm(
    input: jax.Array,
    normalized_shape: tuple[int, ...],
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    axes = tuple(range(-len(normalized_shape), 0))
    x = input.astype(jnp.float32)
    mean = x.mean(axes, keepdims=True)
    x = (x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)
    if weight is not None:
        x = x * weight.astype(jnp.float32)
    if bias is not None:
        x = x + bias.astype(jnp.float32)
    return x.astype(input.dtype)


def _convolve(  # noqa: PLR0917 - PyTorch's own signature
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> jax.Array:
    """Convolutions in two or three dimensions, channels-last inside.

    XLA:CPU runs that up to 3x faster (24 -> 8 ms for 32x64x16x16); TPU lays out by itself.
    """
    spatial = weight.ndim - 2
    stride, dilation = (tuple(v) if isinstance(v, tuple | list) else (v,) * spatial for v in (stride, dilation))
    if isinstance(padding, str):
        pads: Any = padding
    else:
        pads = [(pad, pad) for pad in (padding if isinstance(padding, tuple | list) else (padding,) * spatial)]
    channels_last = "NHWC" if spatial == 2 else "NDHWC"
    kernel_last = "HWIO" if spatial == 2 else "DHWIO"
    # diffusers' Upsample hands fp32 to a bf16 convolution: PyTorch's own type_as is lost in the tracing.
    input = input.astype(weight.dtype)
    out = jax.lax.conv_general_dilated(
        jnp.moveaxis(input, 1, -1),
        jnp.moveaxis(weight, (0, 1), (-1, -2)),
        window_strides=stride,
        padding=pads,
        rhs_dilation=dilation,
        feature_group_count=groups,
        dimension_numbers=(channels_last, kernel_last, channels_last),
    )
    if bias is not None:
        out = out + bias
    return jnp.moveaxis(out, -1, 1)


def _interpolate(
    input: jax.Array,
    size: tuple[int, ...] | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    **_unused: Any,
) -> jax.Array:
    """Nearest pixels at whole scales by repeating them: torchax's gather would not split over a mesh."""
    factors = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * (input.ndim - 2)
    if size is not None or mode not in ("nearest", "nearest-exact") or any(f is None or f % 1 for f in factors):
        raise torchax.tensor.OperatorNotFound(f"interpolate {mode=} {size=} {scale_factor=}")
    for axis, factor in enumerate(factors, start=2):
        input = jnp.repeat(input, int(factor or 1), axis=axis)
    return input


_OVERRIDES: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.scaled_dot_product_attention: _scaled_dot_product_attention,
    torch.nn.functional.group_norm: _group_norm,
    torch.nn.functional.layer_norm: _layer_norm,
    torch.nn.functional.conv2d: _convolve,
    torch.conv2d: _convolve,
    torch.nn.functional.conv3d: _convolve,
    torch.conv3d: _convolve,
    torch.nn.functional.interpolate: _interpolate,
}
