"""What to do when a model does not fit on the chips all at once: the least change that helps.

In the order in which they cost a user: everything stays on the chips; the text encoder leaves after it has read the
prompt; one component at a time, both of which runtime/room.py does by itself; the text encoder runs elsewhere; a
smaller shape, or more chips.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.catalog import Model, Shape
from pipelines.plan.topologies import TOPOLOGIES, Topology
from pipelines.runtime.room import USABLE


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one stage takes of a chip while it runs, besides the weights of other stages.

    `fits` is whether it does so alone: a compiler that refuses does not always say how many bytes it wanted.
    """

    stage: str
    components: tuple[str, ...]
    fits: bool
    weights_bytes: int
    temp_bytes: int
    code_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.temp_bytes + self.code_bytes


@dataclass(frozen=True, kw_only=True)
class Placement:
    """`kind` is for scripts, `advice` for people; `resident_bytes` is what a chip holds at the worst moment."""

    kind: str
    advice: str
    resident_bytes: int


ENCODE_STAGES = ("encode", "image")


def recommend(
    needs: Sequence[Need],
    weights: Mapping[str, int],
    *,
    topology: Topology,
    model: Model,
    shape: Shape,
) -> Placement:
    """`weights` are bytes a chip of every component. Without a chip (CPU) there is nothing to fit into.

    What stays together must leave as much of the memory as the worker does.
    """
    everything = _hold(needs, weights)
    if topology.chip is None:
        return Placement(kind="all", advice="Everything in the machine's memory.", resident_bytes=everything)
    limit = int(USABLE * topology.chip.hbm_bytes)
    too_large = [need for need in needs if not need.fits]
    if not too_large and everything <= limit:
        return Placement(kind="all", advice="Everything stays on the chips.", resident_bytes=everything)
    later = [need for need in needs if need.stage not in ENCODE_STAGES]
    readers = {name for need in needs if need.stage in ENCODE_STAGES for name in need.components}
    without_readers = _hold(later, {name: size for name, size in weights.items() if name not in readers})
    if not too_large and without_readers <= limit:
        worst = max(without_readers, *(need.total_bytes for need in needs))
        return Placement(
            kind="unload_text_encoder",
            advice="The text encoder waits in the host's memory once the prompt is read; the rest stays on the chips.",
            resident_bytes=worst,
        )
    if not too_large:
        experts = " The two experts take turns at the boundary." if "transformer_2" in weights else ""
        return Placement(
            kind="one_at_a_time",
            advice=f"One component at a time on the chips, the others wait in the host's memory.{experts}",
            resident_bytes=max(need.total_bytes for need in needs),
        )
    worst = max(need.total_bytes for need in too_large)
    stages = {need.stage for need in too_large}
    if stages <= set(ENCODE_STAGES):
        return Placement(
            kind="offload_text_encoder",
            advice="The text encoder does not fit: let another machine read the prompt (--text_encoder_url).",
            resident_bytes=worst,
        )
    advice = [f"{', '.join(sorted(stages))} {'does' if len(stages) == 1 else 'do'} not fit."]
    if not stages & set(ENCODE_STAGES) and all(need.weights_bytes < limit for need in too_large):
        advice += _suggest_shapes(model, shape)
    advice += _suggest_topologies(topology, ratio=max(1.01, worst / topology.chip.hbm_bytes))
    return Placement(kind="does_not_fit", advice=" ".join(advice), resident_bytes=worst)


def _hold(needs: Sequence[Need], weights: Mapping[str, int]) -> int:
    """Weights and programs together, and the largest working memory."""
    return (
        sum(weights.values())
        + sum(need.code_bytes for need in needs)
        + max((need.temp_bytes for need in needs), default=0)
    )


def _suggest_shapes(model: Model, shape: Shape) -> list[str]:
    def measure(one: Shape) -> int:
        return one.width * one.height * one.frames

    smaller = [one for one in model.shapes if measure(one) < measure(shape)]
    if not smaller:
        return []
    frames = "Fewer frames or pixels" if model.is_video else "Fewer pixels"
    return [f"{frames}: --shape {max(smaller, key=measure)}."]


def _suggest_topologies(topology: Topology, *, ratio: float) -> list[str]:
    """Machines with so many times the memory, the smallest first; memory is what can be split over chips."""

    def measure(one: Topology) -> int:
        return one.chips * one.chip.hbm_bytes if one.chip else 0

    larger = [one for one in TOPOLOGIES.values() if measure(one) >= ratio * measure(topology)]
    if not larger:
        return ["It needs more chips than any machine known here has."]
    return [f"Or more chips, such as {min(larger, key=measure).name}."]
