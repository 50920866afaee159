"""Tables of pictures and captions: metadata.jsonl and metadata.csv, parquet and arrow files, data sets of the hub.

The last three are read by the `datasets` library, which is only imported when they are asked for: it brings 180 MB
that nobody else needs.
Not here: folders without a table (folders.py).
"""

import csv
import io
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError
from pipelines.messages import NOTHING, Message, english, say
from pipelines.training.data.examples import RowReader, list_names
from pipelines.training.data.kinds import TABLE_SUFFIXES

FILE_NAME = "file_name"
DATASETS_PIN = "datasets==5.2.0"


class TableError(LumeshError):
    """A table that cannot be read at all."""

    title = say("This table cannot be read")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a metadata file: a picture's name and its captions, or the problem with the line."""

    number: int
    file_name: str = ""
    captions: tuple[str, ...] = ()
    problem: Message = NOTHING


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """A metadata file's lines, and its columns beside the pictures' names."""

    lines: tuple[Line, ...]
    columns: tuple[str, ...]


def read_metadata(file: Path, *, caption_column: str) -> Metadata:
    """Reads a metadata file; raises TableError when it is not text, or names no pictures at all."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(
            say("{file} cannot be read: {error}.", file=file.name, error=error), advice=say("Save it as UTF-8.")
        ) from error
    read = list(_read_jsonl(text) if file.suffix == ".jsonl" else _read_csv(file.name, text))
    if not read:
        raise TableError(
            say("{file} names no pictures.", file=file.name),
            advice=say("Write a line for each picture, or remove it."),
        )
    columns = dict.fromkeys(name for _, values in read if isinstance(values, dict) for name in values)
    return Metadata(
        lines=tuple(_read_line(file, number, values, caption_column) for number, values in read),
        columns=tuple(name for name in columns if name != FILE_NAME),
    )


def _read_jsonl(text: str) -> Iterator[tuple[int, dict[str, Any] | Message]]:
    """Yields each line's number and its object, or what is wrong with it."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, english(str(error))
            else:
                yield number, values if isinstance(values, dict) else say("it is no object")


def _read_csv(file: str, text: str) -> Iterator[tuple[int, dict[str, Any] | Message]]:
    """Yields the number at which each row begins and its cells by column, or what is wrong with it."""
    rows, columns = csv.reader(io.StringIO(text, newline=""), strict=True), list[str]()
    while True:
        number = rows.line_num + 1
        try:
            cells = next(rows, None)
        except csv.Error as error:
            is_open = str(error) == "unexpected end of data"
            yield number, say("its quotes are not closed") if is_open else english(str(error))
            return
        if cells is None:
            return
        if not columns and cells:
            columns = cells
            if FILE_NAME not in columns:
                raise TableError(
                    say("{place} has no column {column}; it has {names}.",
                        place=file, column=FILE_NAME, names=list_names(columns)),
                    advice=say("Write the columns' names into its first line, with commas between them."),
                )  # fmt: skip
        elif any(map(str.strip, cells[len(columns) :])):
            yield (
                number,
                say(
                    "it has {count} cells for {columns} columns; put texts with commas into quotes",
                    count=len(cells),
                    columns=len(columns),
                ),
            )
        elif cells:
            yield number, dict(zip(columns, cells, strict=False))


def _read_line(file: Path, number: int, values: dict[str, Any] | Message, caption_column: str) -> Line:
    place = f"{file.name}:{number}"
    if isinstance(values, Message):
        problem = say("{place} cannot be read: {reason}. Mend this line.", place=place, reason=values)
        return Line(number=number, problem=problem)
    name, captions = values.get(FILE_NAME), read_captions(values.get(caption_column))
    if not isinstance(name, str) or not name.strip():
        problem = say("{place} names no picture. Write its name under file_name.", place=place)
        return Line(number=number, problem=problem)
    if captions is None:
        problem = say(
            "{place} has no text under {column}, but something else. Write a text or a list of texts.",
            place=place,
            column=caption_column,
        )
        return Line(number=number, problem=problem)
    return Line(number=number, file_name=name.strip(), captions=captions)


def tell_columns(table: str, columns: Collection[str], *, caption_column: str) -> Message:
    """Says which columns a table has in place of that of captions, nothing where it has that, or no others."""
    if caption_column in columns or not columns:
        return NOTHING
    return say(
        "{table} has no column {column} to read captions from; it has {names}. Name the right one with "
        "--caption_column.",
        table=table,
        column=caption_column,
        names=list_names(list(columns)),
    )


def read_captions(value: Any) -> tuple[str, ...] | None:
    """Returns the captions in a cell: a text, or a list of alternatives; None for anything else."""
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(one, str) for one in values):
        return None
    return tuple(dict.fromkeys(filter(None, map(str.strip, values))))


def open_table(place: str, *, image_column: str, cache_dir: Path | None) -> Any:
    """Opens a parquet or arrow file, here or at an address, or a data set of the hub; raises TableError.

    Its pictures stay undecoded.
    """
    try:
        datasets = import_module("datasets")
    except ImportError as error:
        if not place.endswith(TABLE_SUFFIXES):
            raise TableError(
                say("There is no folder {place} here.", place=place),
                advice=say("If it is a data set of the hub, run: pip install {package}", package=DATASETS_PIN),
            ) from error
        raise TableError(
            say("{place} is read by the package datasets, which is not installed.", place=place),
            advice=say("Run: pip install {package}", package=DATASETS_PIN),
        ) from error
    cache = None if cache_dir is None else str(cache_dir)
    try:
        if place.endswith(".arrow") and "://" not in place:
            table = datasets.Dataset.from_file(place)
        elif place.endswith(TABLE_SUFFIXES):
            kind = place.rpartition(".")[2]
            table = datasets.load_dataset(kind, data_files=place, split="train", cache_dir=cache)
        else:
            table = datasets.load_dataset(place, split="train", cache_dir=cache)
    except Exception as error:  # its readers raise errors of a dozen libraries
        raise TableError(
            say("{place} cannot be read: {error}.", place=place, error=f"{type(error).__name__}: {error}"),
            advice=say("Check its name, and that it has a split called train."),
        ) from error
    names: list[str] = table.column_names
    if image_column not in names:
        raise TableError(
            say(
                "{place} has no column {column}; it has {names}.",
                place=place,
                column=image_column,
                names=", ".join(names),
            ),
            advice=say("Name the column of the pictures with --image_column."),
        )
    if type(table.features[image_column]).__name__ == "Video":
        raise TableError(
            say("{place} has videos in the column {column}, and those of a table are not read.",
                place=place, column=image_column),
            advice=say("Save them as files into a folder, each with a .txt of its name, and name that folder."),
        )  # fmt: skip
    try:
        return table.cast_column(image_column, datasets.Image(decode=False))
    except Exception as error:  # pyarrow's, of several kinds
        raise TableError(
            say("{place} has no pictures in the column {column}.", place=place, column=image_column),
            advice=say("Name the column of the pictures with --image_column."),
        ) from error


def list_rows(
    table: Any, *, image_column: str, caption_column: str
) -> Iterator[tuple[int, RowReader, tuple[str, ...] | None]]:
    """Yields each row's number, where its picture is, and its captions, None if they are no texts."""
    pictures = table.select_columns([image_column])
    cells = table.select_columns([caption_column])[caption_column] if caption_column in table.column_names else None
    for row in range(len(table)):
        yield row, RowReader(pictures, row, image_column), () if cells is None else read_captions(cells[row])
