"""Draws the sheet of a grid: its pictures in a table, with the labels of the axes.

A cell without a picture says why. If the sheet would be too large, all pictures are scaled down together, so that its
file stays small enough to be read back as a recipe.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from PIL import Image, ImageDraw

from pipelines.files.metadata import GRID_KEY, make_png_chunks
from pipelines.files.whole import write_whole
from pipelines.recipes.recipe import Recipe
from studio.library.files import PNG_LEVEL, SavedFile, save_thumb
from studio.library.lettering import Lettering

MAX_PIXELS = 12_000_000  # a photographic PNG of at most about 18 MB; files of up to 20 MB are read
EMPTY_PX = 256  # side of the cells when no cell has a picture to measure
GAP = 0.03  # gap between cells, as a fraction of their shorter side
LETTERS = 0.055  # height of the letters, as a fraction of the cells' shorter side
SMALLEST_PX, LARGEST_PX = 11, 44
HEAD_LINES = 3
SIDE = 0.5  # maximal width of the column of row labels, in cell widths
PAPER, INK, FAINT, EMPTY = "#ffffff", "#191a1d", "#5b5e66", "#ececea"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: a picture, or the reason why there is none."""

    file: Path | None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """The content of a sheet; `places` are page by page, row by row. A single row or page without label is no axis."""

    places: Sequence[Cell]
    columns: Sequence[str]
    rows: Sequence[str] = ("",)
    pages: Sequence[str] = ("",)
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class _Geometry:
    """The layout of a sheet, in pixels."""

    cell: tuple[int, int]
    letters: Lettering
    gap: int
    side: int
    head: int
    page: int
    margin: int
    caption: int

    def size(self, table: Table) -> tuple[int, int]:
        width = self.side + len(table.columns) * (self.cell[0] + self.gap) - self.gap
        height = len(table.pages) * self.page_height(table) + self.caption
        return width + 2 * self.margin, height + 2 * self.margin

    def page_height(self, table: Table) -> int:
        return self.page + self.head + len(table.rows) * (self.cell[1] + self.gap)


def save_sheet(outputs_dir: Path, name: str, table: Table, *, recipe: Recipe, axes: str) -> SavedFile:
    """Saves the sheet as `name`.png with the recipe and the grid's axes (JSON) inside, and its thumbnail."""
    picture = draw_sheet(table)
    chunks = make_png_chunks(recipe)
    chunks.add_itxt(GRID_KEY, axes)
    png = io.BytesIO()
    picture.save(png, "PNG", pnginfo=chunks, compress_level=PNG_LEVEL)
    file, thumb = f"{name}.png", f"{name}.thumb.webp"
    write_whole(outputs_dir / file, png.getvalue())
    save_thumb(outputs_dir / thumb, picture)
    return SavedFile(
        kind="image", file=file, thumb=thumb, width=picture.width, height=picture.height, frames=1, recipe=recipe
    )


def draw_sheet(table: Table) -> Image.Image:
    """Draws the whole sheet; an unreadable picture leaves an empty cell."""
    assert len(table.places) == len(table.columns) * len(table.rows) * len(table.pages)
    layout = _fit_layout(table)
    sheet = Image.new("RGB", layout.size(table), PAPER)
    canvas = ImageDraw.Draw(sheet)
    places = iter(table.places)
    for number, page in enumerate(table.pages):
        top = layout.margin + number * layout.page_height(table)
        _draw_line(canvas, layout, page, at=(layout.margin, top))
        top += layout.page
        for column, label in enumerate(table.columns):
            left = layout.margin + layout.side + column * (layout.cell[0] + layout.gap)
            _draw_head(canvas, layout, label, left=left, bottom=top + layout.head - layout.gap)
        top += layout.head
        for row, label in enumerate(table.rows):
            above = top + row * (layout.cell[1] + layout.gap)
            _draw_side(canvas, layout, label, top=above)
            for column in range(len(table.columns)):
                left = layout.margin + layout.side + column * (layout.cell[0] + layout.gap)
                _draw_place(sheet, layout, next(places), at=(left, above))
    bottom = layout.margin + len(table.pages) * layout.page_height(table)
    width = sheet.width - 2 * layout.margin
    lines = layout.letters.wrap(table.caption, width_px=width, lines=HEAD_LINES)
    for number, line in enumerate(lines):
        at = (layout.margin, bottom + number * layout.letters.line_px)
        layout.letters.draw(canvas, line, at=at, fill=FAINT)
    return sheet


