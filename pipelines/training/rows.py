"""The rows that a training learns from: every caption's embeddings and every picture's latents, made once and kept.

What a batch holds is known for every step beforehand (data/batches.py), so everything is encoded before the first
step; then text encoders and autoencoder leave the devices. Rows are kept by content: a changed picture, cut, caption or
encoder is another key, so nothing can be stale.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.catalog import Shape
from pipelines.families.trainable import Cutting, Learner, Rows
from pipelines.training.data.batches import Row, Schedule
from pipelines.training.data.buckets import Cut
from pipelines.training.data.cache import Cache, make_key
from pipelines.training.data.captions import CaptionRules, write_caption
from pipelines.training.data.pixels import read_pixels
from pipelines.training.data.sources import Example
from pipelines.training.encoder import PictureReader, TextReader

OnCount = Callable[[int, int], None]
"""Called with how many are done, and of how many."""


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Makes the arrays of each step's batch from examples, a schedule and the rows kept.

    `text_print` and `picture_print` are fingerprints of what encodes (encoder.py); `host` of `hosts` reads its part.
    """

    examples: Sequence[Example]
    schedule: Schedule
    captions: CaptionRules
    cache: Cache | None
    learner: Learner
    text_print: str
    picture_print: str
    host: int = 0
    hosts: int = 1
    _kept: dict[str, Rows] = field(default_factory=dict[str, Rows])

    def prepare(
        self,
        steps: int,
        open_texts: Callable[[], TextReader],
        open_pictures: Callable[[], PictureReader],
        on_count: OnCount,
    ) -> None:
        """Encodes what the first `steps` steps need and is not kept; opens encoders only if something is missing."""
        texts, pictures = self._list_needed(steps)
        missing_texts = {key: text for key, text in texts.items() if not self._has(key)}
        missing_pictures = {key: one for key, one in pictures.items() if not self._has(key)}
        total, done = len(missing_texts) + len(missing_pictures), 0
        if missing_texts:
            texts_reader = open_texts()
            for key, text in missing_texts.items():
                self._keep(key, texts_reader.read(text))
                on_count(done := done + 1, total)
            texts_reader.close()
        if missing_pictures:
            pictures_reader = open_pictures()
            for key, (example, cut, is_flipped) in missing_pictures.items():
                self._keep(key, pictures_reader.read(read_pixels(example, cut, flip=is_flipped)))
                on_count(done := done + 1, total)
            pictures_reader.close()

    def make_batch(self, step: int) -> dict[str, np.ndarray]:
        """Returns this host's part of a step's batch: arrays with one row each, and their `weight`."""
        rows = self._list_own(step)
        made = [self._make_row(row) for row in rows]
        batch = {name: np.stack([np.asarray(one[name]) for one in made]) for name in made[0]}
        return batch | {"weight": np.asarray([row.weight for row in rows], np.float32)}

    def find_shape(self, step: int) -> Shape:
        """Returns the size of a step's pictures."""
        return self._shape_of(self._list_own(step)[0])

    def _list_own(self, step: int) -> Sequence[Row]:
        rows = self.schedule.rows(step)
        share = len(rows) // self.hosts
        return rows[self.host * share : (self.host + 1) * share]

    def _shape_of(self, row: Row) -> Shape:
        cut = row.cut
        return Shape(width=cut.width, height=cut.height, frames=cut.frames)

    def _make_row(self, row: Row) -> dict[str, Any]:
        example = self.examples[row.example]
        text = self._get(self._text_key(self._caption_of(row)))
        picture = self._get(self._picture_key(example, row.cut, flip=row.flip))
        return {**text, **picture, **self.learner.describe_cut(_describe(example, row.cut))}

    def _caption_of(self, row: Row) -> str:
        return write_caption(self.examples[row.example], row, self.captions)

    def _list_needed(self, steps: int) -> tuple[dict[str, str], dict[str, tuple[Example, Cut, bool]]]:
        texts: dict[str, str] = {}
        pictures: dict[str, tuple[Example, Cut, bool]] = {}
        for step in range(min(steps, self.schedule.period)):
            for row in self._list_own(step):
                example = self.examples[row.example]
                caption = self._caption_of(row)
                texts.setdefault(self._text_key(caption), caption)
                pictures.setdefault(self._picture_key(example, row.cut, flip=row.flip), (example, row.cut, row.flip))
        return texts, pictures

    def _text_key(self, caption: str) -> str:
        return make_key("text", self.text_print, caption)

    def _picture_key(self, example: Example, cut: Cut, *, flip: bool) -> str:
        return make_key("picture", self.picture_print, example.content_hash, repr(cut), str(flip))

    def _has(self, key: str) -> bool:
        return key in self._kept or (self.cache is not None and self.cache.get(key) is not None)

    def _keep(self, key: str, rows: Rows) -> None:
        if self.cache is None:
            self._kept[key] = rows
        else:
            self.cache.put(key, rows)

    def _get(self, key: str) -> Mapping[str, np.ndarray]:
        if key not in self._kept:
            found = self.cache.get(key) if self.cache is not None else None
            assert found is not None, "prepare the rows first"
            self._kept[key] = found
        return self._kept[key]


def _describe(example: Example, cut: Cut) -> Cutting:
    return Cutting(
        original_width=example.width,
        original_height=example.height,
        left=cut.left,
        top=cut.top,
        width=cut.width,
        height=cut.height,
    )
