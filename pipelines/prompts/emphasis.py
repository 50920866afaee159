"""Weights in a prompt, in the syntax that A1111 introduced and most programs share.

`(word)` weighs 1.1, `[word]` 1/1.1, `(word:1.3)` what it says; brackets multiply when they nest, and one that is never
closed lasts to the end. A backslash makes a bracket an ordinary sign. `BREAK` starts a new chunk.
Rules: https://github.com/AUTOMATIC1111/stable-diffusion-webui/wiki/Features#attentionemphasis
Not here: what a weight does to a prompt's embeddings (families/unet/encode.py), chunks (chunks.py).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ROUND = 1.1
SQUARE = 1 / 1.1
MAX_WEIGHT = 100.0  # far beyond what leaves a picture; a thousand brackets would reach infinity

_SIGN = re.compile(r"\\[()\[\]\\]|\\|[(\[\])]")
_CLOSING_WEIGHT = re.compile(r"(?P<text>[^()\[\]\\]*?):\s*(?P<weight>[+-]?(?:\d+\.?\d*|\.\d+))\s*\Z")
_BREAK = re.compile(r"\s*\bBREAK\b\s*")
_EXPLICIT = re.compile(r"(?<!\\)\([^()\n]{1,400}:\s*[+-]?(?:\d+\.?\d*|\.\d+)\s*\)")
_EDITED = re.compile(r"(?<!\\)\[(?:[^\[\]\n]{0,400}:\s*(?:\d+\.?\d*|\.\d+)\s*|[^\[\]|\n]{1,400}\|[^\[\]\n]{0,400})\]")
# `<segment:face>`, `<hypernet:x:1>`, `embedding:x`: LoRA tags are taken from a prompt before this is asked.
_COMMAND = re.compile(
    r"<[a-z]{2,20}(?:\[[^\[\]<>\n]{0,40}\])?:[^<>\n]{1,200}>|\bembedding:[\w.\-]{1,100}", re.IGNORECASE
)


@dataclass(frozen=True)
class Part:
    """A piece of a prompt of one weight; `is_break` marks a place where a new chunk starts, without text."""

    text: str
    weight: float = 1.0
    is_break: bool = False


def split_by_weight(prompt: str) -> list[Part]:
    """Returns the prompt's pieces, in order, neighbours of one weight joined."""
    pieces, weights = _scan(prompt)
    parts: list[Part] = []
    for text, weight in zip(pieces, weights, strict=True):
        for number, words in enumerate(_BREAK.split(text)):
            if number:
                parts.append(Part("", is_break=True))
            if words and parts and not parts[-1].is_break and parts[-1].weight == weight:
                parts[-1] = Part(parts[-1].text + words, weight)
            elif words:
                parts.append(Part(words, weight))
    return parts


def escape(text: str) -> str:
    """Returns the prompt that reads as just this text: no bracket is a weight, and no word starts a chunk."""
    return re.sub(r"\bBREAK\b", "break", re.sub(r"[()\[\]\\]", r"\\\g<0>", text))


def has_explicit_weights(prompt: str) -> bool:
    """Tells whether the prompt has a weight in numbers, such as (word:1.2); brackets alone may be ordinary writing."""
    return _EXPLICIT.search(prompt) is not None


def has_edits(prompt: str) -> bool:
    """Tells whether words are to change midway, such as [cat:dog:0.5] or [cat|dog], which no model here does."""
    return _EDITED.search(prompt) is not None


def list_commands(prompt: str) -> list[str]:
    """Lists what other programs do not read as words: names of embeddings, and tags such as <segment:face>."""
    return list(dict.fromkeys(found[0] for found in _COMMAND.finditer(prompt)))


def has_breaks(prompt: str) -> bool:
    return _BREAK.search(prompt) is not None


class _Span(NamedTuple):
    """A bracket's pieces, from the first to before `end`, and what it multiplies their weights by."""

    first: int
    end: int
    factor: float


def _scan(prompt: str) -> tuple[list[str], list[float]]:
    """Returns the texts between the signs, and the weight of each."""
    pieces: list[str] = []
    opened: dict[str, list[int]] = {"(": [], "[": []}  # the pieces that open brackets begin with, each kind by itself
    spans: dict[str, list[_Span]] = {"(": [], "[": []}

    def close(kind: str, factor: float) -> None:
        spans[kind].append(_Span(opened[kind].pop(), len(pieces), factor))

    for sign, text in _cut(prompt):
        weighed = _CLOSING_WEIGHT.fullmatch(text) if sign == ")" and opened["("] else None
        pieces.append(weighed["text"] if weighed else text)
        if weighed:
            close("(", _limit(float(weighed["weight"])))
        elif sign in opened:
            opened[sign].append(len(pieces))
        elif sign == ")" and opened["("]:
            close("(", ROUND)
        elif sign == "]" and opened["["]:
            close("[", SQUARE)
        else:  # a bracket without partner, or one that a backslash made a sign; a lone backslash is dropped
            pieces.append(sign[-1:] if sign != "\\" else "")
    for kind, factor in (("(", ROUND), ("[", SQUARE)):
        while opened[kind]:
            close(kind, factor)
    factors = [_multiply(spans[kind], len(pieces)) for kind in spans]
    return pieces, [_limit(round_ * square) for round_, square in zip(*factors, strict=True)]


def _multiply(spans: list[_Span], count: int) -> list[float]:
    """Returns the product of the factors around each piece; the spans nest."""
    waiting = sorted(spans, key=lambda span: (span.first, -span.end), reverse=True)
    around: list[tuple[int, float]] = []  # where each open span ends, and the product up to it
    products: list[float] = []
    for piece in range(count):
        while around and around[-1][0] <= piece:
            around.pop()
        while waiting and waiting[-1].first <= piece:
            span = waiting.pop()
            if span.end > piece:
                around.append((span.end, _limit((around[-1][1] if around else 1.0) * span.factor)))
        products.append(around[-1][1] if around else 1.0)
    return products


def _limit(weight: float) -> float:
    return max(-MAX_WEIGHT, min(MAX_WEIGHT, weight))


def _cut(prompt: str) -> Iterator[tuple[str, str]]:
    """Yields each sign with the text before it; the last text has no sign."""
    start = 0
    for found in _SIGN.finditer(prompt):
        yield found[0], prompt[start : found.start()]
        start = found.end()
    yield "", prompt[start:]
