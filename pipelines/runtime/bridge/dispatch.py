"""torchax's environment with a shorter way from an operator of PyTorch to its function of JAX.

torchax 0.0.14 looks through an operator's arguments as trees five times, enters its modes twice and writes a message
that nobody reads: a quarter of what a model takes to trace. Here is what Lumesh needs of that: no autocast, no
debugging, no collectives of PyTorch's.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import torch
import torchax.tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torchax.tensor import TENSOR_CONSTRUCTORS, OperatorNotFound, Tensor
from torchax.view import View

CASTS = frozenset(
    (
        torch.Tensor.to,
        torch.ops.aten.lift_fresh.default,
        torch.ops.aten._to_copy,  # noqa: SLF001 - its only name
        torch.ops.aten._to_copy.default,  # noqa: SLF001
    )
)
NAMESPACES = ("aten", "torchvision", "xla")


class Environment(torchax.tensor.Environment):
    """torchax's registry of operators, its tensors and its random keys; the way to an operator is this class's."""

    def __init__(self) -> None:
        super().__init__()
        self._function_mode: Any = _Functions(self)
        self._dispatch_mode: Any = _Operators(self)

    def dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002 - torchax's own signature
        """Runs an operator; raises OperatorNotFound for one that torchax does not have."""
        kwargs = kwargs or {}
        if func in TENSOR_CONSTRUCTORS:
            return self._handle_tensor_constructor(func, args, kwargs)
        if func in CASTS:
            return self._torch_Tensor_to(args, kwargs)
        kinds = {isinstance(tensor, Tensor | View) for tensor in _find_tensors(args)}
        if kinds == {False}:
            return func(*args, **kwargs)  # of PyTorch's own tensors alone
        with jax.named_scope(torchax.tensor._name_of_func(func)):  # noqa: SLF001 - as profiles have always named them
            operator = self._get_op_or_decomp(func)
            change = self._choose_change(operator)
            args = tuple(_replace(change, one) for one in args)
            kwargs = {name: _replace(change, one) for name, one in kwargs.items()}
            if operator.needs_env:
                kwargs["env"] = self
            if operator.is_jax_function:
                return self.j2t_iso(operator.func(*args, **kwargs))
            with self._dispatch_mode:  # it may consist of others
                return operator.func(*args, **kwargs)

    def j2t_iso(self, jaxarray: Any) -> Any:
        """Wraps the arrays of a tree."""
        return Tensor(jaxarray, self) if isinstance(jaxarray, jax.Array) else super().j2t_iso(jaxarray)

    def _choose_change(self, operator: Any) -> Callable[[torch.Tensor], Any]:
        """Returns what makes of a tensor what the operator takes."""
        if operator.is_jax_function:
            return self._unwrap
        return _keep if operator.is_view_op else _make_whole

    def _unwrap(self, tensor: torch.Tensor) -> Any:
        if isinstance(tensor, Tensor | View):
            return tensor.jax()
        return self.t2j_iso(tensor)  # a number, or refused


def _find_tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _find_tensors(one)
    elif isinstance(value, Mapping):
        yield from _find_tensors(tuple(value.values()))


def _replace(change: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Returns a value with all tensors in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_replace(change, one) for one in value)
    if type(value) is dict:
        return {name: _replace(change, one) for name, one in value.items()}
    return value


def _keep(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _make_whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.torch() if isinstance(tensor, View) else tensor


class _Functions(TorchFunctionMode):
    """Functions and methods of PyTorch; those that torchax does not have become operators."""

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self._environment = environment

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._environment.dispatch(func, types, args, kwargs)
        except OperatorNotFound:
            return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    """Operators that functions of PyTorch consist of."""

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self._environment = environment

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.OpOverloadPacket):  # noqa: SLF001 - PyTorch has no public name for it
            with self:
                return func(*args, **(kwargs or {}))
        if func.namespace not in NAMESPACES:
            return func(*args, **(kwargs or {}))
        return self._environment.dispatch(func, types, args, kwargs)
