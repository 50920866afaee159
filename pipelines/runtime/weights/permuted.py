"""Weights that are read in another order than they are stored in.

Packed projections are dealt out so that tensor parallelism splits them on heads and gates.

One weight often holds several projections, one after the other (q|k|v|gate|up). Cut in even parts, a device would get
all of q and a piece of k; dealt out, part p holds slice p of every block, which is the same layer, smaller.

Layers that run as a scan (bridge/modules.ScannedLayers) have one weight for all, with the layers along its first axis.
Convolutions may have the layout of their kernel (taps.py). Weights are reordered while reading, slice by slice.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelines.runtime.devices.sharding import STACK
from pipelines.runtime.kernels.taps import LANES, TAPS, find_flat_shape
from pipelines.runtime.weights.resolve import split_layers
from pipelines.runtime.weights.stored import Destination, Runs, WeightSource


@dataclass(frozen=True, kw_only=True)
class PermutedTensor:
    """A stored weight whose `blocks` (sizes along `axis`) are dealt out to `parts` devices."""

    stored: WeightSource
    axis: int
    blocks: tuple[int, ...]
    parts: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
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

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
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


def stack_layers(sources: Mapping[str, WeightSource], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, WeightSource]:
    """What each parameter in `shapes` is read from, where `sources` have the layers of a stack each on their own."""
    return {
        name: StackedTensor(layers=[sources[layer] for layer in split_layers(name, shape)])
        if STACK in name
        else sources[name]
        for name, shape in shapes.items()
    }


@dataclass(frozen=True, kw_only=True)
class TapsTensor:
    """A convolution's stored weight (O, I, 3, 3) as `taps.block_taps` turns it: a matrix for each block of outputs.

    Padding is left as it is: zeros.
    """

    stored: WeightSource

    @property
    def shape(self) -> tuple[int, ...]:
        return find_flat_shape(self.stored.shape)

    def plan(self, destinations: Sequence[Destination]) -> Iterator[Runs]:
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


def turn_convolutions(sources: Mapping[str, WeightSource], names: Collection[str]) -> dict[str, WeightSource]:
    """`sources`, in which the weights of these `names` are read as the kernel takes them."""
    return {name: TapsTensor(stored=source) if name in names else source for name, source in sources.items()}
