"""What a family's code must offer to be loaded, run and planned: the door `architecture.py` of its folder.

registry.py finds an `ARCHITECTURE` by the family's name and is the only one to know where it lies; planning and packing
ask for one there too. loading.py implements it for checkpoints in diffusers layout, so that a family says only what
differs. Meshes, shardings and arrays are `Any` here, so that this file is read without jax.
Not here: what a loaded model does (stages.py), and what is known without the code (traits.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pipelines.catalog import Model, Shape
from pipelines.references import References
from pipelines.stages import STAGES, Family, OnProgress


class Parts(Protocol):
    """What a model consists of: of a loaded one arrays on the mesh, of a described one their shapes and placements."""

    @property
    def mesh(self) -> Any: ...

    @property
    def modules(self) -> Mapping[str, Any]:
        """Component -> its module, a `TracedModule`."""
        ...

    @property
    def weights(self) -> dict[str, dict[str, Any]]:
        """Component -> parameter -> array, of the components whose stages are loaded."""
        ...


class Loaded(Family, Protocol):
    """A loaded model, before anything of it is warm: who loaded it may still say how it shall run."""

    remote_encoder: Any
    """The `RemoteEncoder` that reads its prompts; None where its own text encoder does."""

    def make_many_at_once(self) -> None:
        """From now on programs are made for as many outputs as cost no more than one."""
        ...

    def use_packs(self, packs: Any, /) -> None:
        """From now on programs are loaded from these `Packs` rather than compiled."""
        ...


class FamilyPrograms(Protocol):
    """Which programs a shape needs: the family's module `programs`.

    The worker, plans and packs compile exactly these, so that what one made another finds.
    """

    def lay_out(
        self, parts: Any, shape: Shape, *, batch_size: int, uses_cfg: bool, references: References | None = None
    ) -> Any:
        """How the arrays of one run lie on the mesh: a `Layout` (layout.py), or one like it."""
        ...

    def list_programs(self, parts: Any, layout: Any) -> Sequence[Any]:
        """The programs of the loaded stages.

        A key begins with what its program does for a job: `encode`, `image`, `condition`, `reference`, `denoise`,
        `preview` or `decode`.
        """
        ...


class Architecture(Protocol):
    """One family's code."""

    @property
    def programs(self) -> FamilyPrograms: ...

    def find(
        self, model: Model, *, on_progress: OnProgress, stages: Sequence[str] = STAGES, verify_weights: bool = False
    ) -> Path:
        """The checkpoint's folder, downloaded if need be; raises ModelError with what to do when it cannot."""
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
        """Downloads if need be, builds, reads and shards; raises ModelError with what to do when it cannot.

        With fewer `stages` only their weights are read, and only their methods may be called. In `layouts` weights are
        kept as they lie on the mesh.
        """
        ...

    def describe(self, model: Model, mesh: Any) -> Parts:
        """The same from configs alone (sources.find_configs): nothing is read, and the mesh's devices need not be here.

        Raises ModelError and MeshError.
        """
        ...

    def choose_sizes(self, model: Model, device_count: int, /) -> dict[str, int]:
        """Axes and sizes of the mesh on which so many devices make one output soonest."""
        ...

    def share_steps(self, model: Model, parts: Any, shape: Shape, /) -> Mapping[str, int]:
        """Component -> how many of an output's steps it denoises, in the order in which they take over."""
        ...