def _fit_layout(table: Table) -> _Geometry:
    width, height = _measure_cells(table.places)
    layout = _lay_out(table, (width, height))
    sheet_width, sheet_height = layout.size(table)
    too_large = sheet_width * sheet_height / MAX_PIXELS
    if too_large > 1:
        shrink = too_large**-0.5
        layout = _lay_out(table, (max(8, int(width * shrink)), max(8, int(height * shrink))))
    return layout


def _lay_out(table: Table, cell: tuple[int, int]) -> _Geometry:
    short = min(cell)
    letters = Lettering(min(LARGEST_PX, max(SMALLEST_PX, round(LETTERS * short))))
    gap = max(2, round(GAP * short))
    widest = max(letters.measure(label) for label in table.rows)
    side = min(ceil(widest) + 2 * gap, max(round(SIDE * cell[0]), 6 * letters.size_px)) if any(table.rows) else 0
    heads = max(len(letters.wrap(label, width_px=cell[0], lines=HEAD_LINES)) for label in table.columns)
    margin = 2 * gap
    content = side + len(table.columns) * (cell[0] + gap) - gap
    captions = len(letters.wrap(table.caption, width_px=content, lines=HEAD_LINES))
    return _Geometry(
        cell=cell,
        letters=letters,
        gap=gap,
        side=side,
        head=heads * letters.line_px + gap,
        page=letters.line_px + gap if any(table.pages) else 0,
        margin=margin,
        caption=captions * letters.line_px,
    )


def _measure_cells(places: Sequence[Cell]) -> tuple[int, int]:
    """Returns the largest width and the largest height; smaller pictures are centred in their cells."""
    sizes = [size for place in places if place.file and (size := _read_size(place.file))]
    if not sizes:
        return EMPTY_PX, EMPTY_PX
    return max(width for width, _ in sizes), max(height for _, height in sizes)


def _read_size(file: Path) -> tuple[int, int] | None:
    try:
        with Image.open(file) as picture:
            return picture.size
    except OSError:
        return None


def _draw_head(canvas: ImageDraw.ImageDraw, layout: _Geometry, label: str, *, left: int, bottom: int) -> None:
    lines = layout.letters.wrap(label, width_px=layout.cell[0], lines=HEAD_LINES)
    for number, line in enumerate(reversed(lines), start=1):
        middle = left + (layout.cell[0] - layout.letters.measure(line)) / 2
        layout.letters.draw(canvas, line, at=(middle, bottom - number * layout.letters.line_px), fill=INK)


def _draw_side(canvas: ImageDraw.ImageDraw, layout: _Geometry, label: str, *, top: int) -> None:
    """Draws a row's label at the left, vertically centred."""
    room = max(1, layout.cell[1] // layout.letters.line_px)
    lines = layout.letters.wrap(label, width_px=layout.side - 2 * layout.gap, lines=room) if layout.side else []
    top += (layout.cell[1] - len(lines) * layout.letters.line_px) // 2
    for number, line in enumerate(lines):
        at = (layout.margin, top + number * layout.letters.line_px)
        layout.letters.draw(canvas, line, at=at, fill=INK)


def _draw_line(canvas: ImageDraw.ImageDraw, layout: _Geometry, text: str, *, at: tuple[int, int]) -> None:
    width = layout.side + layout.cell[0]
    for line in layout.letters.wrap(text, width_px=width, lines=1):
        layout.letters.draw(canvas, line, at=at, fill=INK)


def _draw_place(sheet: Image.Image, layout: _Geometry, place: Cell, *, at: tuple[int, int]) -> None:
    width, height = layout.cell
    note = place.note
    if place.file is not None:
        try:
            with Image.open(place.file) as opened:
                picture = opened.convert("RGB")
        except OSError:
            note = note or "cannot be read"
        else:
            picture.thumbnail(layout.cell, Image.Resampling.LANCZOS, reducing_gap=2.0)
            sheet.paste(picture, (at[0] + (width - picture.width) // 2, at[1] + (height - picture.height) // 2))
            return
    canvas = ImageDraw.Draw(sheet)
    canvas.rectangle((*at, at[0] + width - 1, at[1] + height - 1), fill=EMPTY)
    lines = layout.letters.wrap(note, width_px=width - 2 * layout.gap, lines=HEAD_LINES)
    top = at[1] + (height - len(lines) * layout.letters.line_px) / 2
    for number, line in enumerate(lines):
        left = at[0] + (width - layout.letters.measure(line)) / 2
        layout.letters.draw(canvas, line, at=(left, top + number * layout.letters.line_px), fill=FAINT)
