"""The toy's code: it draws what the fake family draws, and plans a program of its own."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.families.fake import FakeFamily
from pipelines.families.layout import Layout
from pipelines.families.protocol import Architecture
from pipelines.models.catalog import Model, Shape
from pipelines.models.fingerprints import find_configs
from pipelines.pictures.references import References
from pipelines.runtime.devices.mesh import choose_sizes
from pipelines.runtime.devices.sharding import batch_class
from pipelines.runtime.programs.compiled import Program
from pipelines.stages import STAGES, OnProgress

programs = sys.modules[__name__]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """One layer, as shapes."""

    mesh: Mesh
    modules: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def weights(self) -> dict[str, dict[str, Any]]:
        placed = NamedSharding(self.mesh, PartitionSpec())
        return {"layers": {"weight": jax.ShapeDtypeStruct((3, 3), jnp.float32, sharding=placed)}}


class ToyModel(FakeFamily):
    """A loaded one."""

    remote_encoder: Any = None

    def make_many_at_once(self) -> None:
        self.outputs_at_once = 2

    def use_packs(self, packs: Any) -> None:
        raise AssertionError("nobody made packs of it")


def lay_out(
    parts: Parts, shape: Shape, *, batch_size: int, uses_cfg: bool, references: References | None = None
) -> Layout:
    everywhere = NamedSharding(parts.mesh, PartitionSpec())
    assert references is None or references.count == 1
    return Layout(
        shape=shape,
        outputs=batch_class(batch_size),
        uses_cfg=uses_cfg,
        latents_shape=(3, shape.height, shape.width),
        latents=everywhere,
        rows=everywhere,
    )


def list_programs(parts: Parts, layout: Layout) -> tuple[Program, ...]:
    def denoise(weights: dict[str, jax.Array], latents: jax.Array) -> jax.Array:
        return jnp.einsum("oi,bihw->bohw", weights["weight"], latents)

    return (
        Program(
            key=layout.denoise_key, function=denoise, arguments=(parts.weights["layers"], layout.describe_latents())
        ),
    )


class ToyArchitecture:
    programs = programs

    def find(
        self,
        model: Model,
        *,
        on_progress: OnProgress,
        stages: Sequence[str] = STAGES,
        verify_weights: bool = False,
    ) -> Path:
        return find_configs(model)

    def load(
        self,
        model: Model,
        *,
        mesh: Mesh,
        cache_dir: Path,
        on_progress: OnProgress,
        stages: Sequence[str] = STAGES,
        verify_weights: bool = False,
        layouts: Path | None = None,
    ) -> ToyModel:
        return ToyModel(model, compile_s=0.0, step_s=0.0)

    def describe(self, model: Model, mesh: Mesh) -> Parts:
        assert find_configs(model).is_dir()
        return Parts(mesh=mesh)

    def choose_sizes(self, _model: Model, device_count: int) -> dict[str, int]:
        return choose_sizes(device_count)

    def share_steps(self, model: Model, _parts: Parts, _shape: Shape) -> dict[str, int]:
        return {"layers": model.steps}


ARCHITECTURE: Architecture = ToyArchitecture()
