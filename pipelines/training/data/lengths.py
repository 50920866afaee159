"""Captions that are longer than a training reads: their ends are not learnt, which is said before it begins.

Not here: how pieces are counted (prompts/reading.py).
"""

from collections.abc import Callable, Sequence

from pipelines.messages import Message, say_count
from pipelines.models.catalog import Model
from pipelines.prompts.reading import read_caption
from pipelines.training.data.captions import list_captions
from pipelines.training.data.examples import Example, list_names


def list_too_long(
    examples: Sequence[Example], model: Model, *, trigger: str, write_prompt: Callable[[str], str]
) -> tuple[Message, ...]:
    """Says which examples have a caption, with the trigger, of which the model reads only the beginning.

    `write_prompt` makes a prompt of a caption, as for encoding. Nothing is said where the tokenizer is not here yet.
    """
    cut: dict[str, int] = {}
    limit = 0
    for example in examples:
        for caption in list_captions(example, trigger=trigger):
            reading = read_caption(model, write_prompt(caption))
            if reading is None:
                return ()
            if reading.unread:
                limit = reading.limit
                cut[example.id] = max(reading.count, cut.get(example.id, 0))
    if not cut:
        return ()
    return (
        say_count(
            "{count} caption is longer than {model} reads, and what comes after {limit} word pieces is not learnt: "
            "{names}",
            "{count} captions are longer than {model} reads, and what comes after {limit} word pieces is not learnt: "
            "{names}",
            count=len(cut),
            model=model.title,
            limit=limit,
            names=list_names([f"{name} ({count})" for name, count in cut.items()]),
        ),
    )
