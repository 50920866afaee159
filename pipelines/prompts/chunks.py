"""Cuts a prompt with weights into chunks of a CLIP encoder's length, as A1111 does.

An encoder reads at most 75 word pieces; a longer prompt is read as several texts of that length, whose embeddings are
laid side by side. A chunk does not end within a phrase where a comma is near: what follows the last comma of the last
`MAX_MOVED` pieces moves to the next chunk (A1111's "comma padding backtrack", its default). `BREAK` ends a chunk.
Importable without jax: the page counts with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pipelines.prompts.emphasis import Part

MAX_MOVED = 20


class Piece(NamedTuple):
    """A word piece: the tokenizer's id, and where its letters stand in the tokenized text."""

    id: int
    start: int
    end: int


Tokenize = Callable[[str], Sequence[Piece]]
"""Returns a text's word pieces, without those that mark its beginning and end."""


@dataclass
class Chunk:
    """Word pieces that are encoded as one text, with the weight of each; `texts` are their letters."""

    ids: list[int] = field(default_factory=list[int])
    weights: list[float] = field(default_factory=list[float])
    texts: list[str] = field(default_factory=list[str])
    last_comma: int = -1

    def add(self, id: int, weight: float, text: str) -> None:
        if text.strip() == ",":
            self.last_comma = len(self.ids)
        self.ids.append(id)
        self.weights.append(weight)
        self.texts.append(text)

    def split_after_comma(self) -> "Chunk":
        """Removes and returns what follows the last comma, if that is near enough; else returns an empty chunk."""
        rest = Chunk()
        first = self.last_comma + 1
        if first > 0 and len(self.ids) - first < MAX_MOVED:
            rest.ids, self.ids = self.ids[first:], self.ids[:first]
            rest.weights, self.weights = self.weights[first:], self.weights[:first]
            rest.texts, self.texts = self.texts[first:], self.texts[:first]
        return rest


def cut_into_chunks(parts: Sequence[Part], tokenize: Tokenize, *, length: int) -> list[Chunk]:
    """Returns the chunks, of at most `length` pieces each; at least one, which may be empty."""
    chunks = [Chunk()]
    for part in parts:
        if part.is_break:
            chunks.append(Chunk())
            continue
        end = 0
        for piece in tokenize(part.text):
            text = part.text[end : max(end, piece.end)]  # with the blanks before it
            end = max(end, piece.end)
            if len(chunks[-1].ids) == length:
                is_comma = text.strip() == ","
                chunks.append(Chunk() if is_comma else chunks[-1].split_after_comma())
            chunks[-1].add(piece.id, part.weight, text)
        if chunks[-1].texts:
            chunks[-1].texts[-1] += part.text[end:]
    if len(chunks) > 1 and not chunks[-1].ids:
        chunks.pop()
    return chunks
