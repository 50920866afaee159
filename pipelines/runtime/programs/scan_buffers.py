"""Lets a TPU leave unwritten what a scan will write anyway.

jax.lax.scan begins with zeros what it collects of each step: for a gradient, all that its layers keep. The TPU compiler
leaves these zeros out where every step writes its part. But equal arrays of several scans it joins first, and then it
writes the zeros of each: 23 of 161 ms in a step of a LoRA of SDXL on a v6e-8, by its own estimate (plan/TRIED.md). So
for TPU they are arrays of any content from the start, which JAX has for that purpose and its scan does not use yet.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
from jax._src.lax.control_flow import loops  # what begins a scan's arrays has no public name
from jax.extend.core import Primitive
from jax.interpreters import mlir

_unwritten = Primitive("unwritten")
_unwritten.def_abstract_eval(jax.core.ShapedArray)
_zeros: Any = mlir.lower_fun(lambda shape, dtype: jax.lax.full(shape, 0, dtype), multiple_results=False)
_empty: Any = mlir.lower_fun(jax.lax.empty, multiple_results=False)
mlir.register_lowering(_unwritten, _zeros)
mlir.register_lowering(_unwritten, _empty, platform="tpu")


@contextlib.contextmanager
def left_unwritten() -> Iterator[None]:
    """Lets scans that are lowered inside begin like that; elsewhere than on TPU they begin with zeros as ever."""
    begin: Any = loops._empty_array  # noqa: SLF001
    loops._empty_array = functools.partial(_begin, begin)  # noqa: SLF001
    try:
        yield
    finally:
        loops._empty_array = begin  # noqa: SLF001


def _begin(begin: Any, prefix: Any, length_spec: Any, aval: Any) -> Any:
    """Takes what JAX's function takes, which is `begin`."""
    if aval.mat.varying:  # in a shard_map that tells devices apart
        return begin(prefix, length_spec, aval)
    return _unwritten.bind(shape=(*prefix, *aval.shape), dtype=aval.dtype)
