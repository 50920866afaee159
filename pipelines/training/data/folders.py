"""Folders of training data: which files are pictures, what is written beside them, what folders' names say.

Read are pictures with a text of the same name, folders called `10_name class` (ten repeats, kohya's layout), folders
with a metadata.jsonl or metadata.csv, and any of these inside another. Links are followed, but no folder is read twice.
What is not read is told by its name.
Not here: what a metadata file says (listed.py), whether the files can be read (sources.py).
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.messages import say, say_count
from pipelines.training.data.drafts import Draft, Notebook, Place
from pipelines.training.data.examples import list_names, sort_naturally
from pipelines.training.data.kinds import (
    MASK_FOLDERS,
    METADATA,
    TABLE_SUFFIXES,
    advise_unread,
    is_mask_of,
    is_other,
    is_read,
    is_text,
    is_there,
    is_unread,
)
from pipelines.training.data.listed import read_listed


def read_folder(folder: Path, notebook: Notebook, *, caption_column: str) -> list[Draft]:
    """Lists what is in a folder and below it, in natural order; hidden files are left alone."""
    walk = _Walk(notebook=notebook, caption_column=caption_column)
    drafts = list(walk.enter(folder, Place.begin(folder)))
    walk.tell(is_anything_read=bool(drafts))
    return drafts


@dataclass(kw_only=True)
class _Walk:
    """One reading of a folder and all below it, and the names of what is not read as it might be expected."""

    notebook: Notebook
    caption_column: str
    seen: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    masks: list[str] = field(default_factory=list)
    several: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def enter(self, folder: Path, place: Place, *, is_masks: bool = False) -> Iterator[Draft]:
        real = os.path.realpath(folder)
        if real in self.seen:
            return
        self.seen.add(real)
        if place.repeats < 1:
            self.notebook.problems.append(
                say(
                    "The folder {folder} asks for no repeats by the number in front of its name. Write 1 or more "
                    "there, or move it out of the data.",
                    folder=folder,
                )
            )
            return
        try:
            entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
            entries.sort(key=lambda entry: sort_naturally(entry.name))
            below = [entry for entry in entries if entry.is_dir()]
        except OSError as error:
            self.notebook.problems.append(
                say("The folder {folder} cannot be read: {reason}.", folder=folder, reason=error.strerror or error)
            )
            return
        metadata = [folder / name for name in METADATA if is_there(folder / name)]
        if metadata:
            yield from read_listed(metadata[0], place, self.notebook, caption_column=self.caption_column)
            if len(metadata) > 1:
                self.notebook.notes.append(
                    say("{folder} has two tables; {used} is used.", folder=folder, used=metadata[0].name)
                )
            return
        self.broken += [place.name(entry) for entry in entries if is_read(entry) and not entry.exists()]
        yield from self.read([entry for entry in entries if is_there(entry)], place, is_masks=is_masks)
        for entry in below:
            yield from self.enter(entry, place.enter(entry), is_masks=_holds_masks(entry))

    def read(self, files: list[Path], place: Place, *, is_masks: bool) -> Iterator[Draft]:
        texts = [file for file in files if is_text(file)]
        pictures = [file for file in files if is_read(file)]
        self.unread += [place.name(file) for file in files if is_unread(file)]
        self.others += [place.name(file) for file in files if is_other(file)]
        stems = {file.stem for file in pictures}
        folded = _fold(pictures)
        used: set[Path] = set()
        for file in pictures:
            beside = [text for text in texts if text.stem == file.stem] or [
                # Cat.JPG with cat.txt, unless another picture has that very name.
                text
                for text in texts
                if text.stem.casefold() == file.stem.casefold() and text.stem not in stems
            ]
            used.update(beside)
            is_table = file.suffix.lower() in TABLE_SUFFIXES
            if not beside and not is_table and (is_masks or is_mask_of(file, folded)):
                self.masks.append(place.name(file))
                continue
            lines = [line for text in beside for line in _read_text(text, self.notebook)]
            captions = tuple(dict.fromkeys(lines))
            if len(captions) > 1:
                self.several.append(", ".join(map(place.name, beside)))
            yield place.draft(file, captions)
        self.alone += [place.name(text) for text in texts if text not in used]

    def tell(self, *, is_anything_read: bool) -> None:
        """Writes down what was not read; a folder of nothing that is read is told as that (sources.py)."""
        problems, notes = self.notebook.problems, self.notebook.notes
        if self.unread:
            names, advice = list_names(self.unread), advise_unread(self.unread)
            problems.append(say("Pictures of these kinds are not read: {names}. {advice}", names=names, advice=advice))
        if self.broken:
            names = list_names(self.broken)
            problems.append(say("These links lead nowhere: {names}. Mend or remove them.", names=names))
        if not is_anything_read:
            return
        if self.several:
            names = list_names(list(dict.fromkeys(self.several)))
            count = len(dict.fromkeys(self.several))
            notes.append(
                say_count(
                    "{count} picture has several captions, of which one is drawn each time: the lines of {names}.",
                    "{count} pictures have several captions, of which one is drawn each time: the lines of {names}.",
                    count=count,
                    names=names,
                )
            )
        if self.masks:
            notes.append(
                say(
                    "These are masks by their names, and are not learnt: {names}. One with a text of its own is.",
                    names=list_names(self.masks),
                )
            )
        if self.alone:
            notes.append(say("These texts have no picture of their name: {names}.", names=list_names(self.alone)))
        if self.others:
            notes.append(say("These files are neither pictures nor texts: {names}.", names=list_names(self.others)))


def _fold(pictures: Iterable[Path]) -> set[str]:
    return {file.stem.casefold() for file in pictures}


def _holds_masks(folder: Path) -> bool:
    """Returns whether a folder is called masks, and all in it have a namesake in the folder above or in one beside."""
    if folder.name.casefold() not in MASK_FOLDERS:
        return False
    try:
        files = [file for file in folder.iterdir() if file.name[0] != "."]
        around = [file for file in folder.parent.iterdir() if file.name[0] != "." and file != folder]
        around += [file for entry in around if entry.is_dir() for file in entry.iterdir()]
    except OSError:
        return False
    pictures, stems = [file for file in files if is_read(file)], _fold(file for file in around if is_read(file))
    has_texts = any(map(is_text, files))
    return not has_texts and all(is_mask_of(file, stems, is_in_mask_folder=True) for file in pictures)


def _read_text(file: Path, notebook: Notebook) -> list[str]:
    """Reads a caption file: each line is an alternative, with or without a bar in front."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        notebook.problems.append(say("{file} cannot be read: {error}. Save it as UTF-8.", file=file.name, error=error))
        return []
    return [caption for line in lines if (caption := line.strip().removeprefix("|").strip())]
