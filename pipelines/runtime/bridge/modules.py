"""Unmodified diffusers and transformers modules as pure JAX functions.

A module is built once without weights (parameters on the meta device), then called
through `torch.func.functional_call` inside `jax.jit` with every parameter and buffer passed as an argument: nothing is
enabled globally, and nothing is closed over, so no weight is baked into a program.

Layers of one kind can run as a scan (ScannedLayers). Not here: what PyTorch's operators become (environment.py).
"""

import contextlib
import contextvars
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from pipelines.runtime.bridge.environment import axes_as, call_jax, get_environment, set_within
from pipelines.runtime.bridge.row_scales import part_stacks, scales_known, widen
from pipelines.runtime.devices.sharding import STACK, Rules, apply_rules
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.convolution import PictureAxes

# Fewer layers stay as they are: little to gain, and a scan copies each layer's weights, which a CPU feels.
SCAN_FROM = 5


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Context in which modules are built without memory for parameters; buffers keep their values.

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


@dataclass(frozen=True, kw_only=True)
class LayerPlacement:
    """Shardings of one layer's weights while it runs; where that is more than a device stores, they are gathered.

    `rules` speak of names within the layer, after a dot. Gathered layer by layer, a device holds only those in use.
    """

    mesh: Mesh
    rules: Rules

    def place(self, weights: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        shapes = {f".{name}": weight.shape for name, weight in weights.items()}
        shardings = apply_rules(self.rules, shapes, self.mesh)
        return {name: jax.lax.with_sharding_constraint(value, shardings[f".{name}"]) for name, value in weights.items()}


RematPolicy = Callable[..., Any]
"""A policy of `jax.checkpoint_policies`: which values are kept for the gradient, and not computed again."""

PRODUCT = "product"
WIDE_PRODUCT = "wide product"
NARROW_PRODUCT = "narrow product"
"""What outputs of layers that `name_products` chose are called in a policy: with as many features as what they were
made of, with more, as in a feed-forward, and with fewer, as behind one."""

_running_layer: contextvars.ContextVar[LayerPlacement | None] = contextvars.ContextVar("running_layer", default=None)
_remat: contextvars.ContextVar[RematPolicy | None] = contextvars.ContextVar("remat", default=None)
_scales: contextvars.ContextVar[Mapping["ScannedLayers", Mapping[str, jax.Array]]] = contextvars.ContextVar(
    "scales", default=MappingProxyType({})
)


Carry = tuple[jax.Array, ...]
RunStack = Callable[[Callable[..., Carry], Carry], Carry]
"""(runs all layers of a list on what they carry, what they carry now) -> what they carry afterwards."""


class TracedModule:
    """A torch module as `call(weights, ...)`, for use inside `jax.jit`."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module: Any = module.eval().requires_grad_(requires_grad=False)
        self.rounds_inputs = False  # of linear layers whose weights are int8 (row_scales.py)
        get_environment()  # which builds two small programs: now, when none is counted

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of everything a checkpoint must provide."""
        names = self.module.state_dict(keep_vars=True)
        return {name: tuple(value.shape) for name, value in names.items()}

    @property
    def has_scans(self) -> bool:
        """Whether equal layers of it run as a scan."""
        return any(STACK in name for name in self.parameter_shapes())

    def constant_buffers(self) -> dict[str, jax.Array]:
        """Buffers that are not in checkpoints (position ids, rotary tables); part of the weights passed to `call`."""
        saved = self.module.state_dict()
        buffers = {name: value for name, value in self.module.named_buffers() if name not in saved}
        return {name: jnp.asarray(value.numpy()) for name, value in buffers.items()}

    def call_after(self, pattern: str, function: Callable[[jax.Array], jax.Array]) -> None:
        """Passes outputs of submodules with a matching name through `function` from now on."""

        def run(_module: torch.nn.Module, _args: Any, output: Any) -> Any:
            environment = get_environment()
            return environment.j2t_iso(function(environment.t2j_iso(output)))

        for name, submodule in self.module.named_modules():
            if re.search(pattern, name):
                submodule.register_forward_hook(run)

    def call_before(self, pattern: str, function: Callable[[jax.Array], jax.Array]) -> None:
        """Passes hidden states given to submodules with a matching name through `function` from now on."""

        def run(_module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
            states = {name: value for name, value in kwargs.items() if name.endswith("hidden_states")}
            args, states = (
                tree_map_only(torch.Tensor, functools.partial(call_jax, function), own) for own in (args, states)
            )
            return args, kwargs | states

        for name, submodule in self.module.named_modules():
            if re.search(pattern, name):
                submodule.register_forward_pre_hook(run, with_kwargs=True)

    def call(
        self,
        weights: Mapping[str, jax.Array],
        *args: Any,
        method: Callable[..., Any] | None = None,
        input_shardings: Mapping[str, NamedSharding] | None = None,
        attention: AttentionAxes | None = None,
        pictures: PictureAxes | None = None,
        running_layer: LayerPlacement | None = None,
        remat: RematPolicy | None = None,
        stacks: Mapping[str, tuple[tuple[str, ...], RunStack]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs `forward`, or `method(module, ...)`, on JAX arrays and returns JAX arrays in the same structure.

        `input_shardings` says how the first argument of the submodules named there lies on the mesh, `attention` how
        long attentions do, `pictures` how what is convolved does, `running_layer` how the weights of one layer of a
        scan do while it runs. With `remat` a gradient computes again what the policy does not keep of layers in a scan,
        and of those that `repeat_for_gradient` chose. `stacks` maps names of lists of layers to the inputs that each
        layer hands to the next, in the order in which it returns them, and to what decides whether they run (Stack).
        """
        environment = get_environment()
        run = method or type(self.module).__call__
        with scales_known(rounds_inputs=self.rounds_inputs):
            weights, scales = part_stacks(weights)
            weights_t, args_t, kwargs_t = environment.j2t_iso((weights, args, kwargs))
            with (
                environment,
                torch.nn.utils.stateless._reparametrize_module(self.module, weights_t),  # noqa: SLF001 - functional_call reaches only forward
                _inputs_constrained(self.module, input_shardings or {}),
                axes_as(attention, pictures),
                set_within(_running_layer, running_layer),
                set_within(_remat, remat),
                set_within(_scales, _deal_out(self.module, scales)),
                _stacks_replaced(self.module, stacks or {}),
            ):
                result = run(self.module, *args_t, **kwargs_t)
        return environment.t2j_iso(result)


class ScannedLayers(torch.nn.Module):
    """A list of identical layers that runs as one `jax.lax.scan`, so that a program holds one layer and not all.

    Takes the place of the ModuleList in a model whose forward goes through it with `for layer in layers`, or through a
    slice that leaves nothing out. A parameter `layers.0.x`, `layers.1.x`, ... becomes one `layers.every_layer.x` with
    the layers along its first axis. `carried` names the inputs that each layer hands to the next, in the order in which
    it returns them.
    """

    def __init__(self, layers: torch.nn.ModuleList, *, carried: tuple[str, ...]) -> None:
        super().__init__()
        self.every_layer = layers[0]
        self._count = len(layers)
        self._carried = carried
        self._signature = inspect.signature(layers[0].forward)
        self._outputs: list[Any] | None = None
        for module in self.every_layer.modules():
            for name, parameter in module.named_parameters(recurse=False):
                stacked = torch.empty((len(layers), *parameter.shape), device="meta", dtype=parameter.dtype)
                module.register_parameter(name, torch.nn.Parameter(stacked, requires_grad=False))

    def __iter__(self) -> Iterator["ScannedLayers"]:
        yield self

    def __getitem__(self, index: slice) -> "ScannedLayers":
        assert len(range(*index.indices(self._count))) == self._count, "a stack runs as a whole"
        return self

    @contextlib.contextmanager
    def outputs_kept(self) -> Iterator[list[Any]]:
        """Gives a list that a call inside fills with the first output of each layer."""
        self._outputs = []
        try:
            yield self._outputs
        finally:
            self._outputs = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        environment = get_environment()
        bound = self._signature.bind(*args, **kwargs)
        extra = bound.arguments.pop("kwargs", {})
        inputs = {**bound.arguments, **extra}
        carry = environment.t2j_iso(tuple(inputs.pop(name) for name in self._carried))
        stacked = environment.t2j_iso(dict(self.every_layer.named_parameters())) | dict(_scales.get().get(self, {}))

        keeps_outputs = self._outputs is not None

        def step(carry: tuple[jax.Array, ...], weights: dict[str, jax.Array]) -> tuple[tuple[jax.Array, ...], Any]:
            if (placement := _running_layer.get()) is not None:
                weights = placement.place(weights)
            carry_t, weights_t = environment.j2t_iso((carry, widen(weights)))
            carried = dict(zip(self._carried, carry_t, strict=True))
            with torch.nn.utils.stateless._reparametrize_module(self.every_layer, weights_t):  # noqa: SLF001 - as in TracedModule
                result = self.every_layer(**carried, **inputs)
            carry = environment.t2j_iso(result if isinstance(result, tuple) else (result,))
            return carry, carry[0] if keeps_outputs else None

        policy = _remat.get()
        # A scan keeps the compiler from joining what is computed twice.
        body = step if policy is None else jax.checkpoint(step, policy=policy, prevent_cse=False)
        last, outputs = jax.lax.scan(body, carry, stacked)
        if self._outputs is not None:
            self._outputs += environment.j2t_iso([outputs[layer] for layer in range(self._count)])
        result = environment.j2t_iso(last)
        return result if len(result) > 1 else result[0]


class Stack(torch.nn.Module):
    """A whole list of layers in place of its ModuleList or ScannedLayers, so that `run` decides whether they run."""

    def __init__(self, layers: Any, carried: tuple[str, ...], run: RunStack) -> None:
        super().__init__()
        self._layers = layers
        self._carried = carried
        self._run = run
        first = layers if isinstance(layers, ScannedLayers) else layers[0]
        self._signature = inspect.signature(first.forward)

    def __iter__(self) -> Iterator["Stack"]:
        yield self

    def __len__(self) -> int:
        return len(self._layers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        environment = get_environment()
        bound = self._signature.bind(*args, **kwargs)
        extra = bound.arguments.pop("kwargs", {})
        inputs = {**bound.arguments, **extra}
        carry = environment.t2j_iso(tuple(inputs.pop(name) for name in self._carried))

        def compute(*carry: jax.Array) -> Carry:
            values = environment.j2t_iso(carry)
            for layer in self._layers:
                result = layer(**dict(zip(self._carried, values, strict=True)), **inputs)
                values = result if isinstance(result, tuple) else (result,)
            return environment.t2j_iso(tuple(values))

        result = environment.j2t_iso(self._run(compute, carry))
        return result if len(result) > 1 else result[0]


def _deal_out(module: torch.nn.Module, scales: Mapping[str, jax.Array]) -> dict[ScannedLayers, dict[str, jax.Array]]:
    """Returns each stack's own scales, by names within a layer."""
    if not scales:
        return {}
    starts = {f"{name}{STACK}": one for name, one in module.named_modules() if isinstance(one, ScannedLayers)}
    return {
        one: {name.removeprefix(start): scale for name, scale in scales.items() if name.startswith(start)}
        for start, one in starts.items()
    }


def repeat_for_gradient(module: torch.nn.Module, kinds: tuple[type[torch.nn.Module], ...]) -> None:
    """Lets submodules of these kinds, outermost ones, be computed again for a gradient where a call has `remat`.

    Layers in a scan are anyway. None of these submodules may hold a scan: computed again as a whole, it would keep its
    layers' weights next to what they compute, all of them once more.
    """
    if isinstance(module, ScannedLayers):
        return
    if isinstance(module, kinds):
        assert not any(isinstance(one, ScannedLayers) for one in module.modules()), "a scan repeats its own layers"
        _make_repeatable(module)
        return
    for child in module.children():
        repeat_for_gradient(child, kinds)


def _make_repeatable(module: Any) -> None:
    forward = module.forward

    def run(*args: Any, **kwargs: Any) -> Any:
        policy = _remat.get()
        if policy is None:
            return forward(*args, **kwargs)
        environment = get_environment()
        leaves, structure = tree_flatten((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def compute(values: Any) -> Any:
            filled = [*leaves]
            for place, value in zip(places, environment.j2t_iso(values), strict=True):
                filled[place] = value
            own_args, own_kwargs = tree_unflatten(filled, structure)
            return environment.t2j_iso(forward(*own_args, **own_kwargs))

        values = environment.t2j_iso([leaves[place] for place in places])
        return environment.j2t_iso(jax.checkpoint(compute, policy=policy)(values))

    module.forward = run


def name_products(
    module: torch.nn.Module, kinds: tuple[type[torch.nn.Module], ...], *, besides: type[torch.nn.Module]
) -> None:
    """Names outputs of submodules of these kinds, outermost ones, by `name_product`, so that a policy can keep them.

    Those of kind `besides` name their own.
    """
    if isinstance(module, besides):
        return
    if not isinstance(module, kinds):
        for child in module.children():
            name_products(child, kinds, besides=besides)
        return

    def name(_module: torch.nn.Module, args: Any, output: torch.Tensor) -> Any:
        return name_product(output, args[0] if args else output)

    module.register_forward_hook(name)


def name_product(product: Any, inputs: torch.Tensor) -> Any:
    """Names a layer's output PRODUCT, WIDE_PRODUCT or NARROW_PRODUCT."""
    more = product.shape[-1] - inputs.shape[-1]
    name = WIDE_PRODUCT if more > 0 else NARROW_PRODUCT if more < 0 else PRODUCT
    return call_jax(functools.partial(checkpoint_name, name=name), product)


def scan_if_long(
    layers: torch.nn.ModuleList, *, carried: tuple[str, ...] = ("hidden_states",), at_least: int = SCAN_FROM
) -> torch.nn.ModuleList | ScannedLayers:
    """Turns a model's list of layers into a scan, or leaves it when it is short."""
    return ScannedLayers(layers, carried=carried) if len(layers) >= at_least else layers


def call_for_layers(model: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Calls a transformers model; gives its output and its hidden states as transformers counts them, embeddings first.

    transformers collects them from hooks on each layer, which a scan runs into only once. The last one may be the
    model's last hidden state, normed; for a scan None stands in place of the embeddings.
    """
    stack = next((module for module in model.modules() if isinstance(module, ScannedLayers)), None)
    if stack is None:
        output = model(*args, output_hidden_states=True, **kwargs)
        return output, output.hidden_states
    with stack.outputs_kept() as outputs:
        output = model(*args, **kwargs)
    return output, (None, *outputs[:-1], output.last_hidden_state)


@contextlib.contextmanager
def _stacks_replaced(module: torch.nn.Module, stacks: Mapping[str, tuple[tuple[str, ...], RunStack]]) -> Iterator[None]:
    kept = {name: module.get_submodule(name) for name in stacks}
    for name, (carried, run) in stacks.items():
        setattr(module, name, Stack(kept[name], carried, run))
    try:
        yield
    finally:
        for name, layers in kept.items():
            setattr(module, name, layers)


@contextlib.contextmanager
def _inputs_constrained(module: torch.nn.Module, shardings: Mapping[str, NamedSharding]) -> Iterator[None]:
    def constrain(
        sharding: NamedSharding, _module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        environment = get_environment()
        place = lambda value: environment.j2t_iso(  # noqa: E731
            jax.lax.with_sharding_constraint(environment.t2j_iso(value), sharding)
        )
        if args:
            return (place(args[0]), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, kwargs | {name: place(kwargs[name])}

    handles = [
        module.get_submodule(name).register_forward_pre_hook(functools.partial(constrain, sharding), with_kwargs=True)
        for name, sharding in shardings.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
