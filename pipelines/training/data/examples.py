"""What training data consists of: examples, each a picture or a clip with its captions, and how its bytes are read.

An example is small, whatever its picture weighs: bytes are read when pixels are needed.
Not here: finding examples (sources.py), their pixels (pixels.py).
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pipelines.messages import Message, english, say

NAMES_SHOWN = 12  # a message names so many files and counts the rest
NAME_CHARS = 160  # of a longer name a message shows both ends; file systems allow 255 bytes


class Reader(Protocol):
    """Where an example's bytes are."""

    def read(self) -> bytes:
        """Returns the file's bytes; raises OSError."""
        ...

    def hash(self) -> str:
        """Returns the SHA-256 of the bytes in hexadecimal; raises OSError."""
        ...


@dataclass(frozen=True)
class FileReader:
    """A file of its own."""

    file: Path

    def read(self) -> bytes:
        return self.file.read_bytes()

    def hash(self) -> str:
        with self.file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class RowReader:
    """A row of a table of the `datasets` library, whose column holds undecoded pictures."""

    table: Any
    row: int
    column: str

    def read(self) -> bytes:
        cell = self.table[self.row][self.column]
        if not cell or not (cell.get("bytes") or cell.get("path")):
            raise OSError(say("the row is empty"))
        return cell["bytes"] or Path(cell["path"]).read_bytes()

    def hash(self) -> str:
        return hashlib.sha256(self.read()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Example:
    """One picture or clip, its sizes upright, and what may be said of it.

    `captions` are alternatives, never none. `frames` and `fps` are the file's own, 1 and 0 for a picture; a piece of a
    clip begins at `start_s`, and has so many frames from there on. Examples of
    `is_prior` show what the model should not forget. `id` is the file's path below the folder that was asked for.
    """

    id: str
    reader: Reader
    captions: tuple[str, ...]
    width: int
    height: int
    frames: int = 1
    fps: float = 0.0
    start_s: float = 0.0
    repeats: int = 1
    is_prior: bool = False
    known_content: str = field(default="", repr=False)

    @cached_property
    def content(self) -> str:
        """The SHA-256 of the file's bytes in hexadecimal, read once."""
        return self.known_content or self.reader.hash()

    @property
    def seconds(self) -> float:
        """How long a clip lasts; 0 for a picture."""
        return self.frames / self.fps if self.fps else 0.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """What reading found: examples in a fixed order, everything that is wrong, and what should be known."""

    examples: tuple[Example, ...]
    problems: tuple[Message, ...]
    notes: tuple[Message, ...]


def sort_naturally(name: str) -> tuple[Any, ...]:
    """Returns a key by which `2.png` comes before `10.png`, whatever the case of letters."""
    parts = re.split(r"(\d+)", name.casefold())
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts), name


def shorten(name: str) -> str:
    """Returns a name as a message can show it: without control characters, and both ends of a long one."""
    shown = "".join(
        char if unicodedata.category(char) not in ("Cc", "Cs") else char.encode("unicode_escape").decode()
        for char in (name if len(name) <= 2 * NAME_CHARS else name[:NAME_CHARS] + name[-NAME_CHARS:])
    )
    if len(shown) <= NAME_CHARS:
        return shown
    return f"{shown[: NAME_CHARS // 2]}...{shown[-NAME_CHARS // 2 :]}"


def list_names(names: Sequence[str]) -> Message:
    """Returns the first names as one text, and how many more there are."""
    shown = english(", ".join(map(shorten, names[:NAMES_SHOWN])))
    if len(names) <= NAMES_SHOWN:
        return shown
    return say("{names} and {count} more", names=shown, count=len(names) - NAMES_SHOWN)
