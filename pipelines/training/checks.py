"""Everything about a training that is known before a weight is read: its data, sizes, batches, and what it will take.

All problems are told at once, by name. Not here: settings by themselves (settings.py).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pipelines.catalog import Model
from pipelines.messages import Message, say, say_count
from pipelines.training.data.batches import Schedule
from pipelines.training.data.captions import CaptionRules
from pipelines.training.data.sources import Example

BATCH_SIZE = 8
"""Pictures a step where nothing is asked, rounded up so that every device has as many."""
MAX_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A training that can begin: `notes` say what was guessed or left out of its data."""

    model: Model
    name: str
    examples: Sequence[Example]
    schedule: Schedule
    captions: CaptionRules
    steps: int
    batch_size: int
    precision: torch.dtype
    card: str
    notes: tuple[Message, ...]

    @property
    def fingerprint(self) -> str:
        """Returns a hash of the pictures and captions, by which a state knows its data."""
        found = hashlib.sha256()
        for example in self.examples:
            found.update(f"{example.content_hash} {example.captions!r} {example.repeats};".encode())
        return found.hexdigest()[:20]

    def describe(self) -> dict[str, Any]:
        """Returns the plan for JSON."""
        return {
            "model": self.model.id,
            "name": self.name,
            "pictures": len(self.examples),
            "buckets": {str(shape): count for shape, count in self.schedule.sizes.items()},
            "steps": self.steps,
            "steps_per_epoch": self.schedule.steps_per_epoch,
            "batch_size": self.batch_size,
            "notes": [str(note) for note in self.notes],
        }

    def tell(self) -> list[Message]:
        """Lists the plan in sentences."""
        epochs = self.steps / self.schedule.steps_per_epoch
        sizes = ", ".join(f"{shape} ({count})" for shape, count in self.schedule.sizes.items())
        return [
            say_count(
                "{count} picture in {sizes}", "{count} pictures in {sizes}", count=len(self.examples), sizes=sizes
            ),
            say(
                "{steps} steps of {batch} pictures: {epochs} times through the data",
                steps=self.steps,
                batch=self.batch_size,
                epochs=f"{epochs:.1f}",
            ),
            *self.notes,
        ]
