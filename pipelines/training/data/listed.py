"""Folders that a metadata file speaks for: the picture of each of its lines, and what it does not name.

Not here: reading its lines (tables.py), folders without one (folders.py).
"""

import os
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

from pipelines.messages import Message, say
from pipelines.training.data.drafts import Draft, Notebook, Place
from pipelines.training.data.examples import list_names, shorten, sort_naturally
from pipelines.training.data.kinds import is_read, is_text, is_there, is_unread
from pipelines.training.data.tables import Line, TableError, read_metadata, tell_columns


def read_listed(table: Path, place: Place, notebook: Notebook, *, caption_column: str) -> Iterator[Draft]:
    """Yields a draft for each line, and writes down lines that are wrong and files that no line names."""
    try:
        metadata = read_metadata(table, caption_column=caption_column)
    except TableError as error:
        notebook.problems.append(error.whole)
        return
    if note := tell_columns(table.name, metadata.columns, caption_column=caption_column):
        notebook.columns.append(note)
    listed, problems = set[Path](), list[Message]()
    for line in metadata.lines:
        name = _find(table.parent, line.file_name)
        problem = line.problem or _check(f"{table.name}:{line.number}", line, table.parent, name)
        if problem:
            problems.append(problem)
        else:
            file = table.parent / name
            listed.add(file)
            yield place.draft(file, line.captions)
    if problems:  # what these lines should have named is not known
        notebook.problems += problems
        return
    below = sorted(_list_below(table.parent), key=lambda file: sort_naturally(place.name(file)))
    others = [place.name(file) for file in below if file not in listed and (is_read(file) or is_unread(file))]
    if others:
        notebook.notes.append(
            say(
                "{table} does not name these, so they are not used: {names}.",
                table=table.name,
                names=list_names(others),
            )
        )
    named = {file.with_suffix("") for file in listed}
    texts = [place.name(file) for file in below if is_text(file) and file.with_suffix("") in named]
    if texts:
        notebook.notes.append(
            say(
                "{table} has the captions of its folder, so these texts are not used: {names}.",
                table=table.name,
                names=list_names(texts),
            )
        )


def _find(folder: Path, name: str) -> str:
    r"""Returns the name of a line's picture here; of `sub\a.png`, as Windows writes it, sub/a.png."""
    return name if is_there(folder / name) else name.replace("\\", "/")


def _check(where: str, line: Line, folder: Path, name: str) -> Message | None:
    """Returns what is wrong with a line's picture, which is called `name` here."""
    written = shorten(line.file_name)
    if ".." in Path(name).parts or Path(name).is_absolute() or PureWindowsPath(line.file_name).is_absolute():
        return say("{place} leads out of its folder: {name}. Put the picture inside.", place=where, name=written)
    if not is_there(folder / name):
        return say(
            "{place} names {name}, which is not there. Correct the line, or add the file.", place=where, name=written
        )
    return None


def _list_below(folder: Path) -> Iterator[Path]:
    """Yields all files in a folder and below it but hidden ones; links are followed, and no folder is read twice."""
    seen: set[str] = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        folders[:] = [] if real in seen else [name for name in folders if name[0] != "."]
        if real not in seen:
            seen.add(real)
            yield from (Path(root) / name for name in files if name[0] != ".")
