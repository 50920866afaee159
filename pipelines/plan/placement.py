"""Recommends the cheapest change that helps when a model does not fit on the chips all at once.

In order of rising cost to a user: everything stays on the chips; the text encoder is offloaded when the others need its
memory; components take turns (runtime/devices/offload.py does both of these by itself, and its moves are simulated
here); the text encoder runs elsewhere; a smaller shape, or more chips. The last two are extrapolated from the
compiler's answer for this shape on these chips, not compiled.

Tiled decoding is not offered. In answers.jsonl decoding is too large in a single plan, wan2.2-ti2v-5b on a v5e-1, and
there denoising does not fit either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.messages import Message, join, say
from pipelines.models.catalog import Model, Shape
from pipelines.plan.topologies import TOPOLOGIES, Topology
from pipelines.runtime.devices.offload import USABLE, OffloadPolicy

# From the host to a chip. This is an assumption, not measured: three quarters of the 16 GB/s that
# https://jax-ml.github.io/scaling-book/tpus gives for a chip's PCIe (for v6e it gives 32).
HOST_BYTES_PER_S = 12e9

ENCODE_STAGES = ("encode", "image")


@dataclass(frozen=True, kw_only=True)
class Need:
    """The memory that one stage needs on a chip while it runs, without the weights of other stages.

    `runs` is how often an output needs it. `fits` says whether it fits alone: a refusal does not always say how many
    bytes were needed.
    """

    stage: str
    components: tuple[str, ...]
    runs: int
    fits: bool
    weights_bytes: int
    temp_bytes: int
    code_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.temp_bytes + self.code_bytes


@dataclass(frozen=True, kw_only=True)
class Moves:
    """The components that return from host memory to a chip for each new prompt, in order.

    `resident_bytes` is the peak of what the chip holds.
    """

    components: tuple[str, ...]
    moved_bytes: int
    resident_bytes: int

    @property
    def seconds(self) -> float:
        return self.moved_bytes / HOST_BYTES_PER_S


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The recommendation: `kind` is for scripts, `advice` for people; `resident_bytes` is the peak on a chip.

    `moves_s` is the time per output with a new prompt for components to return from host memory.
    """

    kind: str
    advice: Message
    resident_bytes: int
    moves_s: float = 0.0


def recommend(
    needs: Sequence[Need],
    weights: Mapping[str, int],
    *,
    topology: Topology,
    model: Model,
    shape: Shape,
) -> Placement:
    """Recommends a placement; `weights` are every component's bytes per chip. On CPU everything fits.

    Components that stay together must leave as much memory free as the worker does.
    """
    everything = _hold(needs, weights)
    if topology.chip is None:
        return Placement(kind="all", advice=say("Everything in the machine's memory."), resident_bytes=everything)
    limit = int(USABLE * topology.chip.hbm_bytes)
    too_large = [need for need in needs if not need.fits]
    if not too_large and everything <= limit:
        return Placement(kind="all", advice=say("Everything stays on the chips."), resident_bytes=everything)
    later = [need for need in needs if need.stage not in ENCODE_STAGES]
    readers = {name for need in needs if need.stage in ENCODE_STAGES for name in need.components}
    others = {name: size for name, size in weights.items() if name not in readers}
    if not too_large:
        moves = count_moves(needs, weights, limit_bytes=limit)
        is_reader = _hold(later, others) <= limit
        advice = [_tell_moves(moves)]
        if any(need.stage == "denoise_2" for need in needs) and not is_reader:
            advice.append(say("The two experts take turns at the boundary."))
        return Placement(
            kind="unload_text_encoder" if is_reader else "one_at_a_time",
            advice=join(advice),
            resident_bytes=moves.resident_bytes,
            moves_s=moves.seconds,
        )
    worst = max(need.total_bytes for need in too_large)
    stages = {need.stage for need in too_large}
    has_remote = model.traits.has_remote_encoder
    if stages == {"encode"} and has_remote:
        return Placement(
            kind="offload_text_encoder",
            advice=say("The text encoder does not fit: let another machine read the prompt (--text_encoder_url)."),
            resident_bytes=worst,
            moves_s=count_moves(later, others, limit_bytes=limit).seconds,
        )
    advice = [
        say("{stages} does not fit.", stages=next(iter(stages)))
        if len(stages) == 1
        else say("{stages} do not fit.", stages=", ".join(sorted(stages)))
    ]
    shapes = [] if stages & {*ENCODE_STAGES} else _suggest_shapes(too_large, topology, model=model, shape=shape)
    advice += shapes
    advice += _suggest_topologies(needs, topology, is_first=not shapes)
    if has_remote and "encode" in stages:
        advice.append(_suggest_remote(later, topology, instead_of=_find_larger(needs, topology)))
    return Placement(kind="does_not_fit", advice=join(advice), resident_bytes=worst)


