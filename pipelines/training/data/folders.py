"""Folders of training data: which files are pictures, what is written beside them, what folders' names say.

Read are pictures with a text of the same name, folders called `10_name class` (ten repeats, kohya's layout), folders
with a metadata.jsonl or metadata.csv, and any of these inside another. Links are followed, but no folder is read twice.
Not here: whether the files can be read (sources.py).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from pipelines.messages import Message, say
from pipelines.pictures.reading import HEIC_ADVICE
from pipelines.training.data.examples import list_names, sort_naturally
from pipelines.training.data.tables import METADATA, TABLE_SUFFIXES, TableError, read_metadata

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".avif")
VIDEO_SUFFIXES = (".mp4", ".webm", ".gif", ".mov", ".mkv", ".avi", ".m4v")
UNREAD_SUFFIXES = (".heic", ".heif", ".jxl", ".jp2", ".psd", ".svg", ".ico", ".tga", ".exr", ".dng", ".cr2", ".nef")
CAPTION_SUFFIXES = (".txt", ".caption")
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
    """What is found wrong, and what should be known, while folders are read."""

    problems: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)


def read_folder(folder: Path, notebook: Notebook, *, caption_column: str) -> Iterator[Draft]:
    """Yields what is in a folder and below it, in natural order; hidden files are left alone."""
    match = _REPEATS.fullmatch(folder.resolve().name)
    yield from _walk(folder, _Place(top=folder, match=match), notebook, caption_column, set())


@dataclass(frozen=True, kw_only=True)
class _Place:
    """What a folder's name says of what is in it."""

    top: Path
    match: re.Match[str] | None

    @property
    def repeats(self) -> int:
        return int(self.match[1]) if self.match else 1

    @property
    def caption(self) -> str:
        return self.match[2].strip() if self.match else ""


def _walk(folder: Path, place: _Place, notebook: Notebook, caption_column: str, seen: set[str]) -> Iterator[Draft]:
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        notebook.problems.append(
            say("The folder {folder} cannot be read: {reason}.", folder=folder, reason=error.strerror or error)
        )
        return
    entries.sort(key=lambda entry: sort_naturally(entry.name))
    metadata = [folder / name for name in METADATA if (folder / name).is_file()]
    if metadata:
        yield from _read_listed(metadata[0], place, notebook, caption_column)
        if len(metadata) > 1:
            notebook.notes.append(say("{folder} has two tables; {used} is used.", folder=folder, used=metadata[0].name))
        return
    files = [entry for entry in entries if entry.is_file()]
    broken = [entry.name for entry in entries if _is_read(entry) and not entry.exists()]
    if broken:
        notebook.problems.append(
            say("These links lead nowhere: {names}. Mend or remove them.", names=list_names(broken))
        )
    yield from _read_pictures(files, place, notebook)
    for entry in entries:
        if entry.is_dir():
            match = _REPEATS.fullmatch(entry.name) or place.match
            yield from _walk(entry, _Place(top=place.top, match=match), notebook, caption_column, seen)


def _read_pictures(files: list[Path], place: _Place, notebook: Notebook) -> Iterator[Draft]:
    texts = [file for file in files if file.suffix.lower() in CAPTION_SUFFIXES]
    unread = [file.name for file in files if _is_unread(file)]
    if unread:
        notebook.problems.append(
            say("Pictures of these kinds are not read: {names}. {advice}", names=list_names(unread), advice=HEIC_ADVICE)
        )
    used: set[Path] = set()
    stems = {file.stem for file in files if _is_read(file)}
    for file in files:
        if not _is_read(file):
            continue
        beside = [text for text in texts if text.stem == file.stem] or [
            # Cat.JPG with cat.txt, unless another picture has that very name.
            text
            for text in texts
            if text.stem.casefold() == file.stem.casefold() and text.stem not in stems
        ]
        used.update(beside)
        captions = [caption for text in beside for caption in _read_text(text, notebook)]
        yield Draft(
            file=file,
            name=file.relative_to(place.top).as_posix(),
            captions=tuple(dict.fromkeys(captions)),
            folder_caption=place.caption,
            repeats=place.repeats,
        )
    alone = [text.name for text in texts if text not in used]
    if alone and stems:
        notebook.notes.append(say("These texts have no picture of their name: {names}.", names=list_names(alone)))


def _is_read(file: Path) -> bool:
    return file.suffix.lower() in (*PICTURE_SUFFIXES, *VIDEO_SUFFIXES, *TABLE_SUFFIXES) or (
        file.suffix.lower() in (".heic", ".heif") and "HEIF" in Image.OPEN
    )


def _is_unread(file: Path) -> bool:
    return file.suffix.lower() in UNREAD_SUFFIXES and not _is_read(file)


def _read_text(file: Path, notebook: Notebook) -> list[str]:
    """Reads a caption file: each line is an alternative, with or without a bar in front."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        notebook.problems.append(say("{file} cannot be read: {error}. Save it as UTF-8.", file=file.name, error=error))
        return []
    return [caption for line in lines if (caption := line.strip().removeprefix("|").strip())]


def _read_listed(table: Path, place: _Place, notebook: Notebook, caption_column: str) -> Iterator[Draft]:
    folder = table.parent
    try:
        lines = read_metadata(table, caption_column=caption_column)
    except TableError as error:
        notebook.problems.append(error.whole)
        return
    listed: set[Path] = set()
    for line in lines:
        file = folder / line.file_name
        where = f"{table.name}:{line.number}"
        if line.problem:
            notebook.problems.append(line.problem)
        elif ".." in Path(line.file_name).parts or Path(line.file_name).is_absolute():
            notebook.problems.append(
                say(
                    "{place} leads out of its folder: {name}. Put the picture inside.", place=where, name=line.file_name
                )
            )
        elif not file.is_file():
            notebook.problems.append(
                say(
                    "{place} names {name}, which is not there. Correct the line, or add the file.",
                    place=where,
                    name=line.file_name,
                )
            )
        else:
            listed.add(file)
            yield Draft(
                file=file,
                name=file.relative_to(place.top).as_posix(),
                captions=line.captions,
                folder_caption=place.caption,
                repeats=place.repeats,
            )
    others = [file.name for file in folder.iterdir() if _is_read(file) and file not in listed and file.name[0] != "."]
    if others:
        names = list_names(sorted(others, key=sort_naturally))
        notebook.notes.append(
            say("{table} does not name these, so they are not used: {names}.", table=table.name, names=names)
        )
