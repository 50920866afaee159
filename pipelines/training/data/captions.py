"""What is said of a picture each time it is used: a pure function of the example, the epoch and the seed.

So a run that goes on says the same as one that never stopped, and every host says the same.
Not here: where captions come from (sources.py), their embeddings.
"""

import hashlib
import re
from dataclasses import replace

import numpy as np

from pipelines.training.data.examples import Example

_WORDLY = re.compile(r"[A-Za-z0-9_]")


def write_caption(
    example: Example,
    *,
    epoch: int,
    seed: int,
    occurrence: int = 0,
    trigger: str = "",
    shuffle_tags: bool = False,
    keep_tags: int = 0,
    dropout: float = 0.0,
    is_twin: bool = False,
) -> str:
    """Writes one caption: an alternative drawn, tags shuffled, the trigger in front, or "" at the rate of `dropout`.

    Tags are what commas separate; the first `keep_tags` stay in front, and so does a trigger that is put there. Prior
    examples are neither given the trigger nor dropped: they show what the model's own words mean. With `is_twin` the
    trigger is taken out instead (rows.py).
    """
    draw = _open_draws(example, epoch=epoch, seed=seed, occurrence=occurrence)
    if not example.is_prior and draw.random() < dropout:
        return ""
    caption = example.captions[int(draw.random() * len(example.captions))]
    if shuffle_tags:
        tags = [tag for tag in map(str.strip, caption.split(",")) if tag]
        order = np.argsort(draw.random(max(len(tags) - keep_tags, 0)), kind="stable")
        caption = ", ".join((*tags[:keep_tags], *(tags[keep_tags + at] for at in order)))
    if is_twin:
        return remove_trigger(caption, trigger)
    if example.is_prior or not trigger or has_trigger(caption, trigger):
        return caption
    return f"{trigger}, {caption}" if caption else trigger


def has_trigger(caption: str, trigger: str) -> bool:
    """Returns whether the trigger is in the caption as words of its own, whatever the case of letters."""
    return _match_trigger(trigger).search(caption) is not None


def remove_trigger(caption: str, trigger: str) -> str:
    """Returns a caption without the trigger, an article before it, and a comma that is left over.

    "A zorb, in a meadow" becomes "in a meadow".
    """
    without = _match_trigger(trigger, before=r"(?:\b(?:an?|the)\s+)?").sub("", caption)
    tags = (" ".join(tag.split()) for tag in without.split(","))
    return ", ".join(tag for tag in tags if tag)


def _match_trigger(trigger: str, *, before: str = "") -> re.Pattern[str]:
    start = "(?<![A-Za-z0-9_])" if _WORDLY.match(trigger[0]) else ""
    end = "(?![A-Za-z0-9_])" if _WORDLY.match(trigger[-1]) else ""
    return re.compile(before + start + re.escape(trigger) + end, re.IGNORECASE)


def list_captions(example: Example, *, trigger: str = "") -> list[str]:
    """Lists every caption of an example whose tags are not shuffled, with the trigger, for encoding ahead of time."""
    alone = [replace(example, captions=(caption,)) for caption in example.captions]
    return [write_caption(one, epoch=0, seed=0, trigger=trigger) for one in alone]


def _open_draws(example: Example, *, epoch: int, seed: int, occurrence: int) -> np.random.Generator:
    digest = hashlib.sha256(
        f"caption {seed} {epoch} {occurrence} {example.id}".encode(errors="surrogateescape")
    ).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16])))
