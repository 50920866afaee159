"""The interface that a family's code implements, in its folder's `architecture.py`, to be loaded, run and planned.

Only registry.py knows where a family's `ARCHITECTURE` is; planning and packing get it there too. loading.py implements
the interface for checkpoints in diffusers layout, so that a family declares only what differs. Meshes, shardings and
arrays are `Any` here, so that this file can be imported without jax.
Not here: what a loaded model does (stages.py), and what is known without the code (traits.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pipelines.models.catalog import Model, Shape
from pipelines.pictures.references import References
from pipelines.stages import STAGES, Family, OnProgress


class Parts(Protocol):
    """The parts of a model: a loaded one has arrays on the mesh, a described one only their shapes and shardings."""

    @property
    def mesh(self) -> Any: ...

    @property
    def modules(self) -> Mapping[str, Any]:
        """Maps component -> its module, a `TracedModule`."""
        ...

    @property
    def weights(self) -> dict[str, dict[str, Any]]:
        """Maps component -> parameter -> array, for the components whose stages are loaded."""
        ...


class Loaded(Family, Protocol):
    """A loaded model before anything of it is warm: its caller may still configure how it runs."""

    remote_encoder: Any
    """The `RemoteEncoder` that encodes its prompts, or None to use its own text encoder."""

    def make_many_at_once(self) -> None:
        """Makes later programs compute as many outputs as cost no more time than one."""
        ...

    def use_packs(self, packs: Any, /) -> None:
        """Makes later programs load from these `Packs` instead of being compiled."""
        ...


class FamilyPrograms(Protocol):
    """The family's module `programs`: which programs a shape needs.

    The worker, plans and packs compile exactly these, so that they find each other's results.
    """

    def lay_out(
        self, parts: Any, shape: Shape, *, batch_size: int, uses_cfg: bool, references: References | None = None
    ) -> Any:
        """Returns the placement of one run's arrays on the mesh: a `Layout` (layout.py), or one like it.

        Only a family whose traits have `text_chunks` is asked with `text_chunks`, for more than one, and only one whose
        traits have the kind with a `cache_kind`.
        """
        ...

    def list_programs(self, parts: Any, layout: Any) -> Sequence[Any]:
        """Returns the programs of the loaded stages.

        A key begins with its program's task: `encode`, `image`, `condition`, `reference`, `residual`, `denoise`,
        `preview` or `decode`.
        """
        ...


class Architecture(Protocol):
    """The code of one family."""

    @property
    def programs(self) -> FamilyPrograms: ...

    def find(
        self, model: Model, *, on_progress: OnProgress, stages: Sequence[str] = STAGES, verify_weights: bool = False
    ) -> Path:
        """Returns the checkpoint's folder, downloading it if needed; raises ModelError with advice if that fails."""
        ...

    def load(
        self,
        model: Model,
        *,
        mesh: Any,
        cache_dir: Path,
        on_progress: OnProgress,
        stages: Sequence[str] = STAGES,
        verify_weights: bool = False,
        layouts: Path | None = None,
    ) -> Loaded:
        """Downloads if needed, builds modules, reads and shards weights; raises ModelError with advice if that fails.

        With fewer `stages` only their weights are read, and only their methods may be called. The folder `layouts`
        keeps copies of the weights as they are sharded.
        """
        ...

    def describe(self, model: Model, mesh: Any) -> Parts:
        """Returns the same parts from configs alone (sources.find_configs), without reading weights.

        The mesh's devices need not exist here. Raises ModelError and MeshError.
        """
        ...

    def choose_sizes(self, model: Model, device_count: int, /) -> dict[str, int]:
        """Returns axes and sizes of the mesh on which this many devices make one output fastest."""
        ...

    def share_steps(self, model: Model, parts: Any, shape: Shape, /) -> Mapping[str, int]:
        """Maps denoiser component -> how many of an output's steps it runs, in order of use."""
        ...
