"""How many steps a training has, and what an epoch is: each picture once for each of its repeats, prior ones too.

Prior pictures that the model is still to make are counted from the beginning, so that a plan tells the steps that there
will be, and not those of the pictures that are here already.
Not here: which pictures a step has (data/batches.py).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.messages import Message, say
from pipelines.models.model import Model
from pipelines.training.data.batches import Schedule
from pipelines.training.data.examples import Example
from pipelines.training.data.rows import Data
from pipelines.training.settings import DEFAULT_STEPS, TrainingSettings


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What an epoch takes: its `steps`, and how many of its pictures, with their repeats, are one's `own` or `prior`.

    `made` counts the prior ones that the model is still to make.
    """

    steps: int
    own: int
    prior: int
    made: int

    def tell(self, steps: int, *, batch: int) -> list[Message]:
        """Says how often so many steps go through the data, and what of it is prior."""
        times = {"steps": steps, "batch": batch, "epochs": f"{steps / self.steps:.1f}"}
        told = [say("{steps} steps of {batch} pictures: {epochs} times through the data", **times)]
        if self.prior:
            told = [
                say("{steps} steps of {batch} pictures: {epochs} times through the data, of which {own} are your own "
                    "and {prior} prior ones, counted with their repeats", own=self.own, prior=self.prior, **times)
            ]  # fmt: skip
        if self.made:
            told.append(say("{count} prior pictures are made before the first step", count=self.made))
        return told

    def list_notes(self) -> list[Message]:
        """Says where there is less of one's own than of what the model made, so that little of a step is new."""
        if not self.own or self.prior <= self.own:
            return []
        return [
            say("There are more prior pictures than your own, which are {percent} % of what is learnt; {repeats} "
                "times as many repeats of your own would make it half.",
                percent=max(1, round(100 * self.own / (self.own + self.prior))),
                repeats=math.ceil(self.prior / self.own))
        ]  # fmt: skip


def count_epoch(
    data: Data,
    schedule: Callable[[Sequence[Example]], Schedule],
    model: Model,
    *,
    made: int,
    is_kept: bool,
) -> Epoch:
    """Counts an epoch of the data and of prior pictures still to be `made`, which have the model's default shape.

    `schedule` makes the schedule of data with these. Where what the model knows `is_kept` otherwise (`preserve`), prior
    pictures are no part of an epoch.
    """
    learnt = data.examples
    repeats = [(example.repeats, example.is_prior) for example in learnt]
    prior = 0 if is_kept else made + sum(count for count, is_prior in repeats if is_prior)
    coming = () if is_kept else (_describe_made(model, learnt),) * made
    return Epoch(
        steps=(schedule((*learnt, *coming)) if coming else data.schedule).steps_per_epoch,
        own=sum(count for count, is_prior in repeats if not is_prior),
        prior=prior,
        made=made,
    )


def choose_steps(settings: TrainingSettings, steps_per_epoch: int) -> int:
    """Returns the steps asked for, those of the epochs asked for, or the default of the kind of training."""
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is not None:
        return max(1, math.ceil(settings.epochs * steps_per_epoch))
    return DEFAULT_STEPS[settings.kind]


def _describe_made(model: Model, learnt: Sequence[Example]) -> Example:
    """Returns a picture as the model makes it, of which nothing but its size is known yet."""
    shape = model.default_shape
    return Example(
        id="prior",
        reader=learnt[0].reader,  # which nobody asks
        captions=("",),
        width=shape.width,
        height=shape.height,
        frames=shape.frames,
        fps=float(model.fps or 0),
        is_prior=True,
    )
