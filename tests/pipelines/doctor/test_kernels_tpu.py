"""The TPU compiler takes the doctor's own checks: one that it refuses would switch off a kernel that works."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from pipelines.doctor import kernels
from pipelines.doctor.kernels import CHECKS, Place
from pipelines.plan.topologies import TOPOLOGIES, find_devices
from tests.kept_programs import compile_for_tpu

ON_TPU = [check for check in CHECKS if "tpu" in check.platforms]


class OnlyCompiled:
    """A function that is compiled for a mesh's devices instead of run, and gives zeros."""

    def __init__(self, function: Any, mesh: Mesh, texts: list[str], **options: Any) -> None:
        self.function, self.mesh, self.texts, self.options = function, mesh, texts, options

    def __call__(self, *arguments: Any) -> Any:
        """Whoever splits an array says so, or does it in a shard_map; everything else lies on one device."""
        places = (SingleDeviceSharding(self.mesh.devices.flat[0]), NamedSharding(self.mesh, P()))
        for sharding in (None,) if "in_shardings" in self.options else places:
            shapes = jax.tree.map(functools.partial(_describe, sharding=sharding), arguments)
            try:
                lowered = jax.jit(self.function, **self.options).lower(*shapes)
            except ValueError:  # a shard_map over more devices than one
                continue
            asked = self.options.get("compiler_options")
            self.texts.append(compile_for_tpu(lowered, self.mesh.devices.flat[0], asked))
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), lowered.out_info)
        raise AssertionError("neither one device nor all of them")


def _describe(array: Any, sharding: Any | None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


CASES = [(check, "v6e-8") for check in ON_TPU] + [(check, "v7x-8") for check in ON_TPU if check.name == "attention"]


@pytest.mark.tpu_aot
@pytest.mark.parametrize(("check", "topology"), CASES, ids=lambda one: getattr(one, "name", one))
def test_a_checks_programs_compile_for_tpu(check: Any, topology: str, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = find_devices(TOPOLOGIES[topology])
    mesh, texts = Mesh(np.asarray(devices), ("all",)), list[str]()
    monkeypatch.setattr(kernels.jax, "device_put", lambda x, _where: x)
    monkeypatch.setattr(kernels, "jit", lambda function, **options: OnlyCompiled(function, mesh, texts, **options))
    check.compute(Place(devices=devices, interprets=False))
    has_kernel = any("tpu_custom_call" in text for text in texts)
    assert has_kernel == (check.name not in ("rotary", "operators", "sparse_cores"))
    assert any('execution_thread="sparsecore"' in text for text in texts) == (check.name == "sparse_cores")
