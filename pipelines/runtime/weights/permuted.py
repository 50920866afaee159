"""Weights that are read in another order than they are stored in.

Packed projections are dealt out so that tensor parallelism splits them on heads and gates.

One weight often holds several projections, one after the other (q|k|v|gate|up). Cut in even parts, a device would get
all of q and a piece of k; dealt out, part p holds slice p of every block, which is the same layer, smaller.

Layers that run as a scan (bridge/modules.ScannedLayers) have one weight for all, with the layers along its first axis.
Convolutions may lie as their kernel takes them (conv3x3.py). All orders are made while reading, slice by slice.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelines.errors import ModelError
from pipelines.runtime.devices.sharding import STACK
from pipelines.runtime.kernels.conv3x3 import LANES, TAPS, find_flat_shape
from pipelines.runtime.weights.stored import OTHER_ARCHITECTURE, Destination, Read, StoredTensor, WeightSource, locate


@dataclass(frozen=True, kw_only=True)
class PermutedTensor:
    """A stored weight whose `blocks` (sizes along `axis`) are dealt out to `parts` devices."""

    stored: StoredTensor
    axis: int
    blocks: tuple[int, ...]
    parts: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Read]:
        """Reads of the slices in the new order; along `axis` each must cover whole parts."""
        return self.stored.plan([piece for destination in destinations for piece in self._deal_out(destination)])

    def _deal_out(self, destination: Destination) -> Iterator[Destination]:
        own = destination.index[self.axis]
        size = self.shape[self.axis] // self.parts
        assert own.start % size == 0 == own.stop % size, "a device reads whole parts"
        filled = 0
        for part in range(own.start // size, own.stop // size):
            offset = 0
            for block in self.blocks:
                width = block // self.parts
                place = slice(offset + part * width, offset + (part + 1) * width)
                goes_to = (*(slice(None),) * self.axis, slice(filled, filled + width))
                yield Destination(
                    index=(*destination.index[: self.axis], place, *destination.index[self.axis + 1 :]),
                    array=destination.array[goes_to],
                )
                offset += block
                filled += width


@dataclass(frozen=True, kw_only=True)
class StackedTensor:
    """The same weight of several layers, one after the other along a new first axis."""

    layers: Sequence[WeightSource]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.layers), *self.layers[0].shape)

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Read]:
        for number, layer in enumerate(self.layers):
            yield from layer.plan(
                [
                    Destination(
                        index=destination.index[1:], array=destination.array[number - destination.index[0].start, ...]
                    )
                    for destination in destinations
                    if destination.index[0].start <= number < destination.index[0].stop
                ]
            )


def stack_layers(
    stored: Mapping[str, WeightSource], shapes: Mapping[str, tuple[int, ...]], *, optional_prefix: str = ""
) -> dict[str, WeightSource]:
    """`stored`, and for each stack among `shapes` its layers together.

    `optional_prefix` is what names may begin with here or there, as in `load_weights`. Raises ModelError for a layer
    that is missing, or of another shape than the model's; a stack of which there is nothing is left to `load_weights`.
    """
    stacks: dict[str, WeightSource] = {}
    for name, (count, *shape) in ((name, shape) for name, shape in shapes.items() if STACK in name):
        names = [name.replace(STACK, f".{index}.") for index in range(count)]
        layers = [locate(own, stored, optional_prefix) for own in names]
        if not any(layers):
            continue
        stacks[name] = StackedTensor(layers=[_check(*one, tuple(shape)) for one in zip(names, layers, strict=True)])
    return {**stored, **stacks}


@dataclass(frozen=True, kw_only=True)
class TapsTensor:
    """A convolution's stored weight (O, I, 3, 3) as `taps.block_taps` turns it, a matrix for each block of outputs.

    What fills it up stays as it was: zeros.
    """

    stored: WeightSource

    @property
    def shape(self) -> tuple[int, ...]:
        return find_flat_shape(self.stored.shape)

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Read]:
        """Reads of whole blocks of outputs."""
        return self.stored.plan([piece for destination in destinations for piece in self._turn(destination)])

    def _turn(self, destination: Destination) -> Iterator[Destination]:
        outputs, inputs, *taps = self.stored.shape
        for number, block in enumerate(range(destination.index[0].start, destination.index[0].stop)):
            own = slice(block * LANES, min(outputs, (block + 1) * LANES))
            turned = destination.array[number].reshape(TAPS, -1, TAPS, LANES).transpose(3, 1, 0, 2)
            yield Destination(
                index=(own, slice(0, inputs), *(slice(0, size) for size in taps)),
                array=turned[: own.stop - own.start, :inputs],
            )


def turn_convolutions(
    stored: Mapping[str, WeightSource], shapes: Mapping[str, tuple[int, ...]], names: Collection[str]
) -> dict[str, WeightSource]:
    """`stored`, with the weights of these `names` as the kernel takes them; what is missing is left to `load_weights`.

    Raises ModelError for one of another shape than the model's, which `shapes` has as the checkpoint should.
    """
    found = {name: locate(name, stored, "") for name in names if name in shapes}
    turned = {name: TapsTensor(stored=_check(name, one, shapes[name])) for name, one in found.items() if one}
    return {**stored, **turned}


def _check(name: str, weight: WeightSource | None, shape: tuple[int, ...]) -> WeightSource:
    if weight is None:
        raise ModelError(f"The checkpoint lacks {name}.", advice=OTHER_ARCHITECTURE)
    if weight.shape != shape:
        raise ModelError(
            f"{name} has shape {weight.shape} in the checkpoint; the model expects {shape}.", advice=OTHER_ARCHITECTURE
        )
    return weight