def count_moves(needs: Sequence[Need], weights: Mapping[str, int], *, limit_bytes: int) -> Moves:
    """Simulates the Offloader's moves from the second prompt on; `weights` are in loading order.

    Only components that return take time: the host already has a copy of those that leave.
    """
    returned: list[str] = []
    turns = OffloadPolicy(
        limit_bytes=limit_bytes, measure=weights.__getitem__, on_leave=lambda _name: None, on_return=returned.append
    )
    for name, size in weights.items():
        turns.make_room(size, besides=(name,))
        turns.add(name)
    needed = [need for need in needs if need.runs]
    resident_bytes, codes = 0, dict[str, int]()
    for _prompt in range(2):
        returned.clear()
        for need in needed:
            codes[need.stage] = need.code_bytes  # a program that ran once stays in memory
            beside_bytes = need.temp_bytes + sum(codes.values())
            turns.use(*need.components, beside_bytes=beside_bytes)
            resident_bytes = max(resident_bytes, turns.count_present() + beside_bytes)
    moved_bytes = sum(weights[name] for name in returned)
    return Moves(components=tuple(returned), moved_bytes=moved_bytes, resident_bytes=resident_bytes)


def _hold(needs: Sequence[Need], weights: Mapping[str, int]) -> int:
    """Adds up all weights, all programs' code, and the largest working memory."""
    return (
        sum(weights.values())
        + sum(need.code_bytes for need in needs)
        + max((need.temp_bytes for need in needs), default=0)
    )


def _tell_moves(moves: Moves) -> Message:
    time = f"{moves.seconds:.2g} s"
    match tuple(dict.fromkeys(moves.components)):
        case ():
            return say("Components wait in the host's memory while others need their room.")
        case ("text_encoder",):
            return say(
                "The text encoder leaves when others need its room, and is back for every new prompt: about {time}.",
                time=time,
            )
        case ("text_encoder", other):
            return say(
                "For every new prompt the text encoder and the {other} change places: about {time}.",
                other=other,
                time=time,
            )
        case names:
            return say(
                "Components take turns. For every new prompt these come back: {names}, in about {time}.",
                names=", ".join(names),
                time=time,
            )


def _suggest_shapes(too_large: Sequence[Need], topology: Topology, *, model: Model, shape: Shape) -> list[Message]:
    """Suggests the largest shape that fits if working memory shrinks with pixels and frames; weights and code stay.

    It suggests none if the working memory is unknown.
    """
    assert topology.chip is not None
    limit, hbm_bytes = USABLE * topology.chip.hbm_bytes, topology.chip.hbm_bytes

    def measure(one: Shape) -> int:
        return one.width * one.height * one.frames

    def is_enough(one: Shape) -> bool:
        share = measure(one) / measure(shape)
        return share < 1 and all(
            need.weights_bytes + need.code_bytes + share * need.temp_bytes <= limit for need in too_large
        )

    smaller = list(filter(is_enough, model.shapes))
    if not smaller or any(need.total_bytes <= hbm_bytes for need in too_large):
        return []
    largest = max(smaller, key=measure)
    if model.is_video:
        return [say("Fewer frames or pixels fit by estimate: --shape {shape}.", shape=largest)]
    return [say("Fewer pixels fit by estimate: --shape {shape}.", shape=largest)]


def _suggest_topologies(needs: Iterable[Need], topology: Topology, *, is_first: bool) -> list[Message]:
    found = _find_larger(needs, topology)
    if found is None:
        return [say("It needs more chips than any machine known here has.")]
    if is_first:
        return [say("By estimate a {name} has the room.", name=found.name)]
    return [say("Or a larger machine: by estimate a {name} has the room.", name=found.name)]


def _suggest_remote(later: Iterable[Need], topology: Topology, *, instead_of: Topology | None) -> Message:
    """Suggests a remote text encoder, and a machine for the rest unless it is `instead_of`, which holds everything."""
    found = _find_larger(later, topology)
    if found is None or found == instead_of:
        return say("With the text encoder on another machine (--text_encoder_url) the chips hold only the rest.")
    return say(
        "With the text encoder on another machine (--text_encoder_url) by estimate a {name} is enough.", name=found.name
    )


def _find_larger(needs: Iterable[Need], topology: Topology) -> Topology | None:
    """Finds a machine that holds `needs`: the fewest chips of the same kind, else other kinds, most memory first.

    A device's bytes are taken to be split evenly over all devices.
    """
    chip = topology.chip
    assert chip is not None
    wanted = max(need.total_bytes if need.fits else max(need.total_bytes, chip.hbm_bytes + 1) for need in needs)
    machines = [(one, one.chip) for one in TOPOLOGIES.values() if one.chip is not None]
    machines.sort(key=lambda pair: (pair[1] != chip, -pair[1].hbm_bytes, pair[0].chips))
    for one, its in machines:
        if one != topology and wanted * topology.devices <= USABLE * one.devices * its.hbm_bytes:
            return one
    return None
