"""The one model that is loaded: swap it, warm it, say which of its shapes are warm.

A swap unloads first: two models at once would need twice the device memory. Before that it makes sure that the other
model is here, so that one that cannot be had, or takes long to come, costs nobody the one that is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pipelines.catalog import Model, Shape
from pipelines.references import References, name_programs
from pipelines.stages import Family, OnProgress, Progress

Loader = Callable[[Model, OnProgress], Family]
Finder = Callable[[Model, OnProgress], object]


@dataclass
class Resident:
    """Holds at most one family. `load` is how a model becomes one (registry or fake).

    `find` brings its files here, and raises ModelError when it cannot.
    """

    load: Loader
    find: Finder = lambda _model, _on_progress: None
    family: Family | None = None
    references: set[tuple[Shape, References]] = field(default_factory=set[tuple[Shape, References]])
    """What the family was warmed for beside its shapes; too many combinations to ask for each."""

    @property
    def model_id(self) -> str | None:
        return self.family.model.id if self.family else None

    def become(self, model: Model, on_progress: OnProgress) -> tuple[Family, float | None]:
        """The model's family, and the seconds its load took now; None when it was resident already."""
        if self.family is not None and self.family.model.id == model.id:
            return self.family, None
        if self.family is not None:
            self.find(model, on_progress)
            on_progress(Progress(phase="unloading", detail=self.family.model.title))
            self.family.unload()
            self.family = None
            self.references.clear()
        self.family = self.load(model, on_progress)
        return self.family, self.family.load_s

    def describe_shapes(self) -> dict[str, str]:
        """Each shape of the resident model as `warm`, `disk` or `cold`, and those with references that were warmed."""
        if self.family is None:
            return {}
        known = [(shape, None) for shape in self.family.model.shapes] + sorted(self.references, key=str)
        return {name_programs(*one): self.family.shape_state(*one) for one in known}
