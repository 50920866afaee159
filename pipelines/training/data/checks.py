"""Reads every file once before training, to know its size and content and that it can be decoded to its end.

Not here: which files there are (sources.py).
"""

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pipelines.errors import LumeshError
from pipelines.messages import NOTHING, Message, english, say
from pipelines.pictures.reading import PictureError, measure_stream, read_picture
from pipelines.training.data.clips import measure_clip
from pipelines.training.data.drafts import Notebook
from pipelines.training.data.examples import Example, Reader, list_names, shorten

DECODED_MOST = 20_000  # pictures that are decoded to be checked, 10 ms each; of more only the headers are read
_THREADS = min(8, os.cpu_count() or 1)  # Pillow decodes beside Python; a large picture takes up to 650 MB meanwhile


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An example before its file has been read."""

    id: str
    reader: Reader
    captions: tuple[str, ...]
    repeats: int
    is_prior: bool
    is_clip: bool


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """What reading one file gave: an example or a problem, and what of the file is not in its pixels."""

    example: Example | None = None
    problem: Message = NOTHING
    notes: tuple[Message, ...] = ()


def check(candidates: Sequence[Candidate], notebook: Notebook) -> Iterator[Example]:
    """Reads every file, several at once, and yields those that can be used, in their order."""
    is_decoded = len(candidates) <= DECODED_MOST
    if not is_decoded:
        notebook.notes.append(
            say(
                "Of {count} pictures only the headers were checked; a damaged one is told when it is used.",
                count=len(candidates),
            )
        )
    changed: dict[Message, list[str]] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for checked in pool.map(lambda one: _check_one(one, is_decoded=is_decoded), candidates):
            if checked.problem:
                notebook.problems.append(checked.problem)
            if checked.example is not None:
                for note in checked.notes:
                    changed.setdefault(note, []).append(checked.example.id)
                yield checked.example
    notebook.notes += [say("{names}: {note}", names=list_names(names), note=note) for note, names in changed.items()]


def _check_one(candidate: Candidate, *, is_decoded: bool) -> _Checked:
    try:
        return _read_clip(candidate) if candidate.is_clip else _read_still(candidate, is_decoded=is_decoded)
    except OSError as error:
        reason = english(f"{error.strerror or error}.")
    except LumeshError as error:
        reason = error.whole
    problem = say("{name} cannot be used: {reason} Replace or remove it.", name=shorten(candidate.id), reason=reason)
    return _Checked(problem=problem)


def _read_still(candidate: Candidate, *, is_decoded: bool) -> _Checked:
    content = candidate.reader.read()
    if not content:
        raise PictureError(say("The file is empty."))
    notes: tuple[Message, ...] = ()
    if is_decoded:
        picture = read_picture(io.BytesIO(content))
        (width, height), notes = picture.image.size, picture.notes
    else:
        width, height = measure_stream(io.BytesIO(content))
    example = _make_example(candidate, width=width, height=height, content=hashlib.sha256(content).hexdigest())
    return _Checked(example=example, notes=notes)


def _read_clip(candidate: Candidate) -> _Checked:
    size = measure_clip(candidate.reader)
    example = _make_example(candidate, width=size.width, height=size.height, content=candidate.reader.hash())
    return _Checked(example=replace(example, frames=size.frames, fps=size.fps), notes=size.notes)


def _make_example(candidate: Candidate, *, width: int, height: int, content: str) -> Example:
    return Example(
        id=candidate.id,
        reader=candidate.reader,
        captions=candidate.captions,
        width=width,
        height=height,
        repeats=candidate.repeats,
        is_prior=candidate.is_prior,
        known_content=content,
    )
