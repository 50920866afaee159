"""The questions a plan answers: a model in a shape, on a topology, in a mode; and the list of those in MATRIX.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.models.catalog import Model, Shape
from pipelines.plan.topologies import TOPOLOGIES, Topology

MODES = ("latency", "throughput")
LARGEST = "v6e-8"  # every kind of shape is planned for it
_ALIKE = 0.25  # shapes of as many frames whose pixels differ by less take about the same time and memory
_CROWDS = ("v5e-8", "v6e-8")  # machines that people share, which are also planned for throughput of pictures
_MEMORY = "cpu-8"
_PLANNED = {"v7x-8": ("demo-sdxl", "demo-flux2", "demo-wan", "flux2-klein-4b", "sdxl-base", "wan2.2-a14b")}
"""Machines for which not every model is planned yet: the others are, when somebody asks for them."""
# Families whose models are small or whose plans are not all made yet, and models that are others' but for their weights
# and settings: their plans are made when somebody asks for them.
_WHEN_ASKED = (
    "sd",
    "z_image",
    "sdxl-turbo",
    "flux2-klein-base-4b",
    "flux2-klein-base-9b",
    "wan2.1-i2v-14b-480p",
    "wan2.1-flf2v-14b",
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One plan to make; `mode` is one of MODES."""

    model: Model
    shape: Shape
    topology: Topology
    mode: str = "latency"


def list_matrix(catalogue: Sequence[Model]) -> Iterator[Question]:
    """Yields, for shipped models: default shapes on every topology, all kinds on one, and pictures for throughput.

    On the machines of _PLANNED only some models.
    """
    models = [model for model in catalogue if model.is_demo or (model.path is None and model.file is None)]
    models = [model for model in models if not is_planned_when_asked(model)]
    for topology in TOPOLOGIES.values():
        if topology.chip is None and topology.name != _MEMORY:
            continue
        for model in (one for one in models if one.id in _PLANNED.get(topology.name, (one.id,))):
            shapes = list_kinds(model) if topology.name == LARGEST else [model.default_shape]
            yield from (Question(model=model, shape=shape, topology=topology) for shape in shapes)
            if topology.name in _CROWDS and not model.is_video and not model.is_demo:
                yield Question(model=model, shape=model.default_shape, topology=topology, mode="throughput")


def is_planned_when_asked(model: Model) -> bool:
    """Tells whether no plan of a model ships: it is made when somebody asks for it."""
    return model.family in _WHEN_ASKED or model.id in _WHEN_ASKED


def list_kinds(model: Model) -> list[Shape]:
    """Returns one shape of each kind, the default first: the others need about as much as one of these."""
    kinds: list[Shape] = []
    for shape in (model.default_shape, *model.shapes):
        if not any(is_alike(shape, kind) for kind in kinds):
            kinds.append(shape)
    return kinds


def is_alike(shape: Shape, other: Shape) -> bool:
    """Tells whether two shapes have as many frames, and nearly as many pixels."""
    pixels, others = shape.width * shape.height, other.width * other.height
    return shape.frames == other.frames and abs(pixels - others) <= _ALIKE * max(pixels, others)
