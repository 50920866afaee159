"""Which pictures each step trains: a pure function of the step, so that a run goes on exactly where it was.

Epoch e is a permutation, by the seed and e, of batches that each hold pictures of one bucket, themselves permuted.
Each picture comes exactly `repeats` times an epoch, whatever the batch and the number of hosts: a batch that is not
full is filled with rows of weight 0, which are computed and count nothing.
Not here: pixels and captions of a row (pixels.py, captions.py), sizes (buckets.py).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipelines.errors import LumeshError
from pipelines.messages import say
from pipelines.training.data.examples import Example


class BatchError(LumeshError):
    """A batch that cannot be shared out, or data that has nothing to draw from."""

    title = say("The batch does not fit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a batch: the example's number, and how it is used this time.

    `weight` is 0 for a row that only fills the batch; `crop` numbers the cut's place, None for the middle;
    `occurrence` counts the example's repeats within the epoch.
    """

    index: int
    weight: float
    flip: bool
    crop: int | None
    epoch: int
    occurrence: int


@dataclass(frozen=True, eq=False)
class _Epoch:
    """One epoch's batches in their order: bucket numbers, and items (example, occurrence) with -1 where filled."""

    buckets: np.ndarray
    examples: np.ndarray
    occurrences: np.ndarray


class Schedule:
    """Batches without end over examples in buckets.

    `buckets` are lists of the examples' numbers; `crops` is in how many places a picture may be cut, 0 for the middle
    only. Rows of prior examples weigh `prior_weight`.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        buckets: Sequence[Sequence[int]],
        *,
        batch: int,
        seed: int,
        prior_weight: float = 1.0,
        flips: bool = False,
        crops: int = 0,
    ) -> None:
        self._examples = examples
        self._buckets = [np.asarray(members, np.int64) for members in buckets if len(members)]
        self._numbers = [number for number, members in enumerate(buckets) if len(members)]
        self._batch, self._seed = batch, seed
        self._prior_weight, self._flips, self._crops = prior_weight, flips, crops
        if batch < 1 or not self._buckets:
            raise BatchError(say("A batch of {batch} cannot be drawn from {count} pictures.", batch=batch, count=0))
        self._repeats = [np.asarray([examples[at].repeats for at in members]) for members in self._buckets]
        self._plan_epoch = lru_cache(maxsize=2)(self._draw_epoch)  # workers prepare the next while one is trained

    @property
    def steps_per_epoch(self) -> int:
        """How many steps an epoch has: each bucket's batches, the last of each filled up."""
        return sum(-(-int(repeats.sum()) // self._batch) for repeats in self._repeats)

    def find_bucket(self, step: int) -> int:
        """Returns the number of the step's bucket, the same for all hosts."""
        epoch, place = divmod(step, self.steps_per_epoch)
        return self._numbers[int(self._plan_epoch(epoch).buckets[place])]

    def rows(self, step: int, *, host: int = 0, hosts: int = 1) -> list[Row]:
        """Returns the rows of this host, each `hosts`-th from `host` on: exactly `batch` for a single host."""
        if self._batch % hosts:
            raise BatchError(
                say("A batch of {batch} cannot be shared by {hosts} hosts.", batch=self._batch, hosts=hosts),
                advice=say("Choose a multiple of {hosts}.", hosts=hosts),
            )
        epoch, place = divmod(step, self.steps_per_epoch)
        plan = self._plan_epoch(epoch)
        return [self._make_row(plan, epoch, place, at) for at in range(host, self._batch, hosts)]

    def _make_row(self, plan: _Epoch, epoch: int, place: int, at: int) -> Row:
        occurrence = int(plan.occurrences[place, at])
        index = int(plan.examples[place, at])
        draws = hashlib.sha256(f"row {self._seed} {epoch} {place} {at}".encode()).digest()
        weight = self._prior_weight if self._examples[index].is_prior else 1.0
        return Row(
            index=index,
            weight=0.0 if occurrence < 0 else weight,
            flip=self._flips and draws[0] % 2 == 1,
            crop=int.from_bytes(draws[1:9]) % self._crops if self._crops else None,
            epoch=epoch,
            occurrence=max(occurrence, 0),
        )

    def _draw_epoch(self, epoch: int) -> _Epoch:
        draw = np.random.Generator(np.random.Philox(key=_make_key(f"epoch {self._seed} {epoch}")))
        buckets, examples, occurrences = [], [], []
        for number, (members, repeats) in enumerate(zip(self._buckets, self._repeats, strict=True)):
            items = np.repeat(members, repeats)
            counts = np.concatenate([np.arange(count) for count in repeats])
            order = np.argsort(draw.random(len(items)), kind="stable")
            batches = -(-len(items) // self._batch)
            padding = batches * self._batch - len(items)
            # A filled row repeats a real one: its pixels are at hand, and its values are finite.
            filled = np.concatenate([items[order], np.full(padding, items[order[-1]])])
            examples.append(filled.reshape(batches, self._batch))
            counted = np.concatenate([counts[order], np.full(padding, -1, counts.dtype)])
            occurrences.append(counted.reshape(batches, self._batch))
            buckets.append(np.full(batches, number))
        shuffled = np.argsort(draw.random(self.steps_per_epoch), kind="stable")
        return _Epoch(
            np.concatenate(buckets)[shuffled], np.concatenate(examples)[shuffled], np.concatenate(occurrences)[shuffled]
        )


def hold_out(
    examples: Sequence[Example], validation: float | Sequence[Example]
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Splits examples into those to train and those to validate with, by their content alone.

    A share holds out so many, at least one and never the last; other examples hold out whatever is equal to one of
    them. Prior examples are always trained. Equal files are on the same side.
    """
    if isinstance(validation, float | int):
        contents = sorted({one.content for one in examples if not one.is_prior}, key=_rank)
        count = min(max(round(len(contents) * validation), 1), len(contents) - 1) if validation > 0 else 0
        held = set(contents[: max(count, 0)])
        kept = tuple(one for one in examples if not one.is_prior and one.content in held)
    else:
        held, kept = {one.content for one in validation}, tuple(validation)
    return tuple(one for one in examples if one.is_prior or one.content not in held), kept


def _rank(content: str) -> bytes:
    """Returns where a content stands in the order of holding out, unrelated to every other use of its hash."""
    return hashlib.sha256(f"validation {content}".encode()).digest()


def _make_key(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])
