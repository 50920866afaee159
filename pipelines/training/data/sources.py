"""Reads a user's training data, whatever its layout, and checks all of it before anything else begins.

Nothing is refused one by one: every broken picture, missing caption and unreadable line is in `Found.problems`, each a
sentence that names the file and says what to do. Nothing is left out in silence: what was changed or not used is in
`Found.notes`.
Not here: layouts of folders (folders.py, listed.py) and tables (tables.py), whether files can be read (checks.py).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.messages import Message, say, say_count
from pipelines.training.data.checks import Candidate, check
from pipelines.training.data.clips import is_still
from pipelines.training.data.drafts import Draft, Notebook
from pipelines.training.data.examples import FileReader, Found, list_names, shorten
from pipelines.training.data.folders import read_folder
from pipelines.training.data.kinds import TABLE_SUFFIXES, VIDEO_SUFFIXES
from pipelines.training.data.tables import TableError, list_rows, open_table, tell_columns

_OPTION = re.compile(r",(?:repeats=(?P<repeats>\d+)|(?P<prior>prior))\Z")
_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A place that data comes from, as the command line names it: `PATH[,repeats=3][,prior]`."""

    place: str
    repeats: int = 1
    is_prior: bool = False

    @classmethod
    def parse(cls, text: str) -> "Origin":
        """Reads a place and its options; a folder whose name ends like an option is a folder."""
        repeats, is_prior = 1, False
        while cls(place=text).path is None and (match := _OPTION.search(text)):
            repeats = int(match["repeats"] or repeats)
            is_prior = is_prior or match["prior"] is not None
            text = text[: match.start()]
        return cls(place=text, repeats=repeats, is_prior=is_prior)

    @property
    def path(self) -> Path | None:
        """The file or folder of this name, None where there is none, or can be none."""
        try:
            path = Path(self.place).expanduser()
            return path if self.place.strip() and path.exists() else None
        except (OSError, RuntimeError):  # a name longer than any file's, and ~name of nobody here
            return None


@dataclass(frozen=True)
class _Reading:
    """What holds for everything that is read: columns of tables, and where problems are written down."""

    notebook: Notebook
    image_column: str
    caption_column: str
    cache_dir: Path | None


def read_examples(
    paths: Iterable[str | Path],
    *,
    caption: str | None = None,
    trigger: str | None = None,
    image_column: str = "image",
    caption_column: str = "text",
    videos: bool = False,
    cache_dir: Path | None = None,
) -> Found:
    """Reads and checks everything at these places: folders, files, data sets of the hub.

    An example without a caption of its own gets its folder's name (kohya's layout), else `caption`, else `trigger`,
    but a prior one neither of these two. Without `videos` only pictures are read.
    """
    notebook = Notebook()
    reading = _Reading(notebook, image_column=image_column, caption_column=caption_column, cache_dir=cache_dir)
    candidates: list[Candidate] = []
    for text in map(str, paths):
        origin = Origin.parse(text)
        if origin.repeats < 1:
            notebook.problems.append(say("{path} asks for no repeats; write 1 or more.", path=shorten(text)))
            continue
        if not origin.place.strip():
            notebook.problems.append(say("A --data is empty. Name a folder; a variable of the shell may not be set."))
            continue
        found = list(_read_origin(origin, reading))
        if not videos:
            found = _leave_out_clips(origin, found, notebook)
        candidates += found
    candidates = _name_apart(candidates)
    candidates = _fill_captions(candidates, notebook, own=(caption, trigger), caption_column=caption_column)
    examples = tuple(check(candidates, notebook))
    return Found(examples=examples, problems=tuple(notebook.problems), notes=tuple(notebook.notes))


def _read_origin(origin: Origin, reading: _Reading) -> Iterator[Candidate]:
    path = origin.path
    if path is not None and path.is_dir():
        before = len(reading.notebook.problems)
        drafts = read_folder(path, reading.notebook, caption_column=reading.caption_column)
        if not drafts and len(reading.notebook.problems) == before:
            reading.notebook.problems.append(_refuse_empty(path))
        yield from _read_drafts(drafts, origin, reading)
    elif path is not None:
        draft = Draft(file=path, name=path.name)
        if draft.suffix in TABLE_SUFFIXES:
            yield from _read_drafts([draft], origin, reading)
        else:
            reading.notebook.problems.append(
                say("{path} is a single file. Put it into a folder of its own, and name the folder.", path=path)
            )
    elif "://" in origin.place or _is_hub_name(origin.place):
        yield from _read_table(origin.place, origin.place, origin, reading)
    else:
        reading.notebook.problems.append(
            say("There is no folder or file {path}. Check its name.", path=shorten(origin.place))
        )


def _is_hub_name(place: str) -> bool:
    return _HUB_NAME.fullmatch(place) is not None and "/" in place and not place.startswith(".")


