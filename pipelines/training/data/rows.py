"""The rows that a training learns from: every caption's embeddings and every picture's latents, made once and kept.

What a batch holds is known for every step beforehand (data/batches.py), so everything is encoded before the first
step; then text encoders and autoencoder leave the devices. Rows are kept by content: a changed picture, cut, caption or
encoder is another key, so nothing can be stale.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from pipelines.families.trainable import Learner, Rows
from pipelines.training.data import clips
from pipelines.training.data.batches import Row, Schedule
from pipelines.training.data.cache import Cache, Recent, make_key
from pipelines.training.data.captions import write_caption
from pipelines.training.data.cuts import Bucket, Cut
from pipelines.training.data.encoder import PictureReader, TextReader
from pipelines.training.data.examples import Example
from pipelines.training.data.pixels import read_pixels

TWIN = "twin"
"""The array of a batch (B,) that is 1 for twins and 0 for rows that are learnt; CaptionRules says what twins are."""

RECENT_BYTES = 2**31
"""Rows that stay in memory although they are on disk: all of some thousand pictures, a hundred captions of FLUX.2's."""

OnCount = Callable[[int, int], None]
"""Called with how many are done, and of how many; what it raises ends it, and what is done is kept."""


@dataclass(frozen=True, kw_only=True)
class CaptionRules:
    """How captions are written (data/captions.py).

    With `preserve` every row comes with a twin, whose error counts so much: there the model shall predict what it did
    before it learnt. A twin is the same picture described without the trigger. If there are prior pictures of that
    size, half of all twins are these instead, and a quarter are the same picture described as one of these, so that the
    words of many things keep their meaning. Empty captions are then those of twins alone, so that guidance, which
    compares with them, stays as it was.
    """

    seed: int
    trigger: str = ""
    shuffle_tags: bool = False
    keep_tags: int = 0
    dropout: float = 0.0
    preserve: float = 0.0

    def write(self, example: Example, row: Row, *, is_twin: bool) -> str:
        """Writes what is said of an example in this row, or of its twin."""
        return write_caption(
            example,
            epoch=row.epoch,
            occurrence=row.occurrence,
            seed=self.seed,
            trigger=self.trigger,
            shuffle_tags=self.shuffle_tags,
            keep_tags=self.keep_tags,
            dropout=0.0 if self.preserve and not is_twin else self.dropout,
            is_twin=is_twin,
        )


@dataclass(frozen=True, kw_only=True)
class Use:
    """One row of a step's arrays: a picture, and whose caption is said of it."""

    picture: Row
    said: Row
    is_twin: bool = False


