"""Drafts of examples, made before any file is opened, with what folders' names say; and the list of all that is wrong.

Not here: how it is found (folders.py, listed.py), examples themselves (examples.py).
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.messages import Message

_REPEATS = re.compile(r"(\d{1,3})_(.*)", re.DOTALL)  # four digits are a year


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A picture, clip or table that was found, with what is said beside it: captions, or else its folder's name."""

    file: Path
    name: str
    captions: tuple[str, ...] = ()
    folder_caption: str = ""
    repeats: int = 1

    @property
    def suffix(self) -> str:
        return self.file.suffix.lower()


@dataclass
class Notebook:
    """The sentences written down while data is read: problems, and notes on what should be known.

    `columns` tell tables without a column of captions: wrong if pictures are left without any, else to be known.
    """

    problems: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    columns: list[Message] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder below the one that was asked for, `top`, and the repeats and caption in its name or one above it."""

    top: Path
    match: re.Match[str] | None

    @classmethod
    def begin(cls, folder: Path) -> "Place":
        return cls(top=folder, match=_REPEATS.fullmatch(folder.resolve().name))

    def enter(self, folder: Path) -> "Place":
        return Place(top=self.top, match=_REPEATS.fullmatch(folder.name) or self.match)

    @property
    def repeats(self) -> int:
        return int(self.match[1]) if self.match else 1

    @property
    def caption(self) -> str:
        return self.match[2].strip() if self.match else ""

    def name(self, file: Path) -> str:
        """Returns the file's path below the folder that was asked for."""
        return file.relative_to(self.top).as_posix()

    def draft(self, file: Path, captions: tuple[str, ...]) -> Draft:
        return Draft(
            file=file,
            name=self.name(file),
            captions=captions,
            folder_caption=self.caption,
            repeats=self.repeats,
        )