def _refuse_empty(path: Path) -> Message:
    kinds = Counter(file.suffix.lower() or file.name for file in path.iterdir() if file.name[0] != ".")
    there = list_names([f"{count} {kind}" for kind, count in kinds.most_common()])
    if not kinds:
        return say("The folder {path} is empty. Put pictures into it.", path=path)
    return say(
        "The folder {path} holds no pictures, only {there}. These are read: JPEG, PNG, WebP, BMP, TIFF, AVIF, parquet "
        "and arrow files, and videos.",
        path=path,
        there=there,
    )


def _read_drafts(drafts: Sequence[Draft], origin: Origin, reading: _Reading) -> Iterator[Candidate]:
    for draft in drafts:
        if draft.suffix in TABLE_SUFFIXES:
            yield from _read_table(str(draft.file), draft.name, origin, reading)
            continue
        yield Candidate(
            id=draft.name,
            reader=FileReader(draft.file),
            captions=draft.captions or tuple(filter(None, [draft.folder_caption])),
            repeats=draft.repeats * origin.repeats,
            is_prior=origin.is_prior,
            is_clip=draft.suffix in VIDEO_SUFFIXES,
        )


def _read_table(place: str, name: str, origin: Origin, reading: _Reading) -> Iterator[Candidate]:
    try:
        table = open_table(place, image_column=reading.image_column, cache_dir=reading.cache_dir)
    except TableError as error:
        reading.notebook.problems.append(error.whole)
        return
    columns = [column for column in table.column_names if column != reading.image_column]
    if note := tell_columns(name, columns, caption_column=reading.caption_column):
        reading.notebook.columns.append(note)
    for row, reader, captions in list_rows(
        table, image_column=reading.image_column, caption_column=reading.caption_column
    ):
        id = f"{name}#{row}"
        if captions is None:
            reading.notebook.problems.append(
                say(
                    "{place} has no text under {column}, but something else. Write a text or a list of texts.",
                    place=id,
                    column=reading.caption_column,
                )
            )
            continue
        yield Candidate(
            id=id,
            reader=reader,
            captions=captions,
            repeats=origin.repeats,
            is_prior=origin.is_prior,
            is_clip=False,
        )


def _leave_out_clips(origin: Origin, found: list[Candidate], notebook: Notebook) -> list[Candidate]:
    """Leaves out videos, which a model of pictures cannot learn; a folder of nothing else is a problem."""
    found = [replace(one, is_clip=False) if one.is_clip and is_still(one.reader) else one for one in found]
    clips = [one.id for one in found if one.is_clip]
    if clips and len(clips) == len(found):
        notebook.problems.append(
            say(
                "{path} holds only videos, but this model learns pictures. Name a folder of pictures, or train a Wan "
                "model.",
                path=origin.place,
            )
        )
    elif clips:
        notebook.notes.append(
            say("These videos are not used, since this model learns pictures: {names}.", names=list_names(clips))
        )
    return [one for one in found if not one.is_clip]


def _name_apart(candidates: list[Candidate]) -> list[Candidate]:
    """Gives examples of the same name numbers, in the order of reading."""
    seen: Counter[str] = Counter()
    apart = []
    for candidate in candidates:
        seen[candidate.id] += 1
        number = seen[candidate.id]
        apart.append(candidate if number == 1 else replace(candidate, id=f"{candidate.id} ({number})"))
    return apart


def _fill_captions(
    candidates: list[Candidate],
    notebook: Notebook,
    *,
    own: tuple[str | None, str | None],
    caption_column: str,
) -> list[Candidate]:
    spare = next((text.strip() for text in own if text and text.strip()), "")
    filled, missing, missing_prior = [], [], []
    for one in candidates:
        text = "" if one.is_prior else spare
        if one.captions or text:
            filled.append(one if one.captions else replace(one, captions=(text,)))
            continue
        (missing_prior if one.is_prior else missing).append(one.id)
        filled.append(replace(one, captions=("",)))  # it is read all the same, so that all problems are told at once
    if missing:
        notebook.problems.append(
            say_count(
                "{count} picture has no caption: {names}. Write it into a .txt of the same name, or give one for all "
                "with --caption or --trigger; in a table it is read from the column {column}.",
                "{count} pictures have no caption: {names}. Write each into a .txt of the same name, or give one for "
                "all with --caption or --trigger; in a table they are read from the column {column}.",
                count=len(missing),
                names=list_names(missing),
                column=caption_column,
            )
        )
    if missing_prior:
        notebook.problems.append(
            say(
                "These prior pictures have no caption: {names}. Write what each shows into a .txt of the same name, or "
                "put all into a folder called by it, such as 1_dog.",
                names=list_names(missing_prior),
            )
        )
    (notebook.problems if missing or missing_prior else notebook.notes).extend(notebook.columns)
    return filled
