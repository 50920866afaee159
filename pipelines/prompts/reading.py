"""What a model reads of a prompt: how many word pieces, in how many chunks, and which words it never sees or learnt.

A prompt is not refused for being long: encoders of the field cut it, so what is cut is said instead, while people type
and with the job. Weights are for models that know them; others read brackets as text, which is said too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipelines.messages import Message, say
from pipelines.models.catalog import Model
from pipelines.prompts.chunks import cut_into_chunks
from pipelines.prompts.emphasis import has_breaks, has_edits, has_explicit_weights, list_commands, split_by_weight
from pipelines.prompts.pieces import Pieces, find_pieces
from pipelines.prompts.words import Unknown, find_unknown

MAX_SHOWN_CHARS = 120
MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a model reads one prompt: `count` word pieces, of which it takes `limit` at most; `unread` are the words cut.

    `room` is what the chunks in use hold: a model with chunks adds one when a prompt needs it, up to `limit`.
    """

    count: int
    room: int
    limit: int
    chunks: int
    unread: str

    def to_json(self) -> dict[str, Any]:
        return vars(self).copy()


def read_prompt(model: Model, prompt: str) -> Reading | None:
    """Returns how the model reads the prompt; None where its tokenizer is not on this machine."""
    pieces = find_pieces(model)
    if pieces is None:
        return None
    most = model.traits.text_chunks
    return _read_in_chunks(pieces, prompt, most=most) if most > 1 else _read_at_once(pieces, prompt)


def read_caption(model: Model, prompt: str) -> Reading | None:
    """Returns how a training of the model reads the prompt: one chunk of it; None where its tokenizer is not here."""
    pieces = find_pieces(model)
    if pieces is None:
        return None
    return _read_in_chunks(pieces, prompt, most=1) if model.traits.text_chunks > 1 else _read_at_once(pieces, prompt)


def count_chunks(model: Model, prompt: str, negative_prompt: str | None) -> int:
    """Returns the number of chunks that both prompts need; 1 for a model without chunks, or one that is not here."""
    if model.traits.text_chunks == 1:
        return 1
    readings = [read_prompt(model, text) for text in (prompt, negative_prompt or "")]
    return max(reading.chunks if reading else 1 for reading in readings)


def list_notes(model: Model, prompt: str, negative_prompt: str | None, *, has_loras: bool = False) -> list[Message]:
    """Lists what a person should know of how the model reads these prompts, as sentences; none when all is read.

    `has_loras` says that LoRAs are applied to the model.
    """
    notes: list[Message] = []
    for name, text in ((say("prompt"), prompt), (say("negative prompt"), negative_prompt or "")):
        reading = read_prompt(model, text) if text else None
        if reading is not None and reading.unread:
            notes.append(
                say(
                    "{title} reads {limit} of the {count} word pieces of the {name}. Not read: {unread}",
                    title=model.title,
                    limit=reading.limit,
                    count=reading.count,
                    name=name,
                    unread=shorten(reading.unread),
                )
            )
    if unknown := find_unknown(
        model, prompt, has_loras=has_loras
    ):  # what it cannot draw it cannot avoid either: only of the prompt
        notes.append(name_unknown(model, unknown))
    texts = f"{prompt}\n{negative_prompt or ''}"
    if not model.traits.reads_weights and has_explicit_weights(texts):
        notes.append(say("{title} does not weigh words: (word:1.2) is read as it is written.", title=model.title))
    if not model.traits.reads_weights and has_breaks(texts):
        notes.append(say("{title} reads BREAK as a word.", title=model.title))
    if has_edits(texts):
        notes.append(say("Words do not change midway here: [cat:dog:0.5] is read as it is written."))
    if commands := list_commands(texts):
        names = ", ".join([*(shorten(one) for one in commands[:MAX_NAMED]), *["…"] * (len(commands) > MAX_NAMED)])
        notes.append(say("Other programs do something with {names}; here it is read as words.", names=names))
    return notes


def name_unknown(model: Model, unknown: Unknown) -> Message:
    """Returns the sentence that names the words, and what the model can draw instead."""
    words, offers = _quote(unknown.words), _quote(example.prompt for example in unknown.offers)
    if not offers:
        return say("{title} knows no {words}.", title=model.title, words=words)
    return say("{title} knows no {words}. It can draw, say, {offers}.", title=model.title, words=words, offers=offers)


def _quote(texts: Iterable[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def shorten(text: str) -> str:
    """Returns the text on one line, for a message; of a long one its beginning and end."""
    line, half = " ".join(text.split()), MAX_SHOWN_CHARS // 2
    return line if len(line) <= MAX_SHOWN_CHARS else f"{line[:half].rstrip()} … {line[-half:].lstrip()}"


def _read_in_chunks(pieces: Pieces, prompt: str, *, most: int) -> Reading:
    size = pieces.length - pieces.ends
    chunks = cut_into_chunks(split_by_weight(prompt), pieces.tokenize, length=size)
    used = min(len(chunks), most)
    return Reading(
        count=sum(len(chunk.ids) for chunk in chunks),
        room=used * size,
        limit=most * size,
        chunks=used,
        unread="".join("".join(chunk.texts) for chunk in chunks[most:]).strip(" ,\n"),
    )


def _read_at_once(pieces: Pieces, prompt: str) -> Reading:
    """Finds where the encoder's length ends in the prompt, which may stand within the turns of a chat."""
    framed = pieces.frame(prompt)
    found = pieces.tokenize(framed)
    first, last = _find_prompt(framed, prompt)
    own = [piece for piece in found if first <= piece.start < last]
    read = [piece for piece in found[: pieces.length - pieces.ends] if first <= piece.start < last]
    end = read[-1].end if read else first
    room = pieces.length - pieces.ends - sum(piece.start < first for piece in found)
    if len(read) == len(own):
        end = last
    while first < end < last and framed[end - 1].isalnum() and framed[end].isalnum():
        end -= 1  # a word that is cut is not read
    return Reading(
        count=len(own), room=max(0, room), limit=max(0, room), chunks=1, unread=framed[end:last].strip(" ,\n")
    )


def _find_prompt(framed: str, prompt: str) -> tuple[int, int]:
    """Returns where the prompt begins and ends in what the model reads; the whole of it if it is not found."""
    core = prompt.strip().casefold()
    start = framed.casefold().find(core)
    return (0, len(framed)) if start < 0 or not core else (start, start + len(core))