@dataclass(frozen=True, kw_only=True)
class Data:
    """Examples, a cut for each, and which of them each step has."""

    examples: Sequence[Example]
    cuts: Sequence[Cut]
    schedule: Schedule

    @cached_property
    def prior(self) -> dict[Bucket, list[int]]:
        """The numbers of each bucket's prior examples."""
        found: dict[Bucket, list[int]] = {}
        for number, (example, cut) in enumerate(zip(self.examples, self.cuts, strict=True)):
            if example.is_prior:
                found.setdefault(cut.bucket, []).append(number)
        return found


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Makes the arrays of each step's batch from data and the rows kept.

    `text_print` and `picture_print` are fingerprints of what encodes (encoder.py). `own(count)` says which of `count`
    rows the devices of this host hold; no others are encoded or read here.
    """

    data: Data
    captions: CaptionRules
    cache: Cache | None
    learner: Learner
    text_print: str
    picture_print: str
    own: Callable[[int], slice] = lambda count: slice(0, count)
    _kept: Recent = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kept", Recent(None if self.cache is None else RECENT_BYTES))

    def prepare(
        self,
        steps: int,
        open_texts: Callable[[], TextReader],
        open_pictures: Callable[[], PictureReader],
        on_count: OnCount,
    ) -> None:
        """Encodes what the first `steps` steps need and is not kept; opens encoders only if something is missing."""
        texts, pictures = self._list_needed(steps)
        texts = {key: text for key, text in texts.items() if not self._has(key)}
        pictures = {key: one for key, one in pictures.items() if not self._has(key)}
        total, done = len(texts) + len(pictures), 0
        if texts:
            with closing(open_texts()) as reader:
                for key, text in texts.items():
                    self._keep(key, reader.read(text))
                    on_count(done := done + 1, total)
        if pictures:
            with closing(open_pictures()) as eye:
                for key, (example, cut, is_flipped) in pictures.items():
                    self._keep(key, eye.read(read_pixels(example, cut, flip=is_flipped)))
                    on_count(done := done + 1, total)

    def make_batch(self, step: int) -> dict[str, np.ndarray]:
        """Returns this host's part of a step's batch: arrays in fp32 with one row each, and their `weight`."""
        made = [self._make_row(use) for use in self._list_own(step)]
        return {name: np.stack([np.asarray(one[name], np.float32) for one in made]) for name in made[0]}

    @property
    def schedule(self) -> Schedule:
        return self.data.schedule

    def find_bucket(self, step: int) -> Bucket:
        """Returns the size of a step's pictures."""
        return self.data.cuts[self.data.schedule.rows(step)[0].index].bucket

    def _list_own(self, step: int) -> list[Use]:
        """Lists this host's rows, each followed by its twin if there are any."""
        rows = self.data.schedule.rows(step)
        uses = [Use(picture=row, said=row) for row in rows]
        if self.captions.preserve:
            twins = [self._choose_twin(row, step * len(rows) + at) for at, row in enumerate(rows)]
            uses = [one for pair in zip(uses, twins, strict=True) for one in pair]
        return uses[self.own(len(uses))]

    def _choose_twin(self, row: Row, number: int) -> Use:
        """Returns the twin of a row, the `number`-th of all so far; prior pictures come in turn."""
        prior = self.data.prior.get(self.data.cuts[row.index].bucket)
        turn, quarter = divmod(number, 4)
        if not prior or quarter == 1:
            return Use(picture=row, said=row, is_twin=True)
        if quarter == 3:
            return Use(picture=row, said=replace(row, index=prior[-1 - turn % len(prior)]), is_twin=True)
        other = replace(row, index=prior[(2 * turn + quarter // 2) % len(prior)])
        return Use(picture=other, said=other, is_twin=True)

    def _make_row(self, use: Use) -> dict[str, Any]:
        row = use.picture
        example, cut = self.data.examples[row.index], self._cut(row)
        text = self._get(self._text_key(self._write(use)))
        picture = self._get(self._picture_key(example, cut, flip=row.flip))
        weight = row.weight * self.captions.preserve if use.is_twin else row.weight
        marked = {TWIN: np.float32(use.is_twin)} if self.captions.preserve else {}
        told = self.learner.describe_cut(cut.list_time_ids(flip=row.flip))
        return {**text, **picture, **told, **marked, "weight": np.float32(weight)}

    def _write(self, use: Use) -> str:
        return self.captions.write(self.data.examples[use.said.index], use.said, is_twin=use.is_twin)

    def _cut(self, row: Row) -> Cut:
        return self.data.cuts[row.index].move(row.crop, content=self.data.examples[row.index].content)

    def _list_needed(self, steps: int) -> tuple[dict[str, str], dict[str, tuple[Example, Cut, bool]]]:
        texts: dict[str, str] = {}
        pictures: dict[str, tuple[Example, Cut, bool]] = {}
        for step in range(steps):
            for use in self._list_own(step):
                row, caption = use.picture, self._write(use)
                example, cut = self.data.examples[row.index], self._cut(row)
                texts.setdefault(self._text_key(caption), caption)
                pictures.setdefault(self._picture_key(example, cut, flip=row.flip), (example, cut, row.flip))
        return texts, pictures

    def _text_key(self, caption: str) -> str:
        return make_key("text", self.text_print, caption)

    def _picture_key(self, example: Example, cut: Cut, *, flip: bool) -> str:
        read = (clips.VERSION,) if example.fps else ()
        return make_key("picture", self.picture_print, example.content, vars(cut), flip, *read)

    def _has(self, key: str) -> bool:
        return (self.cache or self._kept).get(key) is not None

    def _keep(self, key: str, rows: Rows) -> None:
        (self.cache or self._kept).put(key, rows)

    def _get(self, key: str) -> Rows:
        found = self._kept.get(key)
        if found is None:
            found = self.cache.get(key) if self.cache is not None else None
            assert found is not None, "prepare the rows first"
            self._kept.put(key, found)
        return found
